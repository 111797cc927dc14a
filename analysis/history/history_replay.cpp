#include "analysis/history/history_replay.h"

#include <algorithm>
#include <utility>

#include "analysis/history/minmax_pyramid.h"

namespace tidemark {

HistoryReplay::HistoryReplay(int64_t device, const AllocatorRules& rules,
                             std::span<const StackMeaning> meanings)
    : rules_(rules), meanings_(meanings), map_(rules) {
  model_.device = device;
}

void HistoryReplay::seed(const SeedState& state, int64_t time_ns) {
  for (const SeedSegment& s : state.segments()) {
    segment({s.address, s.size_bytes, s.stream, time_ns, meaning(s.stack).plain, s.pool,
             s.expandable, true, s.small},
            true);
  }
  for (const SeedBlock& b : state.blocks(rules_)) seed(b, time_ns);
  model_.seed_events = model_.event_count();
  if (model_.event_count() == 0) return;
  // All of it existed at once: the peaks are after the last seeded block.
  const auto all = [&](uint64_t bytes) {
    return bytes == 0 ? Peak{} : Peak{bytes, time_ns, model_.event_count() - 1};
  };
  model_.allocated_peak = all(last_.allocated);
  model_.requested_peak = all(last_.requested);
  model_.active_peak = all(last_.active);
  model_.reserved_peak = all(last_.reserved);
}

void HistoryReplay::apply(const FrameworkEvent& event) {
  ++model_.recorded_events;
  switch (event.action) {
    case FrameworkAction::kAlloc:
      birth(event, event.block_bytes);
      break;
    case FrameworkAction::kFreeRequested:
      release(event.address, event.time_ns);
      break;
    case FrameworkAction::kFreeCompleted:
      death(event.address, event.time_ns);
      break;
    case FrameworkAction::kSegmentAlloc:
    case FrameworkAction::kSegmentMap:
    case FrameworkAction::kSegmentFree:
    case FrameworkAction::kSegmentUnmap: {
      const bool expandable = event.action == FrameworkAction::kSegmentMap ||
                              event.action == FrameworkAction::kSegmentUnmap;
      const bool grows = event.action == FrameworkAction::kSegmentAlloc ||
                         event.action == FrameworkAction::kSegmentMap;
      segment({event.address, event.size_bytes, event.stream, event.time_ns,
               meaning(event.stack).plain, event.pool, expandable, false, false},
              grows);
      break;
    }
    case FrameworkAction::kOutOfMemory:
      model_.failures.push_back(
          {.time_ns = event.time_ns,
           .device = model_.device,
           .requested_bytes = event.size_bytes,
           .device_free_bytes = event.address,
           .stream = event.stream,
           .stack = meaning(event.stack).plain,
           .pool = event.pool,
           .event = model_.event_count() == 0 ? 0 : model_.event_count() - 1});
      break;
    case FrameworkAction::kNone:
    case FrameworkAction::kSnapshot:
      break;
  }
}

void HistoryReplay::seed(const SeedBlock& block, int64_t time_ns) {
  FrameworkEvent event{};
  event.time_ns = time_ns;
  event.address = block.address;
  event.size_bytes = block.requested_bytes;
  event.stack = block.stack;
  const uint32_t row = add(event, block.size_bytes, true);
  ++model_.seeded_blocks;
  model_.seeded_bytes += block.size_bytes;
  if (block.pending_free) {
    map_.request_free(block.address);
    model_.allocations.set_release(row, model_.event_count());
  }
  note(block.pending_free ? Change::kPending : Change::kBirth, row, time_ns);
}

void HistoryReplay::birth(const FrameworkEvent& event, uint64_t block_bytes) {
  // An occupied address means that a free is missing from the history: close the old allocation.
  if (const uint32_t index = map_.find(event.address);
      index != 0 && map_.block(index).use != BlockUse::kFree) {
    ++model_.anomalies;
    death(event.address, event.time_ns);
  }
  note(Change::kBirth, add(event, block_bytes, false), event.time_ns);
}

// Adds an allocation, which the next event is about.
uint32_t HistoryReplay::add(const FrameworkEvent& event, uint64_t block_bytes, bool seeded) {
  const auto row = static_cast<uint32_t>(model_.allocations.size());
  const uint32_t index = map_.allocate(event.address, event.size_bytes, block_bytes, row);
  Allocation a;
  a.address = event.address;
  a.block_bytes = map_.block(index).size;
  a.requested_bytes = event.size_bytes;
  a.stream = event.stream;
  a.birth = model_.event_count();
  const StackMeaning stack = meaning(event.stack);
  a.stack = stack.plain;
  a.nn_module = stack.nn_module;
  a.compile_context = event.compile_context;
  a.metadata = event.metadata;
  a.pool = event.pool;
  a.category = event.category;
  a.seeded = seeded;
  model_.allocations.add(a);
  return row;
}

void HistoryReplay::release(uint64_t address, int64_t time_ns) {
  const uint32_t index = map_.request_free(address);
  if (index == 0) {
    ++model_.anomalies;
    return;
  }
  const uint32_t row = map_.block(index).owner;
  model_.allocations.set_release(row, model_.event_count());
  note(Change::kRelease, row, time_ns);
}

void HistoryReplay::death(uint64_t address, int64_t time_ns) {
  const uint32_t index = map_.find(address);
  if (index == 0 || map_.block(index).use == BlockUse::kFree) {
    ++model_.anomalies;
    return;
  }
  if (map_.block(index).use == BlockUse::kAllocated) release(address, time_ns);
  const uint32_t row = map_.block(index).owner;
  map_.complete_free(address);
  model_.allocations.set_death(row, model_.event_count());
  note(Change::kDeath, row, time_ns);
}

void HistoryReplay::segment(const SegmentChange& change, bool grows) {
  const uint64_t before = map_.totals().reserved;
  if (grows) {
    map_.add_segment(change.address, change.size_bytes, change.expandable);
  } else {
    map_.remove_range(change.address, change.size_bytes);
  }
  const uint64_t after = map_.totals().reserved;
  if (before == after) return;  // counted by the map as an anomaly
  SegmentChange applied = change;
  applied.size_bytes = grows ? after - before : before - after;
  applied.grows = grows;
  applied.event = model_.event_count();
  const auto row = static_cast<uint32_t>(model_.segment_changes.size());
  model_.segment_changes.push_back(applied);
  note(grows ? Change::kGrow : Change::kShrink, row, change.time_ns);
}

void HistoryReplay::note(Change change, uint32_t subject, int64_t time_ns) {
  const bool of_segment = change == Change::kGrow || change == Change::kShrink;
  const bool of_new_block = change == Change::kBirth || change == Change::kPending;
  states_.before_event(
      model_, static_cast<uint32_t>(model_.allocations.size()) - (of_new_block ? 1U : 0U),
      static_cast<uint32_t>(model_.segment_changes.size()) - (of_segment ? 1U : 0U));
  if (model_.event_count() % AllocationHistory::kKeyframe == 0) {
    if (model_.event_count() != 0) model_.extremes.push_back(leaf_);
    leaf_ = Extremes::nothing();
    model_.keyframes.push_back(last_);
  }
  // Times may step back a little (clock adjustments); the order of events is authoritative.
  if (!model_.time_ns.empty()) time_ns = std::max(time_ns, model_.time_ns.back());
  if (model_.event_count() % AllocationHistory::kCell == 0) {
    model_.cells.push_back({time_ns, {last_.allocated, last_.requested, last_.reserved}});
  }
  model_.time_ns.push_back(time_ns);
  model_.subject.push_back(subject);
  model_.change.push_back(change);
  model_.apply(model_.event_count() - 1, last_);
  leaf_.include(CurveValues{last_.allocated, last_.requested, last_.reserved});
  note_peaks(change, time_ns);
}

void HistoryReplay::note_peaks(Change change, int64_t time_ns) {
  const uint32_t event = model_.event_count() - 1;
  const auto raise = [&](Peak& peak, uint64_t bytes) {
    if (bytes > peak.bytes) peak = {bytes, time_ns, event};
  };
  if (change == Change::kBirth) {
    raise(model_.allocated_peak, last_.allocated);
    raise(model_.requested_peak, last_.requested);
    raise(model_.active_peak, last_.active);
  } else if (change == Change::kGrow) {
    raise(model_.reserved_peak, last_.reserved);
  }
}

AllocationHistory HistoryReplay::finish() && {
  model_.anomalies += map_.anomalies();
  if (model_.event_count() != 0) model_.extremes.push_back(leaf_);
  add_upper_levels(model_);
  model_.allocations.finish(model_.time_ns.data());
  return std::move(model_);
}

}  // namespace tidemark
