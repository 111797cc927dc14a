#include "injector/trace/live_state.h"

#include <algorithm>

namespace tidemark::injector {

namespace {

constexpr uint64_t kSmallSegmentBytes = 2 << 20;  // PyTorch's kSmallBuffer
constexpr uint64_t kLeastBlockBytes = 512;        // PyTorch's kMinBlockSize
constexpr size_t kMostOpenRanges = 4096;
constexpr size_t kMostCommunicators = 4096;

// What a key of an object of the driver stands for.
enum class Key : uint64_t { kAddress = 1, kHandle, kMapping, kModule, kContext };

uint64_t key_of(Key what, uint64_t value) {
  return value << 3 | static_cast<uint64_t>(what);
}
bool is(Key what, uint64_t key) {
  return (key & 7) == static_cast<uint64_t>(what);
}

// Arrays have handles, everything else an address.
uint64_t address_key(const DriverEvent& e) {
  return key_of(Key::kAddress, e.kind == MemoryKind::kArray ? e.handle : e.address);
}

// Where the recorder did not learn the block's size. Readers derive it more exactly.
uint64_t size_of(const FrameworkEvent& row) {
  if (row.block_bytes != 0) return row.block_bytes;
  return (row.size_bytes + kLeastBlockBytes - 1) / kLeastBlockBytes * kLeastBlockBytes;
}

bool valid(int64_t device) {
  return device >= 0 && device < static_cast<int64_t>(kStateDevices);
}

// Recorded again and again whether they changed or not.
bool is_sampled(CounterKind kind) {
  switch (kind) {
    case CounterKind::kDeviceUsed:
    case CounterKind::kDeviceFree:
    case CounterKind::kDeviceReserved:
    case CounterKind::kReadingAtRest:
    case CounterKind::kOwnHost:
    case CounterKind::kOwnDevice:
    case CounterKind::kHostResident:
      return true;
    default:
      return false;
  }
}

bool ends(const Mark& end, const Mark& begin) {
  if (end.kind != begin.kind) return false;
  if (end.correlation != 0 || begin.correlation != 0) return end.correlation == begin.correlation;
  return end.thread == begin.thread && end.name == begin.name;
}

template <typename Row>
void sort_by_time(const PageList<Row>& rows) {
  const auto earlier = [](const Row& a, const Row& b) { return a.time_ns < b.time_ns; };
  // One thread's rows are in order. Not stable_sort, which allocates; equal times do not occur
  // within a device.
  if (!std::is_sorted(rows.begin(), rows.end(), earlier)) {
    std::sort(rows.begin(), rows.end(), earlier);
  }
}

// Calls apply(row) for those that are due and removes them.
template <typename Row, typename Due, typename Apply>
void take_due(PageList<Row>& rows, Due&& due, Apply&& apply) {
  if (rows.size() == 0) return;
  sort_by_time(rows);
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (due(rows[i])) {
      apply(rows[i]);
    } else {
      rows[kept++] = rows[i];
    }
  }
  rows.truncate(kept);
}

}  // namespace

// ---- rounds -------------------------------------------------------------------------------------

void LiveState::begin_round(int64_t now_ns) noexcept {
  last_round_ns_ = round_ns_;
  round_ns_ = now_ns;
  for (Device& device : devices_) device.complete_ns = device.collected_ns;
}

void LiveState::end_round() noexcept {
  if (++rounds_since_state_ < kSettleRounds) return;  // its rows are older than those held
  rounds_since_state_ = std::min(rounds_since_state_, kSettleRounds);
  take_due(
      held_driver_, [this](const DriverEvent& r) { return r.time_ns <= last_round_ns_; },
      [this](const DriverEvent& r) { apply(r); });
  take_due(
      held_, [this](const FrameworkEvent& r) { return r.time_ns <= devices_[r.device].complete_ns; },
      [this](const FrameworkEvent& r) { apply(r); });
  take_due(
      held_marks_, [this](const Mark& r) { return r.time_ns <= last_round_ns_; },
      [this](const Mark& r) { apply(r); });
  take_due(
      held_tags_, [this](const TensorTag& r) { return r.time_ns <= tagged_until(r); },
      [this](const TensorTag& r) { apply(r); });
}

// Every block that a tag of this time can mean is in the state.
int64_t LiveState::tagged_until(const TensorTag& row) const noexcept {
  return valid(row.device) ? devices_[row.device].complete_ns : last_round_ns_;
}

