// LiveState as rows of a trace.
#include <algorithm>

#include "injector/trace/live_state_rows.h"

namespace tidemark::injector {

namespace {
constexpr uint64_t kSmallSegmentBytes = 2 << 20;  // PyTorch's kSmallBuffer
}  // namespace

void LiveState::write_mark(TraceWriter& out, const StateNames& names, uint32_t name,
                           int64_t time_ns, int64_t device, uint64_t value) noexcept {
  Mark mark{};
  mark.time_ns = time_ns;
  mark.correlation = value;
  mark.device = device;
  mark.name = name;
  mark.domain = names.tidemark;
  mark.phase = MarkPhase::kInstant;
  mark.kind = MarkKind::kUser;
  out.append(mark);
}

void LiveState::write(TraceWriter& out, const StateNames& names) noexcept {
  const int64_t time_ns = written_ns_ = last_round_ns_;
  write_mark(out, names, names.kept_window, time_ns, -1);
  write_mark(out, names, names.earlier_iterations, time_ns, -1, iterations_);
  write_mark(out, names, names.earlier_optimizer_steps, time_ns, -1, optimizer_steps_);
  for (size_t i = 0; i < kStateDevices; ++i) {
    const DeviceTotals& now = devices_[i].totals;
    const uint64_t failed = now.seen ? now.failed : now.failed_by_driver;
    if (failed == 0) continue;
    write_mark(out, names, names.earlier_errors, time_ns, static_cast<int64_t>(i), failed);
  }
  write_driver(out, time_ns);
  for (size_t i = 0; i < kStateDevices; ++i) {
    if (devices_[i].totals.seen || devices_[i].has_segments) {
      write_framework(out, names, static_cast<int64_t>(i));
    }
  }
  int64_t before_ns = time_ns;  // times increase strictly
  for (const FrameworkEvent& held : held_) {
    FrameworkEvent row = held;
    before_ns = row.time_ns = std::max(row.time_ns, before_ns + 1);
    out.append(row);
  }
  for (const DriverEvent& row : held_driver_) out.append(row);
  for (const TensorTag& held : held_tags_) {
    TensorTag row = held;
    const Block* const block = blocks_.find(row.address);
    // Of a block in the state, which begins later.
    if (block != nullptr && row.time_ns >= block->row.time_ns) {
      row.time_ns = std::max(row.time_ns, time_ns);
    }
    out.append(row);
  }
  for (const Mark& row : held_marks_) out.append(row);
  for (const Mark& begin : open_ranges_) {
    Mark row = begin;
    row.time_ns = std::max(row.time_ns, time_ns);
    out.append(row);
  }
  for (const Communicator& made : communicators_) {
    Communicator row = made;
    row.time_ns = std::max(row.time_ns, time_ns);
    out.append(row);
  }
  losses_.for_each([&](const Loss& loss) { out.append(loss.row); });
  // Of the processes on a card only the last list counts.
  int64_t listed_ns[kStateDevices] = {};
  counters_.for_each([&](const Latest& latest) {
    const Counter& row = latest.row;
    if (row.kind != CounterKind::kProcessUsed || !valid_device(row.device)) return;
    listed_ns[row.device] = std::max(listed_ns[row.device], row.time_ns);
  });
  counters_.for_each([&](const Latest& latest) {
    Counter row = latest.row;
    if (row.kind == CounterKind::kProcessUsed && valid_device(row.device) &&
        row.time_ns != listed_ns[row.device]) {
      return;
    }
    row.time_ns = std::max(row.time_ns, time_ns);
    out.append(row);
  });
}

void LiveState::write_driver(TraceWriter& out, int64_t time_ns) noexcept {
  const auto put = [&](DriverEvent row, uint32_t flags) {
    row.time_ns = time_ns;
    row.flags |= flags;
    out.append(row);
  };
  objects_.for_each([&](const Object& o) {
    // A context without the flag: nothing of it is unknown.
    if (is(Key::kMapping, o.key)) return;
    put(o.row, is(Key::kContext, o.key) ? 0 : kDriverSeeded);
    if (o.tag_name != 0) {
      out.append(TensorTag{time_ns, o.row.address, 0, -1, o.tag_name, Category::kUnknown});
    }
    if (!is(Key::kHandle, o.key)) return;
    DriverEvent more = o.row;
    more.operation = DriverOperation::kRetain;
    for (int64_t i = 1; i < o.references; ++i) put(more, 0);
  });
  objects_.for_each([&](const Object& o) {
    if (is(Key::kMapping, o.key)) put(o.row, 0);
  });
  objects_.for_each([&](const Object& o) {
    if (!is(Key::kHandle, o.key) || o.references > 0) return;
    DriverEvent release = o.row;
    release.operation = DriverOperation::kRelease;
    put(release, 0);
  });
}

void LiveState::write_framework(TraceWriter& out, const StateNames& names,
                                int64_t device) noexcept {
  const int64_t time_ns = written_ns_;
  // Without the bridge, readers take the segments from the driver's rows.
  if (devices_[device].has_segments) {
    write_segments(out, device, time_ns);
    write_mark(out, names, names.torch_state, time_ns, device);
  }
  blocks_.for_each([&](const Block& b) {
    if (b.row.device != device) return;
    const auto condition = b.pending ? BlockCondition::kPendingFree : BlockCondition::kAllocated;
    out.append(BlockState{time_ns, b.row.address, b.row.block_bytes, b.row.size_bytes, device,
                          b.row.stack, condition});
    if (!b.tagged) return;
    out.append(
        TensorTag{time_ns, b.row.address, size_of(b.row), device, b.tag_name, b.tag, b.tag_module});
  });
}

void LiveState::write_segments(TraceWriter& out, int64_t device, int64_t time_ns) noexcept {
  std::sort(segments_.begin(), segments_.end(),
            [](const Segment& a, const Segment& b) { return a.address < b.address; });
  PageList<SegmentState> states;
  for (const Segment& s : segments_) {
    SegmentState row{};
    row.time_ns = time_ns;
    row.address = s.address;
    row.size_bytes = s.size_bytes;
    row.stream = s.stream;
    row.device = s.device;
    row.pool = s.pool;
    row.stack = s.stack;
    row.flags = (s.expandable ? kSegmentExpandable : 0U) |
                (s.size_bytes == kSmallSegmentBytes ? kSegmentSmall : 0U);
    incomplete_ |= !states.add(row);
  }
  blocks_.for_each([&](const Block& b) {
    auto* const behind = std::upper_bound(
        states.begin(), states.end(), b.row.address,
        [](uint64_t address, const SegmentState& s) { return address < s.address; });
    if (behind == states.begin()) return;
    SegmentState& of = behind[-1];
    of.active_bytes += size_of(b.row);
    of.requested_bytes += b.row.size_bytes;
    if (!b.pending) of.allocated_bytes += size_of(b.row);
  });
  for (const SegmentState& row : states) {
    if (row.device == device) out.append(row);
  }
}

}  // namespace tidemark::injector
