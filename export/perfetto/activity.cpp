#include "export/perfetto/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "analysis/wording.h"
#include "export/mark_ranges.h"
#include "export/perfetto/slices.h"
#include "export/row_names.h"
#include "export/sorted_rows.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

template <typename Row>
int64_t end_of(const Row& row) {
  const auto room = static_cast<uint64_t>(INT64_MAX - 1 - std::max<int64_t>(row.start_ns, 0));
  return row.start_ns + static_cast<int64_t>(std::min(row.duration_ns, room));
}

constexpr auto kEarlierThenLonger = [](const auto& a, const auto& b) {
  return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
};

// When the operation ran: the time on the GPU if known, else the time of the call.
struct Span {
  int64_t begin_ns;
  int64_t end_ns;
};
Span span_of(const NcclOperation& op) {
  NcclOperation on_gpu = op;
  if (op.gpu_duration_ns != 0) {
    on_gpu.start_ns = op.gpu_start_ns;
    on_gpu.duration_ns = op.gpu_duration_ns;
  }
  return {on_gpu.start_ns, end_of(on_gpu)};
}

class LaneMap {
 public:
  explicit LaneMap(PerfettoActivity& activity) : activity_(activity) {}

  template <typename Describe>
  SliceLanes& lanes(uint64_t group, uint64_t member, Describe&& describe) {
    std::unique_ptr<SliceLanes>& lanes = all_[{group, member}];
    if (lanes == nullptr) {
      const auto [parent, name, order] = describe();
      lanes = std::make_unique<SliceLanes>(activity_.packets, activity_.tracks,
                                           activity_.names.sequence(), parent, name, order);
    }
    return *lanes;
  }
  uint64_t finish() {
    uint64_t clipped = 0;
    for (auto& [key, lanes] : all_) {
      lanes->finish();
      clipped += lanes->clipped();
    }
    return clipped;
  }

 private:
  PerfettoActivity& activity_;
  std::map<std::pair<uint64_t, uint64_t>, std::unique_ptr<SliceLanes>> all_;
};

struct TrackPlace {
  uint64_t parent;
  std::string name;
  int32_t order;
};

}  // namespace