// A program names memory by its address alone: that of a block or, without a framework, of the
// driver.
void LiveState::apply(const TensorTag& row) noexcept {
  if (Block* const block = blocks_.find(row.address)) {
    if (row.time_ns < block->row.time_ns) return;
    if (row.category != Category::kUnknown) block->tag = row.category;
    if (row.name != 0) block->tag_name = row.name;
    if (row.nn_module != 0) block->tag_module = row.nn_module;
    block->tagged = true;
    return;
  }
  Object* const object = objects_.find(key_of(Key::kAddress, row.address));
  if (object != nullptr && row.time_ns >= object->row.time_ns) object->tag_name = row.name;
}

void LiveState::begin_interval() noexcept {
  for (Device& device : devices_) {
    device.totals.lowest = device.totals.highest = device.totals.allocated;
  }
}

uint64_t LiveState::memory_bytes() const noexcept {
  return blocks_.memory_bytes() + objects_.memory_bytes() + counters_.memory_bytes() +
         held_.memory_bytes() + held_driver_.memory_bytes() + segments_.memory_bytes();
}

// ---- the framework ------------------------------------------------------------------------------

void LiveState::hold(const FrameworkEvent& row) noexcept {
  if (!held_.add(row)) incomplete_ = true;
}

void LiveState::take(FrameworkEvent& row) noexcept {
  if (!valid(row.device)) return;
  Device& device = devices_[row.device];
  device.collected_ns = std::max(device.collected_ns, row.time_ns);
  hold(row);
}

// The state that a recording of a running process began with, as the events that led to it.
void LiveState::take(SegmentState& row) noexcept {
  if (!valid(row.device)) return;
  rounds_since_state_ = 0;
  Device& device = devices_[row.device];
  device.collected_ns = std::max(device.collected_ns, row.time_ns);
  FrameworkEvent event{};
  event.time_ns = row.time_ns - 1;
  event.address = row.address;
  event.size_bytes = row.size_bytes;
  event.stream = row.stream;
  event.device = row.device;
  event.pool = row.pool;
  event.stack = row.stack;
  const bool expandable = (row.flags & kSegmentExpandable) != 0;
  event.action = expandable ? FrameworkAction::kSegmentMap : FrameworkAction::kSegmentAlloc;
  hold(event);
}

void LiveState::take(BlockState& row) noexcept {
  const bool held =
      row.condition == BlockCondition::kAllocated || row.condition == BlockCondition::kPendingFree;
  if (!valid(row.device) || !held) return;
  rounds_since_state_ = 0;
  FrameworkEvent event{};
  event.time_ns = row.time_ns - 1;
  event.address = row.address;
  event.size_bytes = row.requested_bytes;
  event.block_bytes = row.size_bytes;
  event.device = row.device;
  event.stack = row.stack;
  event.action = FrameworkAction::kAlloc;
  hold(event);
  if (row.condition != BlockCondition::kPendingFree) return;
  event.time_ns = row.time_ns;
  event.action = FrameworkAction::kFreeRequested;
  hold(event);
}

void LiveState::take(TensorTag& row) noexcept {
  if (valid(row.device) || row.device == -1) incomplete_ |= !held_tags_.add(row);
}

void LiveState::note_allocated(Device& device) noexcept {
  DeviceTotals& totals = device.totals;
  totals.seen = true;
  totals.lowest = std::min(totals.lowest, totals.allocated);
  totals.highest = std::max(totals.highest, totals.allocated);
}

void LiveState::apply(const FrameworkEvent& row) noexcept {
  Device& device = devices_[row.device];
  DeviceTotals& totals = device.totals;
  switch (row.action) {
    case FrameworkAction::kAlloc: {
      Block* const block = blocks_.find_or_add(row.address);
      check(block);
      if (block == nullptr) return;
      // A state that was read in the middle: the block is known, and better.
      if (block->row.block_bytes == row.block_bytes && row.block_bytes != 0 && row.thread == 0 &&
          row.stack == 0) {
        return;
      }
      // Occupied: its free is missing.
      if (block->row.time_ns != 0 && !block->pending) totals.allocated -= size_of(block->row);
      block->row = row;
      block->pending = block->tagged = false;
      block->tag_name = 0;
      block->tag = Category::kUnknown;
      totals.allocated += size_of(row);
      return note_allocated(device);
    }
    case FrameworkAction::kFreeRequested:
    case FrameworkAction::kFreeCompleted: {
      Block* const block = blocks_.find(row.address);
      if (block == nullptr) return;
      if (!block->pending) totals.allocated -= size_of(block->row);
      block->pending = true;
      if (row.action == FrameworkAction::kFreeCompleted) blocks_.erase(block);
      return note_allocated(device);
    }
    case FrameworkAction::kSegmentAlloc:
    case FrameworkAction::kSegmentMap:
      if (!device.has_segments) find_earlier_segments(row);
      remove_range(row);
      totals.reserved += row.size_bytes;
      incomplete_ |= !segments_.add({row.address, row.size_bytes, row.stream, row.device, row.pool,
                                     row.stack, row.action == FrameworkAction::kSegmentMap});
      return;
    case FrameworkAction::kSegmentFree:
    case FrameworkAction::kSegmentUnmap:
      if (!device.has_segments) find_earlier_segments(row);
      return remove_range(row);
    default:
      return;
  }
}

