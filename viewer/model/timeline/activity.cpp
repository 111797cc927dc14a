#include "viewer/model/timeline/activity.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "export/sorted_rows.h"

namespace tidemark::view {

namespace {

using Stream = std::pair<int64_t, uint64_t>;  // device, stream

void add_rows(Activity& activity, ActivityKind kind, const Stream& stream, SpanStacker stacker) {
  uint32_t depth = 0;
  for (SpanRow& spans : stacker.take()) {
    activity.rows.push_back({kind, stream.first, stream.second, depth++, std::move(spans)});
  }
}

void add_kernels(Activity& activity, const TraceReader& reader, uint32_t id) {
  std::map<Stream, SpanStacker> streams;
  const auto earlier = [](const Kernel& a, const Kernel& b) { return a.start_ns < b.start_ns; };
  for_each_sorted<Kernel>(reader, id, earlier, [&](const Kernel& k) {
    const auto found =
        streams.try_emplace({k.device, k.stream}, SpanStacker(Activity::kMaxDepth)).first;
    ++activity.kernels;
    const auto length = static_cast<int64_t>(std::min<uint64_t>(k.duration_ns, INT64_MAX / 4));
    if (!found->second.add(k.start_ns, k.start_ns + length, k.name)) ++activity.left_out;
  });
  std::vector<std::pair<uint64_t, Stream>> order;
  std::map<Stream, Activity> of_stream;
  for (auto& [stream, stacker] : streams) {
    Activity& rows = of_stream[stream];
    add_rows(rows, ActivityKind::kKernels, stream, std::move(stacker));
    uint64_t busy = 0;
    for (const ActivityRow& row : rows.rows) busy += row.spans.busy_ns();
    order.emplace_back(busy, stream);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [busy, stream] : order) {
    for (ActivityRow& row : of_stream[stream].rows) activity.rows.push_back(std::move(row));
  }
}

struct Operation {
  CollectiveTime time;
  uint32_t index = 0;
};

void add_collectives(Activity& activity, const ProcessModel& process, int64_t end_ns) {
  std::map<int64_t, std::vector<Operation>> devices;
  // A call that had to wait is recorded a second time once NCCL starts it.
  std::set<std::pair<int64_t, uint32_t>> started;
  for (const NcclOperation& op : process.nccl) {
    if (op.group != 0) started.emplace(op.start_ns, op.thread);
  }
  for (uint32_t i = 0; i < process.nccl.size(); ++i) {
    const NcclOperation& op = process.nccl[i];
    const CollectiveTime time = time_of(op, end_ns);
    if (time.never_ran && started.contains({op.start_ns, op.thread})) continue;
    std::vector<Operation>& all = devices[op.device];
    // Operations of a group run in one kernel and are drawn as one.
    const bool together = !all.empty() && op.group != 0 &&
                          process.nccl[all.back().index].group == op.group &&
                          all.back().time.begin_ns == time.begin_ns;
    if (!together) all.push_back({time, i});
  }
  for (auto& [device, all] : devices) {
    std::stable_sort(all.begin(), all.end(), [](const Operation& a, const Operation& b) {
      return a.time.begin_ns < b.time.begin_ns;
    });
    SpanStacker stacker(Activity::kMaxDepth);
    for (const Operation& op : all) {
      if (!stacker.add(op.time.begin_ns, op.time.end_ns, op.index)) ++activity.left_out;
    }
    add_rows(activity, ActivityKind::kCollectives, {device, 0}, std::move(stacker));
  }
}

}  // namespace

CollectiveTime time_of(const NcclOperation& op, int64_t trace_end_ns) {
  const auto length = [](uint64_t ns) {
    return static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX / 4));
  };
  if (op.gpu_start_ns != 0) {
    return {op.gpu_start_ns, op.gpu_start_ns + length(op.gpu_duration_ns), true, false};
  }
  // Neither started by NCCL nor returned: it waits for its peers.
  if (op.duration_ns == 0 && op.group == 0) {
    return {op.start_ns, std::max(trace_end_ns, op.start_ns), false, true};
  }
  return {op.start_ns, op.start_ns + length(op.duration_ns), false, false};
}

Activity Activity::of(const ProcessModel& process, const TraceReader* reader, uint32_t id,
                      int64_t end_ns) {
  Activity activity;
  add_collectives(activity, process, end_ns);
  if (reader != nullptr) add_kernels(activity, *reader, id);
  return activity;
}

size_t Activity::memory_bytes() const {
  size_t bytes = 0;
  for (const ActivityRow& row : rows) bytes += row.spans.memory_bytes();
  return bytes;
}

bool read_kernel(const TraceReader& reader, uint32_t id, int64_t start_ns, uint64_t stream,
                 Kernel& out) {
  BlockDecoder decoder(reader);
  for (const BlockRef& ref : reader.blocks_of(id)) {
    if (ref.kind != BlockKind::kKernels || ref.first_ns > start_ns || ref.last_ns < start_ns) {
      continue;
    }
    for (const Kernel& k : decoder.rows<Kernel>(ref)) {
      if (k.start_ns != start_ns || k.stream != stream) continue;
      out = k;
      return true;
    }
  }
  return false;
}

}  // namespace tidemark::view
