#include "analysis/whatif/allocator/caching_allocator.h"

#include <algorithm>

namespace tidemark {

namespace {

constexpr uint32_t kNoList = UINT32_MAX;

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, const AllocatorLimits& limits,
                                   SegmentAddresses& addresses)
    : settings_(settings),
      limits_(limits),
      addresses_(addresses),
      tie_break_(settings.version.tie_break()) {
  pools_.push_back({.pool = 0, .small = false, .lists = {}});
  pools_.push_back({.pool = 0, .small = true, .lists = {}});
}

uint32_t CachingAllocator::find_list(uint64_t stream, uint32_t pool, bool small) const {
  uint32_t& last = last_list_[small ? 1 : 0];
  if (last < lists_.size()) {
    const BlockPool& p = pools_[lists_[last].pool];
    if (lists_[last].stream == stream && p.pool == pool && p.small == small) return last;
  }
  const auto known = list_of_.find({stream, pool, small});
  return known != list_of_.end() ? last = known->second : kNoList;
}

uint32_t CachingAllocator::list_for(uint64_t stream, uint32_t pool, bool small) {
  if (const uint32_t known = find_list(stream, pool, small); known != kNoList) return known;
  auto home = std::find_if(pools_.begin(), pools_.end(),
                           [&](const BlockPool& p) { return p.pool == pool && p.small == small; });
  if (home == pools_.end()) {
    home = pools_.insert(pools_.end(), {.pool = pool, .small = small, .lists = {}});
  }
  const auto index = static_cast<uint32_t>(lists_.size());
  lists_.push_back({stream, static_cast<uint32_t>(home - pools_.begin()), {}, {}, {}, 0});
  const auto at = std::partition_point(home->lists.begin(), home->lists.end(), [&](uint32_t other) {
    return lists_[other].stream < stream;
  });
  home->lists.insert(at, index);
  list_of_.emplace(std::tuple(stream, pool, small), index);
  largest_free_.resize(lists_.size());
  return index;
}

uint32_t CachingAllocator::make_block(uint64_t address, uint64_t size, uint32_t list,
                                      uint32_t segment) {
  Block b;
  b.address = address;
  b.size = size;
  b.list = list;
  b.segment = segment;
  b.expandable = segments_[segment].page != 0;
  b.registration = ++registrations_;
  b.state = State::kFree;
  return blocks_.add(b);
}

void CachingAllocator::drop_block(uint32_t index) {
  blocks_[index].state = State::kGone;
  blocks_.drop(index);
}

uint64_t CachingAllocator::order_of(const Block& block) const {
  switch (tie_break_) {
    case TieBreak::kRegistration:
      return block.registration;
    case TieBreak::kSegment:  // segments are numbered in creation order; offsets stay below 2^45
      return (uint64_t{block.segment} << 36) |
             ((block.address - segments_[block.segment].base) / kMinBlockBytes);
    case TieBreak::kAddress:
      break;
  }
  return block.address;
}

void CachingAllocator::insert_free(uint32_t index) {
  Block& b = blocks_[index];
  b.state = State::kFree;
  StreamList& list = lists_[b.list];
  b.gc_base = pools_[list.pool].calls;
  list.free.insert({b.size, order_of(b), index});
  if (b.expandable || !b.split()) {
    list.releasable.push_back(index);
    if (list.releasable.size() > 64 + 2 * list.releasable_kept) keep_releasable(list);
  }
  note_largest(b.list);
}

void CachingAllocator::erase_free(uint32_t index) {
  const Block& b = blocks_[index];
  lists_[b.list].free.erase(FreeSet::Entry{b.size, order_of(b), index});
  note_largest(b.list);
}

bool CachingAllocator::mergeable(uint32_t into, uint32_t from) const {
  if (from == 0) return false;
  const State state = blocks_[from].state;
  if (state != State::kFree && state != State::kUnmapped) return false;
  return (state == State::kUnmapped) == (blocks_[into].state == State::kUnmapped);
}

void CachingAllocator::try_merge(uint32_t into, uint32_t from) {
  if (!mergeable(into, from)) return;
  Block& dst = blocks_[into];
  const Block& src = blocks_[from];
  if (src.state == State::kUnmapped) {
    erase_unmapped(from);
  } else {
    erase_free(from);
  }
  if (dst.previous == from) dst.address = src.address;
  blocks_.unlink(from);
  dst.size += src.size;
  drop_block(from);
}

// Only the best fit is considered: if the split limit forbids it, the search fails.
FreeSet::Place CachingAllocator::find_free(const StreamList& list, uint64_t size) const {
  const FreeSet& free = list.free;
  FreeSet::Place at = free.lower_bound(size);
  if (at == free.end()) return at;
  // A block that can grow counts with its largest possible size.
  while (blocks_[free.at(at).block].expandable && settings_.rules.expandable_segments) {
    const FreeSet::Place next = free.next(at);
    if (next == free.end() ||
        expandable_size(free.at(next).block) >= expandable_size(free.at(at).block)) {
      break;
    }
    at = next;
  }
  const uint64_t limit = settings_.rules.max_split_bytes;
  const uint64_t found = free.at(at).size;
  if (size < limit && found >= limit) return free.end();
  if (size >= limit && found >= size + settings_.non_split_slack()) return free.end();
  return at;
}

uint32_t CachingAllocator::take_free(uint32_t list, uint64_t size) {
  StreamList& home = lists_[list];
  if (collects_garbage()) ++pools_[home.pool].calls;
  const FreeSet::Place at = find_free(home, size);
  if (at == home.free.end()) return 0;
  const uint32_t block = home.free.at(at).block;
  home.free.erase(at);
  note_largest(list);
  return block;
}

uint32_t CachingAllocator::allocate_segment(uint32_t list, uint64_t size) {
  const uint64_t bytes = settings_.segment_bytes(size);
  if (limits_.allowed != 0 && totals_.reserved + bytes > limits_.allowed) return 0;
  const bool private_pool = pools_[lists_[list].pool].pool != 0;
  // 2.1 to 2.4: private pools use plain segments nevertheless.
  if (settings_.rules.expandable_segments && (!private_pool || settings_.version.at_least(5))) {
    return allocate_expandable(list, size);
  }
  if (limits_.capacity != 0 && totals_.reserved + bytes > limits_.capacity) return 0;
  ++counts_.driver_allocations;
  totals_.reserved += bytes;
  const uint64_t address = addresses_.allocate(bytes);
  segments_.push_back({address, bytes, 0});
  return make_block(address, bytes, list, static_cast<uint32_t>(segments_.size() - 1));
}

uint32_t CachingAllocator::ask_driver(uint32_t list, uint64_t size) {
  if (collects_garbage()) collect_garbage();
  if (const uint32_t block = allocate_segment(list, size); block != 0) return block;
  if (settings_.fail_before_driver) return 0;
  if (release_oversize(list, size)) {
    if (const uint32_t block = allocate_segment(list, size); block != 0) return block;
  }
  release_everything();
  ++counts_.retries;
  return allocate_segment(list, size);
}

bool CachingAllocator::allocate(uint32_t id, uint64_t requested, uint64_t stream, uint32_t pool) {
  const uint64_t size = settings_.rules.round(requested);
  if (pending_done_ != 0) complete_first(pending_done_);
  const uint32_t list = list_for(stream, pool, size <= kSmallBytes);
  uint32_t block = take_free(list, size);
  if (block == 0) block = ask_driver(list, size);
  if (block == 0) return false;
  place(id, block, size, requested);
  return true;
}

void CachingAllocator::place(uint32_t id, uint32_t index, uint64_t size, uint64_t requested) {
  if (settings_.rules.splits(size, blocks_[index].size)) {
    // The request gets a new object in front; the remainder keeps the old one.
    const uint32_t rest = index;
    index = make_block(blocks_[rest].address, size, blocks_[rest].list, blocks_[rest].segment);
    blocks_.link_before(index, rest);
    blocks_[rest].address += size;
    blocks_[rest].size -= size;
    insert_free(rest);
  }
  Block& b = blocks_[index];
  b.state = State::kAllocated;
  b.requested = requested;
  b.id = id;
  if (id >= block_of_.size()) block_of_.resize(std::max<size_t>(id + 1, 2 * block_of_.size()));
  block_of_[id] = index;
  totals_.allocated += b.size;
  totals_.active += b.size;
  totals_.requested += requested;
  note_peaks();
}

void CachingAllocator::note_peaks() {
  allocated_peak_ = std::max(allocated_peak_, totals_.allocated);
  requested_peak_ = std::max(requested_peak_, totals_.requested);
  if (totals_.reserved <= peak_.reserved) return;
  peak_ = {totals_.reserved, totals_.allocated, totals_.reserved - totals_.active, 0};
  peak_.largest_hole = largest_free_.largest();
}

void CachingAllocator::note_largest(uint32_t list) {
  const FreeSet& free = lists_[list].free;
  largest_free_.set(list, free.empty() ? 0 : free.largest().size);
}

void CachingAllocator::release(uint32_t id) {
  const uint32_t index = id < block_of_.size() ? block_of_[id] : 0;
  if (index == 0 || blocks_[index].state != State::kAllocated) return;
  blocks_[index].state = State::kPending;
  totals_.allocated -= blocks_[index].size;
  pending_.push_back(id);
  ++pending_live_;
}

// The driver's free synchronizes with the whole device: blocks pending at that time are free at the
// next request.
void CachingAllocator::complete_first(size_t count) {
  pending_done_ = 0;
  const std::vector<uint32_t> ids(pending_.begin(),
                                  pending_.begin() + static_cast<std::ptrdiff_t>(count));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
  for (const uint32_t id : ids) complete(id);
}

void CachingAllocator::complete(uint32_t id) {
  const uint32_t index = id < block_of_.size() ? block_of_[id] : 0;
  if (index == 0) return;
  if (blocks_[index].state == State::kAllocated) {
    totals_.allocated -= blocks_[index].size;
  } else if (--pending_live_ == 0) {
    pending_.clear();
    pending_done_ = 0;
  }
  free_block(index);
}

void CachingAllocator::free_block(uint32_t index) {
  Block& b = blocks_[index];
  totals_.active -= b.size;
  totals_.requested -= b.requested;
  block_of_[b.id] = 0;
  b.requested = 0;
  b.state = State::kFree;
  try_merge(index, b.previous);
  try_merge(index, b.next);
  insert_free(index);
}

bool CachingAllocator::has_free(uint64_t requested, uint64_t stream, uint32_t pool) const {
  const uint64_t size = settings_.rules.round(requested);
  const uint32_t list = find_list(stream, pool, size <= kSmallBytes);
  return list != kNoList && find_free(lists_[list], size) != lists_[list].free.end();
}

bool CachingAllocator::would_free_segments(uint64_t requested, uint64_t stream,
                                           uint32_t pool) const {
  if (has_free(requested, stream, pool)) return false;
  const uint64_t size = settings_.rules.round(requested);
  const uint64_t after = totals_.reserved + settings_.segment_bytes(size);
  if (limits_.allowed != 0 && after > limits_.allowed) return true;
  if (limits_.capacity != 0 && after > limits_.capacity) return true;
  return collects_garbage() && static_cast<double>(totals_.reserved) >
                                   settings_.gc_threshold * static_cast<double>(limits_.allowed);
}

uint64_t CachingAllocator::address_of(uint32_t id) const {
  return id < block_of_.size() ? blocks_[block_of_[id]].address : 0;
}

uint64_t CachingAllocator::block_bytes_of(uint32_t id) const {
  return id < block_of_.size() ? blocks_[block_of_[id]].size : 0;
}

}  // namespace tidemark