// The allocator reports its segments since the bridge was attached; those before are known from the
// driver.
void LiveState::find_earlier_segments(const FrameworkEvent& first) noexcept {
  Device& device = devices_[first.device];
  device.has_segments = true;
  device.totals.reserved = 0;
  const auto add = [&](const DriverEvent& e) {
    if (e.operation != DriverOperation::kAllocate || e.kind != MemoryKind::kDevice ||
        e.device != first.device || e.owner != owner_torch_ || e.owner == 0 ||
        e.time_ns >= first.time_ns || e.address == first.address) {
      return;
    }
    device.totals.reserved += e.size_bytes;
    incomplete_ |= !segments_.add({e.address, e.size_bytes, 0, e.device, 0, e.stack, false});
  };
  objects_.for_each([&](const Object& o) { add(o.row); });
  for (const DriverEvent& e : held_driver_) add(e);
  if (first.action != FrameworkAction::kSegmentFree) return;
  incomplete_ |= !segments_.add({first.address, first.size_bytes, 0, first.device, 0, 0, false});
  device.totals.reserved += first.size_bytes;  // it is removed next
}

// What was mapped piece by piece may be unmapped at once, and the other way round.
void LiveState::remove_range(const FrameworkEvent& row) noexcept {
  const uint64_t begin = row.address;
  const uint64_t end = row.address + row.size_bytes;
  for (size_t i = segments_.size(); i-- > 0;) {
    const Segment whole = segments_[i];
    const uint64_t whole_end = whole.address + whole.size_bytes;
    if (whole.device != row.device || whole.address >= end || whole_end <= begin) continue;
    segments_.remove_unordered(i);
    devices_[row.device].totals.reserved -=
        std::min(end, whole_end) - std::max(begin, whole.address);
    Segment rest = whole;
    if (whole.address < begin) {
      rest.size_bytes = begin - whole.address;
      incomplete_ |= !segments_.add(rest);
    }
    if (whole_end > end) {
      rest.address = end;
      rest.size_bytes = whole_end - end;
      incomplete_ |= !segments_.add(rest);
    }
  }
}

// ---- the driver ---------------------------------------------------------------------------------

void LiveState::take(DriverEvent& row) noexcept {
  if (row.result != 0) return;
  // A thread may be suspended between reading the clock and recording. In a window that begins
  // after that time, the row must not come before the state.
  row.time_ns = std::max(row.time_ns, written_ns_ + 1);
  incomplete_ |= !held_driver_.add(row);
}

void LiveState::apply(const DriverEvent& e) noexcept {
  const auto put = [&](uint64_t key) {
    Object* const object = objects_.find_or_add(key);
    check(object);
    if (object != nullptr) *object = {key, e, 0, 0, 0, 0};
  };
  const auto remove = [&](uint64_t key) {
    if (Object* const object = objects_.find(key)) objects_.erase(object);
  };
  switch (e.operation) {
    case DriverOperation::kAllocate:
    case DriverOperation::kRegister:
      return put(address_key(e));
    case DriverOperation::kFree:
    case DriverOperation::kUnregister:
      return remove(address_key(e));
    case DriverOperation::kImport:
      return e.address != 0 ? put(address_key(e)) : apply_vmm(e);
    case DriverOperation::kModuleLoad:
      return put(key_of(Key::kModule, e.handle));
    case DriverOperation::kModuleUnload:
      return remove(key_of(Key::kModule, e.handle));
    case DriverOperation::kContextCreate:
      return put(key_of(Key::kContext, e.handle + static_cast<uint64_t>(e.device) + 1));
    case DriverOperation::kContextDestroy:
      remove(key_of(Key::kContext, e.handle + static_cast<uint64_t>(e.device) + 1));
      return end_context(e);
    default:
      return apply_vmm(e);
  }
}

