#include "analysis/history/history_replay.h"

#include <algorithm>
#include <utility>

#include "analysis/history/minmax_pyramid.h"

namespace tidemark {

HistoryReplay::HistoryReplay(int64_t device, const AllocatorRules& rules,
                             std::span<const StackMeaning> meanings, HistoryThread* thread)
    : rules_(rules), meanings_(meanings), map_(rules), thread_(thread) {
  builder_.model().device = device;
}

void HistoryReplay::seed(const SeedState& state, int64_t time_ns) {
  const std::vector<SeedSegment> segments = state.segments();
  for (const SeedSegment& s : segments) {
    segment({s.address, s.size_bytes, s.stream, time_ns, meaning(s.stack).plain, s.pool,
             s.expandable, true, s.small},
            true);
  }
  // Both are sorted by address: what is free before a block begins where its range begins, or
  // behind the block before it.
  auto next = segments.begin();
  uint64_t free_from = 0;
  for (const SeedBlock& b : state.blocks(rules_)) {
    for (; next != segments.end() && next->address <= b.address; ++next) {
      const bool joins = next != segments.begin() && next->expandable && (next - 1)->expandable &&
                         (next - 1)->address + (next - 1)->size_bytes == next->address;
      if (!joins) free_from = next->address;
    }
    map_.split_free(free_from, b.address);
    seed(b, time_ns);
    free_from = b.address + b.size_bytes;
  }
  pass_on_all();
  AllocationHistory& model = builder_.model();
  model.seed_events = events_;
  if (events_ == 0) return;
  // All of it existed at once: the peaks are after the last seeded block.
  const auto all = [&](uint64_t bytes) {
    return bytes == 0 ? Peak{} : Peak{bytes, time_ns, events_ - 1};
  };
  const MemoryTotals& totals = map_.totals();
  model.allocated_peak = all(totals.allocated);
  model.requested_peak = all(totals.requested);
  model.active_peak = all(totals.active);
  model.reserved_peak = all(totals.reserved);
}

void HistoryReplay::apply(const FrameworkEvent& event, bool seeded) {
  ++recorded_events_;
  switch (event.action) {
    case FrameworkAction::kAlloc:
      birth(event, seeded);
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
               meaning(event.stack).plain, event.pool, expandable, seeded, false},
              grows);
      break;
    }
    case FrameworkAction::kOutOfMemory:
      builder_.model().failures.push_back({.time_ns = event.time_ns,
                                           .device = builder_.model().device,
                                           .requested_bytes = event.size_bytes,
                                           .device_free_bytes = event.address,
                                           .stream = event.stream,
                                           .stack = meaning(event.stack).plain,
                                           .pool = event.pool,
                                           .event = events_ == 0 ? 0 : events_ - 1});
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
  ++builder_.model().seeded_blocks;
  builder_.model().seeded_bytes += block.size_bytes;
  if (block.pending_free) map_.request_free(block.address);
  note(block.pending_free ? Change::kPending : Change::kBirth, row, time_ns);
}

void HistoryReplay::birth(const FrameworkEvent& event, bool seeded) {
  // An occupied address means that a free is missing from the history: close the old allocation.
  if (const uint32_t index = map_.find(event.address);
      index != 0 && map_.block(index).use != BlockUse::kFree) {
    ++anomalies_;
    death(event.address, event.time_ns);
  }
  note(Change::kBirth, add(event, event.block_bytes, seeded), event.time_ns);
}

// Adds an allocation, which the next event is about.
uint32_t HistoryReplay::add(const FrameworkEvent& event, uint64_t block_bytes, bool seeded) {
  const uint32_t row = allocations_++;
  const uint32_t index = map_.allocate(event.address, event.size_bytes, block_bytes, row);
  Allocation& a = changes_.born.emplace_back();
  a.address = event.address;
  a.block_bytes = map_.block(index).size;
  a.requested_bytes = event.size_bytes;
  a.stream = event.stream;
  a.birth = events_;
  const StackMeaning stack = meaning(event.stack);
  a.stack = stack.plain;
  a.nn_module = stack.nn_module;
  a.compile_context = event.compile_context;
  a.metadata = event.metadata;
  a.pool = event.pool;
  a.category = event.category;
  a.seeded = seeded;
  return row;
}

void HistoryReplay::release(uint64_t address, int64_t time_ns) {
  const uint32_t index = map_.request_free(address);
  if (index == 0) {
    ++anomalies_;
    return;
  }
  note(Change::kRelease, map_.block(index).owner, time_ns);
}

