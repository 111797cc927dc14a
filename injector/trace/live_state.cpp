#include "injector/trace/live_state.h"

#include <algorithm>

#include "injector/trace/live_state_rows.h"

namespace tidemark::injector {

namespace {

constexpr size_t kMostOpenRanges = 4096;
constexpr size_t kMostCommunicators = 4096;
constexpr size_t kMostHeldRows = size_t{1} << 20;  // while a state is read

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
  const bool reads_on = round_ns_ <= state_due_ns_ && held_.size() < kMostHeldRows;
  if (state_due_ns_ != 0 && reads_on) return;  // its rows are older than those held
  state_due_ns_ = 0;
  if (++rounds_since_state_ < kSettleRounds) return;  // its rows are older than those held
  rounds_since_state_ = std::min(rounds_since_state_, kSettleRounds);
  take_due(
      held_driver_, [this](const DriverEvent& r) { return r.time_ns <= last_round_ns_; },
      [this](const DriverEvent& r) { apply(r); });
  take_due(
      held_,
      [this](const FrameworkEvent& r) {
        return r.time_ns <= std::min(devices_[r.device].complete_ns, last_round_ns_);
      },
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
  return valid_device(row.device) ? std::min(devices_[row.device].complete_ns, last_round_ns_)
                                  : last_round_ns_;
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
    DeviceTotals& now = device.totals;
    now.lowest = now.highest = now.allocated;
    now.highest_reserved = now.reserved;
    now.highest_used = now.used;
    now.lowest_driver = now.highest_driver = now.driver;
  }
}

uint64_t LiveState::memory_bytes() const noexcept {
  return blocks_.memory_bytes() + objects_.memory_bytes() + counters_.memory_bytes() +
         held_.memory_bytes() + held_driver_.memory_bytes() + segments_.memory_bytes();
}

// ---- the framework ------------------------------------------------------------------------------

void LiveState::hold(const FrameworkEvent& row) noexcept {
  used_memory_ = true;
  if (!held_.add(row)) incomplete_ = true;
}

void LiveState::take(FrameworkEvent& row) noexcept {
  if (!valid_device(row.device)) return;
  put_behind_state(row);
  Device& device = devices_[row.device];
  device.collected_ns = std::max(device.collected_ns, row.time_ns);
  hold(row);
}

// The state that a recording of a running process began with, as the events that led to it.
void LiveState::take(SegmentState& row) noexcept {
  if (!valid_device(row.device)) return;
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
  if (!valid_device(row.device) || !held) return;
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
  put_behind_state(row);
  if (valid_device(row.device) || row.device == -1) incomplete_ |= !held_tags_.add(row);
}

void LiveState::note_totals(DeviceTotals& totals) noexcept {
  totals.lowest = std::min(totals.lowest, totals.allocated);
  totals.highest = std::max(totals.highest, totals.allocated);
  totals.highest_reserved = std::max(totals.highest_reserved, totals.reserved);
  totals.lowest_driver = std::min(totals.lowest_driver, totals.driver);
  totals.highest_driver = std::max(totals.highest_driver, totals.driver);
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
      totals.seen = true;
      return note_totals(totals);
    }
    case FrameworkAction::kFreeRequested:
    case FrameworkAction::kFreeCompleted: {
      Block* const block = blocks_.find(row.address);
      if (block == nullptr) return;
      if (!block->pending) totals.allocated -= size_of(block->row);
      block->pending = true;
      if (row.action == FrameworkAction::kFreeCompleted) blocks_.erase(block);
      totals.seen = true;
      return note_totals(totals);
    }
    case FrameworkAction::kSegmentAlloc:
    case FrameworkAction::kSegmentMap:
      if (!device.has_segments) find_earlier_segments(row);
      remove_range(row);
      totals.reserved += row.size_bytes;
      incomplete_ |= !segments_.add({row.address, row.size_bytes, row.stream, row.device, row.pool,
                                     row.stack, row.action == FrameworkAction::kSegmentMap});
      return note_totals(totals);
    case FrameworkAction::kSegmentFree:
    case FrameworkAction::kSegmentUnmap:
      if (!device.has_segments) find_earlier_segments(row);
      return remove_range(row);
    case FrameworkAction::kOutOfMemory:
      ++totals.failed;
      return;
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

// ---- the rest -----------------------------------------------------------------------------------

void LiveState::take(Counter& row) noexcept {
  if (row.kind == CounterKind::kDeviceUsed && valid_device(row.device)) {
    DeviceTotals& totals = devices_[row.device].totals;
    totals.used = row.value;
    totals.highest_used = std::max(totals.highest_used, row.value);
  }
  if (is_sampled(row.kind)) return;
  const uint64_t key = (row.subject << 16) ^ (static_cast<uint64_t>(row.device + 1) << 8) ^
                       (static_cast<uint64_t>(row.kind) + 1);
  Latest* const latest = counters_.find_or_add(key);
  check(latest);
  if (latest != nullptr && latest->row.time_ns <= row.time_ns) latest->row = row;
  // Without the bridge the allocator's segments are not known, only their sum.
  if (row.kind == CounterKind::kTorchReserved && valid_device(row.device) &&
      !devices_[row.device].has_segments) {
    devices_[row.device].totals.reserved = row.value;
    note_totals(devices_[row.device].totals);
  }
}

void LiveState::take(Mark& row) noexcept {
  put_behind_state(row);
  // The thread that reads the state makes both marks, and its rows are collected in order.
  if (row.name != 0 && row.name == state_mark_) state_due_ns_ = row.time_ns + kStatePatienceNs;
  if (row.name != 0 && row.name == state_read_mark_) state_due_ns_ = 0;
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

}  // namespace tidemark::injector