// As in analysis/history/driver_model.h: memory ends with its context, pools with the last one.
void LiveState::end_context(const DriverEvent& e) noexcept {
  bool last = true;
  objects_.for_each([&](const Object& o) {
    if (is(Key::kContext, o.key) && o.row.device == e.device) last = false;
  });
  PageList<uint64_t> ended;
  objects_.for_each([&](const Object& o) {
    if (!is(Key::kAddress, o.key) && !is(Key::kModule, o.key)) return;
    const MemoryKind kind = o.row.kind;
    if (kind == MemoryKind::kVirtual) return;
    const bool pooled = kind == MemoryKind::kStreamOrdered || kind == MemoryKind::kGraph;
    const bool ends = pooled || o.row.context == 0 ? last && o.row.device == e.device
                                                   : o.row.context == e.context;
    if (ends) incomplete_ |= !ended.add(o.key);
  });
  for (const uint64_t key : ended) objects_.erase(objects_.find(key));
}

// Physical memory lives while it is referenced or mapped.
void LiveState::apply_vmm(const DriverEvent& e) noexcept {
  Object* const physical = objects_.find(key_of(Key::kHandle, e.handle));
  switch (e.operation) {
    case DriverOperation::kCreate:
    case DriverOperation::kImport: {
      Object* const made = objects_.find_or_add(key_of(Key::kHandle, e.handle));
      check(made);
      if (made != nullptr) *made = {made->key, e, 1, 0, 0, 0};
      return;
    }
    case DriverOperation::kRetain:
      if (physical != nullptr) ++physical->references;
      return;
    case DriverOperation::kRelease:
      if (physical != nullptr) --physical->references;
      return drop_if_unused(e.handle);
    case DriverOperation::kMap: {
      if (physical == nullptr || e.kind == MemoryKind::kMulticast) return;
      ++physical->mappings;
      Object* const mapping = objects_.find_or_add(key_of(Key::kMapping, e.address));
      check(mapping);
      if (mapping != nullptr) *mapping = {mapping->key, e, 0, 0, e.handle, 0};
      return;
    }
    case DriverOperation::kUnmap: {
      if (e.kind == MemoryKind::kMulticast) return;
      PageList<uint64_t> gone;
      objects_.for_each([&](const Object& o) {
        if (is(Key::kMapping, o.key) &&
            o.row.address - e.address < std::max<uint64_t>(e.size_bytes, 1)) {
          incomplete_ |= !gone.add(o.key);
        }
      });
      for (const uint64_t key : gone) {
        Object* const mapping = objects_.find(key);
        const uint64_t handle = mapping->handle;
        objects_.erase(mapping);
        if (Object* const of = objects_.find(key_of(Key::kHandle, handle))) --of->mappings;
        drop_if_unused(handle);
      }
      return;
    }
    default:
      return;
  }
}

void LiveState::drop_if_unused(uint64_t handle) noexcept {
  Object* const physical = objects_.find(key_of(Key::kHandle, handle));
  if (physical != nullptr && physical->references <= 0 && physical->mappings <= 0) {
    objects_.erase(physical);
  }
}

// ---- the rest -----------------------------------------------------------------------------------

void LiveState::take(Counter& row) noexcept {
  if (row.kind == CounterKind::kDeviceUsed && valid(row.device)) {
    devices_[row.device].totals.used = row.value;
  }
  if (is_sampled(row.kind)) return;
  const uint64_t key = (row.subject << 16) ^ (static_cast<uint64_t>(row.device + 1) << 8) ^
                       (static_cast<uint64_t>(row.kind) + 1);
  Latest* const latest = counters_.find_or_add(key);
  check(latest);
  if (latest != nullptr && latest->row.time_ns <= row.time_ns) latest->row = row;
  // Without the bridge the allocator's segments are not known, only their sum.
  if (row.kind == CounterKind::kTorchReserved && valid(row.device) &&
      !devices_[row.device].has_segments) {
    devices_[row.device].totals.reserved = row.value;
  }
}

void LiveState::take(Mark& row) noexcept {
  incomplete_ |= !held_marks_.add(row);
}