void HistoryReplay::death(uint64_t address, int64_t time_ns) {
  const uint32_t index = map_.find(address);
  if (index == 0 || map_.block(index).use == BlockUse::kFree) {
    ++anomalies_;
    return;
  }
  if (map_.block(index).use == BlockUse::kAllocated) release(address, time_ns);
  const uint32_t row = map_.block(index).owner;
  map_.complete_free(address);
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
  applied.event = events_;
  changes_.segments.push_back(applied);
  note(grows ? Change::kGrow : Change::kShrink, segment_changes_++, change.time_ns);
}

void HistoryReplay::pass_on() {
  if (thread_ != nullptr) {
    thread_->push(builder_, changes_);
  } else {
    builder_.add(changes_);
    changes_.clear();
  }
}

void HistoryReplay::pass_on_all() {
  pass_on();
  if (thread_ != nullptr) thread_->wait();
}

AllocationHistory HistoryReplay::finish() && {
  pass_on_all();
  AllocationHistory& model = builder_.model();
  model.recorded_events = recorded_events_;
  model.anomalies = anomalies_ + map_.anomalies();
  return std::move(builder_).finish();
}

void HistoryBuilder::add(const HistoryChanges& changes) {
  constexpr size_t kAhead = 12;
  auto allocations = static_cast<uint32_t>(model_.allocations.size());  // before the event
  model_.allocations.add(changes.born);
  auto segment = changes.segments.begin();
  for (size_t i = 0; i < changes.events.size(); ++i) {
    const HistoryChanges::Event& e = changes.events[i];
    if (i + kAhead < changes.events.size()) {
      model_.allocations.prefetch_end(changes.events[i + kAhead].subject);
    }
    const uint32_t event = model_.event_count();
    states_.before_event(model_, allocations, static_cast<uint32_t>(model_.segment_changes.size()));
    switch (e.change) {
      case Change::kBirth:
      case Change::kPending:
        ++allocations;
        if (e.change == Change::kPending) model_.allocations.set_release(e.subject, event);
        break;
      case Change::kRelease:
        model_.allocations.set_release(e.subject, event);
        break;
      case Change::kDeath:
        model_.allocations.set_death(e.subject, event);
        break;
      case Change::kGrow:
      case Change::kShrink:
        model_.segment_changes.push_back(*segment++);
        break;
    }
    add(e);
  }
}

void HistoryBuilder::add(const HistoryChanges::Event& e) {
  const uint32_t event = model_.event_count();
  if (event % AllocationHistory::kKeyframe == 0) {
    if (event != 0) model_.extremes.push_back(leaf_);
    leaf_ = Extremes::nothing();
    model_.keyframes.push_back(last_);
  }
  // Times may step back a little (clock adjustments); the order of events is authoritative.
  const int64_t time_ns =
      model_.time_ns.empty() ? e.time_ns : std::max(e.time_ns, model_.time_ns.back());
  if (event % AllocationHistory::kCell == 0) {
    model_.cells.push_back({time_ns, {last_.allocated, last_.requested, last_.reserved}});
  }
  model_.time_ns.push_back(time_ns);
  model_.subject.push_back(e.subject);
  model_.change.push_back(e.change);
  last_ = e.totals;
  leaf_.include(CurveValues{last_.allocated, last_.requested, last_.reserved});
  const auto raise = [&](Peak& peak, uint64_t bytes) {
    if (bytes > peak.bytes) peak = {bytes, time_ns, event};
  };
  if (e.change == Change::kBirth) {
    raise(model_.allocated_peak, last_.allocated);
    raise(model_.requested_peak, last_.requested);
    raise(model_.active_peak, last_.active);
  } else if (e.change == Change::kGrow) {
    raise(model_.reserved_peak, last_.reserved);
  }
}

AllocationHistory HistoryBuilder::finish() && {
  if (model_.event_count() != 0) model_.extremes.push_back(leaf_);
  add_upper_levels(model_);
  model_.allocations.finish(model_.time_ns.data());
  return std::move(model_);
}

HistoryThread::HistoryThread() : thread_([this] { run(); }) {}

HistoryThread::~HistoryThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HistoryThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || stored_ != pushed_; });
    if (stop_) return;
    Slot& slot = slots_[stored_ % kSlots];
    lock.unlock();
    std::exception_ptr failure;
    try {
      slot.to->add(slot.changes);
    } catch (...) {
      failure = std::current_exception();
    }
    slot.changes.clear();
    lock.lock();
    ++stored_;
    if (failure != nullptr && failure_ == nullptr) failure_ = failure;
    changed_.notify_all();
  }
}

void HistoryThread::push(HistoryBuilder& to, HistoryChanges& changes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pushed_ - stored_ < kSlots; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  Slot& slot = slots_[pushed_ % kSlots];
  slot.to = &to;
  std::swap(slot.changes, changes);
  ++pushed_;
  changed_.notify_all();
}

void HistoryThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stored_ == pushed_; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

}  // namespace tidemark