uint64_t flow_of(const NcclOperation& op, std::string_view function) {
  if (op.kind == NcclKind::kPointToPoint || op.communicator == 0) return 0;
  // Mixed so that neighbouring sequence numbers of two communicators never meet.
  uint64_t x = op.communicator + kGoldenRatio * (op.sequence + 1);
  for (const char c : function) x = (x ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix_bits(x) | 1;
}

uint64_t PerfettoActivity::write_streams() {
  LaneMap lanes(*this);
  const auto lanes_of = [&](int64_t device, uint64_t stream, uint64_t kind) -> SliceLanes& {
    return lanes.lanes(static_cast<uint64_t>(device), stream * 2 + kind, [&] {
      return TrackPlace{tracks.device(device),
                        fmt::format("stream {}{}", stream, kind == 0 ? "" : " copies"),
                        PerfettoTracks::kStreams};
    });
  };
  const uint32_t kernel_category = names.category("kernel");
  for_each_sorted<Kernel>(*process.reader, process.id, kEarlierThenLonger, [&](const Kernel& k) {
    if (!range.overlaps(k.start_ns, end_of(k))) return;
    const int64_t begin = k.start_ns;
    const uint64_t track = lanes_of(k.device, k.stream, 0).place(begin, end_of(k));
    packets.put_slice_begin(names.sequence(), begin, track, names.kernel(k.name), kernel_category);
  });
  const uint32_t copy_category = names.category("copy");
  for_each_sorted<Copy>(*process.reader, process.id, kEarlierThenLonger, [&](const Copy& c) {
    if (!range.overlaps(c.start_ns, end_of(c))) return;
    const int64_t begin = c.start_ns;
    const uint64_t track = lanes_of(c.device, c.stream, 1).place(begin, end_of(c));
    pb::TrackEvent& event = *names.begin_packet(begin).mutable_track_event();
    event.set_type(kSliceBegin);
    event.set_track_uuid(track);
    event.set_name_iid(names.event(copy_kind_name(c.kind)));
    event.add_category_iids(copy_category);
    PerfettoArgs(names, event).number("bytes", c.size_bytes);
    names.end_packet();
  });
  return lanes.finish();
}

namespace {

// Operations of one process in the order of their spans.
std::vector<NcclOperation> nccl_operations(const ExportProcess& process, const TimeRange& range) {
  std::vector<NcclOperation> all;
  for (const NcclOperation& op : process.model->nccl) {
    const Span span = span_of(op);
    if (range.overlaps(span.begin_ns, span.end_ns)) all.push_back(op);
  }
  std::stable_sort(all.begin(), all.end(), [](const NcclOperation& a, const NcclOperation& b) {
    const Span x = span_of(a);
    const Span y = span_of(b);
    return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : x.end_ns > y.end_ns;
  });
  return all;
}

std::unordered_map<uint64_t, std::string> communicator_names(const ExportProcess& process) {
  std::unordered_map<uint64_t, std::string> texts;
  for (const Communicator& c : process.model->communicators) {
    const auto name = process.name(c.name);
    texts[c.id] = name.empty() ? fmt::format("NCCL {:#x} ({} ranks)", c.id, c.ranks)
                               : fmt::format("NCCL {} ({} ranks)", name, c.ranks);
  }
  return texts;
}

void put_nccl_args(PerfettoArgs& args, const ExportProcess& process, const NcclOperation& op) {
  args.number("bytes", op.size_bytes);
  args.number("count", op.count);
  args.text("datatype", process.name(op.datatype));
  args.text("algorithm", process.name(op.algorithm));
  args.text("protocol", process.name(op.protocol));
  if (op.channels != 0) args.number("channels", op.channels);
  args.signed_number(op.kind == NcclKind::kPointToPoint ? "peer" : "root", op.peer);
  args.address("communicator", op.communicator);
  args.number("sequence", op.sequence);
  if (op.send_address != 0) args.address("send_address", op.send_address);
  if (op.receive_address != 0) args.address("receive_address", op.receive_address);
  if (op.stream != 0) args.number("stream", op.stream);
  args.signed_number("call_start_ns", op.start_ns);
  args.number("call_duration_ns", op.duration_ns);
}

}  // namespace

uint64_t PerfettoActivity::write_nccl() {
  const std::vector<NcclOperation> operations = nccl_operations(process, range);
  if (operations.empty()) return 0;
  const auto texts = communicator_names(process);
  const uint64_t parent = tracks.add(tracks.process_track(), "NCCL", PerfettoTracks::kNccl);
  const uint32_t category = names.category("nccl");
  LaneMap lanes(*this);
  for (const NcclOperation& op : operations) {
    SliceLanes& lane = lanes.lanes(0, op.communicator, [&] {
      const auto known = texts.find(op.communicator);
      return TrackPlace{
          parent, known != texts.end() ? known->second : fmt::format("NCCL {:#x}", op.communicator),
          0};
    });
    const Span span = span_of(op);
    const int64_t begin = span.begin_ns;
    const uint64_t track = lane.place(begin, span.end_ns);
    pb::TrackEvent& event = *names.begin_packet(begin).mutable_track_event();
    event.set_type(kSliceBegin);
    event.set_track_uuid(track);
    event.set_name_iid(names.event(op.function));
    event.add_category_iids(category);
    if (const uint64_t flow = flow_of(op, process.name(op.function)); flow != 0) {
      event.add_flow_ids(flow);
    }
    PerfettoArgs args(names, event);
    put_nccl_args(args, process, op);
    names.end_packet();
  }
  return lanes.finish();
}

uint64_t PerfettoActivity::write_marks() {
  LaneMap lanes(*this);
  std::map<uint64_t, uint64_t> instant_tracks;
  for (const MarkRange& r : mark_ranges(process.model->marks)) {
    if (!range.overlaps(r.mark.time_ns, r.end_ns)) continue;
    const bool step =
        r.mark.kind == MarkKind::kIteration || r.mark.kind == MarkKind::kOptimizerStep;
    const std::string_view kind = step ? "steps" : mark_kind_name(r.mark.kind);
    const bool unrecorded = r.mark.kind == MarkKind::kNotRecorded;
    const auto place = [&] {
      if (unrecorded) {
        return TrackPlace{tracks.process_track(), "kernels not recorded", PerfettoTracks::kMarks};
      }
      return TrackPlace{
          tracks.process_track(),
          r.mark.thread == 0 ? std::string(kind) : fmt::format("{} thread {}", kind, r.mark.thread),
          step ? PerfettoTracks::kSteps : PerfettoTracks::kMarks};
    };
    const bool instant = r.mark.phase == MarkPhase::kInstant;
    // Marks that reach into the range are clipped to its borders.
    const int64_t begin = std::max(r.mark.time_ns, range.begin_ns);
    const int64_t end = r.end_ns == kOpenEnd ? kOpenEnd : std::min(r.end_ns, range.end_ns);
    const uint64_t group = step ? 0 : static_cast<uint64_t>(r.mark.kind) + 1;
    uint64_t track = 0;
    if (instant) {
      uint64_t& known = instant_tracks[group << 32 | r.mark.thread];
      if (known == 0) {
        const TrackPlace at = place();
        known = tracks.add(at.parent, at.name + " marks", at.order);
      }
      track = known;
    } else {
      track = lanes.lanes(group, r.mark.thread, place).place(begin, end);
    }
    pb::TrackEvent& event = *names.begin_packet(begin).mutable_track_event();
    event.set_type(instant ? kInstant : kSliceBegin);
    event.set_track_uuid(track);
    event.set_name_iid(names.event(mark_text(r.mark, process.name(r.mark.name))));
    event.add_category_iids(names.category(mark_kind_name(r.mark.kind)));
    PerfettoArgs args(names, event);
    args.text("domain", process.name(r.mark.domain));
    args.signed_number("device", r.mark.device);
    names.end_packet();
  }
  return lanes.finish();
}

void PerfettoActivity::write_driver_calls() {
  uint64_t track = 0;
  BlockDecoder decoder(*process.reader);
  for_each_block<DriverEvent>(
      *process.reader, decoder, process.id, [&](auto rows, const BlockRef&) {
        for (const DriverEvent& row : rows) {
          if (!range.contains(row.time_ns)) continue;
          if (track == 0) {
            track = tracks.add(tracks.process_track(), "driver calls", PerfettoTracks::kDriver);
          }
          pb::TrackEvent& event = *names.begin_packet(row.time_ns).mutable_track_event();
          event.set_type(kInstant);
          event.set_track_uuid(track);
          event.set_name_iid(names.event(driver_operation_name(row.operation)));
          event.add_category_iids(names.category("driver"));
          PerfettoArgs args(names, event);
          args.text("kind", memory_kind_name(row.kind));
          args.number("bytes", row.size_bytes);
          if (row.address != 0) args.address("address", row.address);
          if (row.handle != 0) args.address("handle", row.handle);
          args.signed_number("device", row.device);
          args.text("owner", process.name(row.owner));
          if (row.result != 0) args.number("failed_with", row.result);
          args.lines("stack", process.model->names.stack_text(row.stack));
          names.end_packet();
        }
      });
}

}  // namespace tidemark