void LiveState::apply(const Mark& row) noexcept {
  const bool counts = row.phase != MarkPhase::kBegin;
  optimizer_steps_ += counts && row.kind == MarkKind::kOptimizerStep ? 1 : 0;
  iterations_ += counts && row.kind == MarkKind::kIteration ? 1 : 0;
  if (row.phase == MarkPhase::kBegin && open_ranges_.size() < kMostOpenRanges) {
    static_cast<void>(open_ranges_.add(row));
  }
  if (row.phase != MarkPhase::kEnd) return;
  for (size_t i = open_ranges_.size(); i-- > 0;) {
    if (!ends(row, open_ranges_[i])) continue;
    return open_ranges_.remove(i);
  }
}

// Losses are added up, of other messages the last one counts.
void LiveState::take(Health& row) noexcept {
  if (row.kind == HealthKind::kOverheadNs) return;
  Loss* const loss =
      losses_.find_or_add(static_cast<uint64_t>(row.detail) << 8 | static_cast<uint64_t>(row.kind));
  if (loss == nullptr) return;
  const bool adds = row.kind == HealthKind::kEventsDropped ||
                    row.kind == HealthKind::kRecordsDroppedByCupti ||
                    row.kind == HealthKind::kBytesUnwritten;
  const uint64_t before = adds ? loss->row.value : 0;
  loss->row = row;
  loss->row.value += before;
}

void LiveState::take(Communicator& row) noexcept {
  if (communicators_.size() < kMostCommunicators) static_cast<void>(communicators_.add(row));
}

// ---- writing ------------------------------------------------------------------------------------

uint64_t LiveState::block_count(int64_t device) const noexcept {
  uint64_t count = 0;
  blocks_.for_each([&](const Block& b) { count += b.row.device == device ? 1 : 0; });
  return count;
}

// Of the state of the driver. Where the framework's segments are those of the driver, they have to
// come before its blocks.
int64_t LiveState::driver_time() const noexcept {
  int64_t time = last_round_ns_;
  for (size_t i = 0; i < kStateDevices; ++i) {
    const Device& device = devices_[i];
    if (!device.totals.seen || device.has_segments) continue;
    const auto blocks = static_cast<int64_t>(block_count(static_cast<int64_t>(i)));
    time = std::min(time, device.complete_ns - blocks - 1);
  }
  return time;
}

void LiveState::write(TraceWriter& out, const StateNames& names) noexcept {
  const int64_t time_ns = driver_time();
  write_driver(out, time_ns);
  for (size_t i = 0; i < kStateDevices; ++i) {
    if (devices_[i].totals.seen || devices_[i].has_segments) {
      write_framework(out, names, static_cast<int64_t>(i));
    }
  }
  for (const FrameworkEvent& row : held_) out.append(row);
  for (const DriverEvent& row : held_driver_) out.append(row);
  for (const TensorTag& held : held_tags_) {
    TensorTag row = held;
    const Block* const block = blocks_.find(row.address);
    // Of a block in the state, which begins later.
    if (block != nullptr && row.time_ns >= block->row.time_ns) {
      row.time_ns = std::max(row.time_ns, devices_[block->row.device].complete_ns);
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
    if (row.kind != CounterKind::kProcessUsed || !valid(row.device)) return;
    listed_ns[row.device] = std::max(listed_ns[row.device], row.time_ns);
  });
  counters_.for_each([&](const Latest& latest) {
    Counter row = latest.row;
    if (row.kind == CounterKind::kProcessUsed && valid(row.device) &&
        row.time_ns != listed_ns[row.device]) {
      return;
    }
    row.time_ns = std::max(row.time_ns, time_ns);
    out.append(row);
  });
  written_ns_ = time_ns;
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
  const int64_t time_ns = devices_[device].complete_ns;
  const bool whole = devices_[device].has_segments;
  if (whole) {
    write_segments(out, device, time_ns);
    Mark mark{};
    mark.time_ns = time_ns;
    mark.device = device;
    mark.name = names.torch_state;
    mark.domain = names.tidemark;
    mark.phase = MarkPhase::kInstant;
    mark.kind = MarkKind::kUser;
    out.append(mark);
  }
  auto earlier = static_cast<int64_t>(whole ? 0 : block_count(device));
  blocks_.for_each([&](const Block& b) {
    if (b.row.device != device) return;
    if (whole) {
      const auto condition = b.pending ? BlockCondition::kPendingFree : BlockCondition::kAllocated;
      out.append(BlockState{time_ns, b.row.address, b.row.block_bytes, b.row.size_bytes, device,
                            b.row.stack, condition});
    } else {
      FrameworkEvent row = b.row;
      row.time_ns = time_ns - --earlier;
      out.append(row);
    }
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
    auto* const behind =
        std::upper_bound(states.begin(), states.end(), b.row.address,
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
