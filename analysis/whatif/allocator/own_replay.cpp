#include "analysis/whatif/allocator/own_replay.h"

#include <algorithm>

namespace tidemark {

uint64_t RecordedAddresses::allocate(uint64_t bytes) {
  if (!expected_.empty() && expected_.front().bytes == bytes) {
    const uint64_t address = expected_.front().address;
    expected_.pop_front();
    return address;
  }
  const uint64_t address = unexpected_;
  unexpected_ += bytes;
  return address;
}

uint64_t RecordedAddresses::reserve(uint64_t bytes) {
  if (!expected_.empty()) return expected_.front().address;
  const uint64_t address = unexpected_;
  unexpected_ += bytes;
  return address;
}

OwnReplay::OwnReplay(const AllocationHistory& model, const AllocatorSettings& settings,
                     const AllocatorLimits& limits)
    : model_(model),
      allocator_(settings, limits, addresses_),
      settings_(settings),
      collects_garbage_(settings.gc_threshold > 0 && limits.allowed != 0) {
  log_.events = model.recorded_events;
  log_.blocks.reserve(model.allocations.size() + model.failures.size());
  log_.requests.reserve(model.change.size());
  private_pools_ = std::any_of(model.segment_changes.begin(), model.segment_changes.end(),
                               [](const SegmentChange& s) { return s.pool != 0; });
}

const SegmentChange* OwnReplay::segment_at(uint64_t address) const {
  auto it = segments_.upper_bound(address);
  if (it == segments_.begin()) return nullptr;
  --it;
  return address - it->first < it->second.size_bytes ? &it->second : nullptr;
}

RequestedBlock OwnReplay::block_of(const Allocation& a) const {
  // Rows from before the bridge was attached have the block size, not the requested size.
  RequestedBlock block{a.asked_bytes(), a.stream, a.pool};
  if (!a.seeded && (a.pool != 0 || !private_pools_)) return block;
  if (const SegmentChange* segment = segment_at(a.address)) {
    block.pool = segment->pool;
    if (a.seeded) block.stream = segment->stream;
  }
  return block;
}

void OwnReplay::run(bool stop_at_mismatch) {
  for (const SegmentChange& change : model_.segment_changes) {
    if (change.seeded) learn_segment(change);
  }
  log_.blocks.resize(model_.allocations.size());  // filled as they are requested
  add_existing();
  size_t failure = 0;
  const auto& failures = model_.failures;
  for (uint32_t event = 0; event < model_.event_count(); ++event) {
    step(event);
    if (stop_at_mismatch && match_.errors() != 0) return;
    while (failure < failures.size() && failures[failure].event <= event) fail(failures[failure++]);
  }
  while (failure < failures.size()) fail(failures[failure++]);
  settle();
  if (model_.seeded_blocks != 0) log_.segments.clear();
}

void OwnReplay::learn_segment(const SegmentChange& change) {
  segments_[change.address] = change;
}

// Returns the change with the pool of its segment.
SegmentChange OwnReplay::forget_segment(const SegmentChange& change) {
  SegmentChange gone = change;
  if (const SegmentChange* known = segment_at(change.address)) gone.pool = known->pool;
  if (!change.expandable) segments_.erase(change.address);
  return gone;
}

void OwnReplay::step(uint32_t event) {
  const uint32_t row = model_.subject[event];
  switch (model_.change[event]) {
    case Change::kGrow: {
      const SegmentChange& change = model_.segment_changes[row];
      if (change.seeded) break;
      learn_segment(change);
      recorded_reserved_ += change.size_bytes;
      addresses_.expect(change.address, change.size_bytes);
      if (!change.expandable) log_.segments.push_back({change.address, change.size_bytes});
      break;
    }
    case Change::kShrink:
      shrinks_.push_back(forget_segment(model_.segment_changes[row]));
      recorded_reserved_ -= model_.segment_changes[row].size_bytes;
      break;
    case Change::kBirth:
      if (!model_.allocations.seeded(row)) birth(event, row);
      break;
    case Change::kPending:
    case Change::kRelease:
      settle();
      if (model_.allocations.death(row) == event + 1) break;  // one request: see kDeath
      note(RequestKind::kRelease, row);
      allocator_.release(row);
      break;
    case Change::kDeath:
      death(event, row);
      break;
  }
}

void OwnReplay::death(uint32_t event, uint32_t row) {
  if (model_.allocations.release(row) + 1 == event) {
    note(RequestKind::kFree, row);
    allocator_.complete(row);
    return;
  }
  if (!shrinks_.empty()) settle();
  waiting_.push_back(row);
}

void OwnReplay::complete_waiting() {
  for (const uint32_t row : waiting_) {
    note(RequestKind::kComplete, row);
    allocator_.complete(row);
  }
  waiting_.clear();
}

void OwnReplay::empty_cache() {
  for (const SegmentChange& change : shrinks_) {
    if (change.pool == 0) continue;
    note(RequestKind::kRetirePool, change.pool);
    allocator_.retire_pool(change.pool);
  }
  note(RequestKind::kEmptyCache, 0);
  allocator_.empty_cache();
  shrinks_.clear();
}

void OwnReplay::settle() {
  complete_waiting();
  if (shrinks_.empty()) return;
  if (match_.errors() == 0) ++match_.emptied_needlessly;  // no later request caused it
  empty_cache();
}

// Whether the request itself made the allocator free the segments whose frees were recorded before
// it. A retry synchronizes all streams only after no free block was found, so the completions that
// it caused must be applied after the search; those before a garbage collection must be applied
// before it.
bool OwnReplay::explained(const RequestedBlock& wanted) {
  judge_emptying(wanted);
  if (!collects_garbage_ &&
      allocator_.would_free_segments(wanted.bytes, wanted.stream, wanted.pool)) {
    return true;
  }
  complete_waiting();
  return allocator_.would_free_segments(wanted.bytes, wanted.stream, wanted.pool);
}

void OwnReplay::birth(uint32_t event, uint32_t row) {
  const RequestedBlock wanted = log_.blocks[row] = block_of(model_.allocations[row]);
  if (shrinks_.empty()) {
    complete_waiting();
  } else if (!explained(wanted)) {
    empty_cache_before(event);
  }
  shrinks_.clear();
  note(RequestKind::kAllocate, row);
  const bool served = allocator_.allocate(row, wanted.bytes, wanted.stream, wanted.pool);
  complete_waiting();
  addresses_.forget();
  compare(event, row, served);
}

void OwnReplay::judge_emptying(const RequestedBlock& wanted) {
  if (match_.errors() != 0) return;  // the model's cache already differs
  if (allocator_.has_free(wanted.bytes, wanted.stream, wanted.pool)) {
    ++match_.emptied_needlessly;
    return;
  }
  ++match_.emptied_before_need;
  const uint64_t more = settings_.segment_bytes(settings_.rules.round(wanted.bytes));
  match_.lowest_need = std::min(match_.lowest_need, allocator_.totals().reserved + more);
}

// With garbage collection, segments freed while others stayed were collected: the limit is too high
// for the model to reproduce that.
void OwnReplay::empty_cache_before(uint32_t event) {
  uint64_t recorded = 0;
  for (const SegmentChange& change : shrinks_) recorded += change.size_bytes;
  const uint64_t before = allocator_.totals().reserved;
  empty_cache();
  if (settings_.gc_threshold == 0 || before - allocator_.totals().reserved == recorded) return;
  if (match_.errors() == 0) {
    match_.first_mismatch = event;
    match_.first_reserves_more = true;
  }
  ++match_.reserved_mismatches;
}

void OwnReplay::compare(uint32_t event, uint32_t row, bool served) {
  const Allocation& a = model_.allocations[row];
  const uint64_t reserved = allocator_.totals().reserved;
  const bool moved = !served || allocator_.address_of(row) != a.address;
  const bool reserved_differs = reserved != recorded_reserved_;
  if ((moved || reserved_differs) && match_.errors() == 0) {
    match_.first_mismatch = event;
    match_.first_mismatch_ns = a.birth_ns();
    match_.first_reserves_more = served && reserved >= recorded_reserved_;
  }
  ++match_.blocks;
  match_.misplaced += moved ? 1 : 0;
  match_.reserved_mismatches += reserved_differs ? 1 : 0;
}

void OwnReplay::fail(const FailedAllocation& failure) {
  const auto id = static_cast<uint32_t>(log_.blocks.size());
  const RequestedBlock wanted{failure.requested_bytes, failure.stream, failure.pool};
  log_.blocks.push_back(wanted);
  log_.failed_ns.push_back(failure.time_ns);
  note(RequestKind::kFail, id);
  const bool served = allocator_.allocate(id, wanted.bytes, wanted.stream, wanted.pool);
  complete_waiting();
  if (served) {
    allocator_.complete(id);
    if (!shrinks_.empty()) allocator_.empty_cache();  // as the recorded failure did
  }
  shrinks_.clear();
  addresses_.forget();
}

// Segments with their blocks; adjacent mapped ranges are one.
std::vector<ExistingSegment> OwnReplay::existing_segments() const {
  std::vector<ExistingSegment> all;
  for (const auto& [address, s] : segments_) {
    if (s.expandable && !all.empty()) {
      ExistingSegment& last = all.back();
      if (last.expandable && last.address + last.size == address && last.stream == s.stream &&
          last.pool == s.pool && last.small == s.small) {
        last.size += s.size_bytes;
        continue;
      }
    }
    const bool small = s.expandable ? s.small : s.size_bytes == kSmallSegmentBytes;
    all.push_back({address, s.size_bytes, s.stream, s.pool, small, s.expandable, {}});
  }
  return all;
}

void OwnReplay::add_existing() {
  std::vector<ExistingSegment> all = existing_segments();
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < model_.allocations.size(); ++row) {
    if (!model_.allocations.seeded(row)) break;  // they are the first ones
    rows.push_back(row);
    log_.blocks[row] = block_of(model_.allocations[row]);
  }
  std::sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
    return model_.allocations[a].address < model_.allocations[b].address;
  });
  for (const uint32_t row : rows) {
    const Allocation& a = model_.allocations[row];
    auto home = std::upper_bound(
        all.begin(), all.end(), a.address,
        [](uint64_t address, const ExistingSegment& s) { return address < s.address; });
    if (home == all.begin()) continue;
    --home;
    const uint64_t last_end = home->blocks.empty()
                                  ? home->address
                                  : home->blocks.back().address + home->blocks.back().size;
    const uint64_t end = home->address + home->size;
    if (a.address < last_end || a.address >= end || a.block_bytes > end - a.address) continue;
    home->blocks.push_back({row, a.address, a.block_bytes, a.requested_bytes});
    note(RequestKind::kAllocate, row);
  }
  for (const ExistingSegment& segment : all) {
    recorded_reserved_ += segment.size;
    allocator_.add_existing(segment);
  }
}

}  // namespace tidemark
