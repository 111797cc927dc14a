#include "analysis/whatif/history_window.h"

#include <algorithm>

#include "analysis/history/history_replay.h"
#include "analysis/history/memory_state.h"
#include "analysis/whatif/allocator/settings.h"

namespace tidemark {

namespace {

SegmentState segment_state(const SegmentRange& range, const SegmentChange& made_by) {
  SegmentState s{};
  s.address = range.address;
  s.size_bytes = range.size_bytes;
  s.stream = range.stream;
  s.pool = made_by.pool;
  s.stack = made_by.stack;
  // Mapped ranges for small requests grow by less than those for large ones.
  const bool small = made_by.seeded ? made_by.small : made_by.size_bytes < kLargeSegmentBytes;
  s.flags = (range.expandable ? kSegmentExpandable : 0U) | (small ? kSegmentSmall : 0U);
  return s;
}

BlockState block_state(const Allocation& a, uint32_t first) {
  BlockState b{};
  b.address = a.address;
  b.size_bytes = a.block_bytes;
  b.requested_bytes = a.requested_bytes;
  b.stack = a.stack;
  b.condition = a.release < first ? BlockCondition::kPendingFree : BlockCondition::kAllocated;
  return b;
}

SeedState seed_before(const AllocationHistory& whole, uint32_t first) {
  SeedState seed;
  const MemoryState before = state_after(whole, first - 1);
  for (const SegmentRange& range : before.segments) {
    seed.add(segment_state(range, whole.segment_changes[range.change]));
  }
  for (const uint32_t row : before.live) seed.add(block_state(whole.allocations[row], first));
  return seed;
}

FrameworkAction segment_action(const SegmentChange& c) {
  if (c.expandable) return c.grows ? FrameworkAction::kSegmentMap : FrameworkAction::kSegmentUnmap;
  return c.grows ? FrameworkAction::kSegmentAlloc : FrameworkAction::kSegmentFree;
}

FrameworkEvent event_of(const AllocationHistory& whole, uint32_t event) {
  FrameworkEvent e{};
  const uint32_t row = whole.subject[event];
  const Change change = whole.change[event];
  if (change == Change::kGrow || change == Change::kShrink) {
    const SegmentChange& c = whole.segment_changes[row];
    e.action = segment_action(c);
    e.address = c.address;
    e.size_bytes = c.size_bytes;
    e.stream = c.stream;
    e.stack = c.stack;
    e.pool = c.pool;
  } else {
    const Allocation a = whole.allocations[row];
    e.action = change == Change::kBirth     ? FrameworkAction::kAlloc
               : change == Change::kRelease ? FrameworkAction::kFreeRequested
                                            : FrameworkAction::kFreeCompleted;
    e.address = a.address;
    e.size_bytes = a.requested_bytes;
    e.block_bytes = a.block_bytes;
    e.stream = a.stream;
    e.stack = a.stack;
    e.compile_context = a.compile_context;
    e.metadata = a.metadata;
    e.pool = a.pool;
    e.category = a.category;
  }
  e.time_ns = whole.time_ns[event];
  return e;
}

FrameworkEvent event_of(const FailedAllocation& f) {
  FrameworkEvent e{};
  e.action = FrameworkAction::kOutOfMemory;
  e.time_ns = f.time_ns;
  e.size_bytes = f.requested_bytes;
  e.address = f.device_free_bytes;
  e.stack = f.stack;
  e.stream = f.stream;
  e.pool = f.pool;
  return e;
}

}  // namespace

EventWindow window_around(const AllocationHistory& model, uint32_t event, uint32_t most) {
  const uint32_t count = model.event_count();
  if (count <= most) return {0, count};
  const uint32_t end = std::max(most, std::min(count, event + most / 4));
  // Search only the first half, so that enough events remain before `event`.
  const uint32_t earliest = end - most;
  uint32_t first = earliest;
  MemoryTotals totals = earliest == 0 ? MemoryTotals{} : model.totals_after(earliest - 1);
  uint64_t least = totals.allocated;
  for (uint32_t e = earliest; e < earliest + most / 2 && e < event; ++e) {
    model.apply(e, totals);
    if (totals.allocated >= least) continue;
    least = totals.allocated;
    first = e + 1;
  }
  return {first, end};
}

AllocationHistory history_window(const AllocationHistory& whole, const AllocatorRules& rules,
                                 EventWindow window) {
  HistoryReplay replay(whole.device, rules);
  window.first = std::max(window.first, std::min(whole.seed_events, window.end));
  if (window.first != 0) {
    replay.seed(seed_before(whole, window.first), whole.time_ns[window.first - 1]);
  }
  auto failure =
      std::lower_bound(whole.failures.begin(), whole.failures.end(), window.first,
                       [](const FailedAllocation& f, uint32_t first) { return f.event < first; });
  for (uint32_t e = window.first; e < window.end; ++e) {
    replay.apply(event_of(whole, e));
    for (; failure != whole.failures.end() && failure->event == e; ++failure) {
      replay.apply(event_of(*failure));
    }
  }
  return std::move(replay).finish();
}

}  // namespace tidemark
