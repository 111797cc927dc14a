// How the caching allocator returns memory to the driver.
#include <algorithm>
#include <utility>

#include "analysis/whatif/allocator/caching_allocator.h"

namespace tidemark {

// Releases a segment that is one free block.
void CachingAllocator::release_segment(uint32_t index) {
  const Block& b = blocks_[index];
  erase_free(index);
  addresses_.free(b.address, b.size);
  totals_.reserved -= b.size;
  ++counts_.driver_frees;
  pending_done_ = pending_.size();
  drop_block(index);
}

// Forgets blocks that were taken, merged or split since, and puts the others into the order of the
// free blocks.
void CachingAllocator::keep_releasable(StreamList& list) const {
  std::vector<uint32_t>& all = list.releasable;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase_if(all, [&](uint32_t index) {
    const Block& b = blocks_[index];
    if (b.state != State::kFree || &lists_[b.list] != &list) return true;
    return !b.expandable && b.split();
  });
  list.releasable_kept = all.size();
  std::sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(blocks_[a].size, order_of(blocks_[a])) <
           std::pair(blocks_[b].size, order_of(blocks_[b]));
  });
}

void CachingAllocator::release_pool(uint32_t pool) {
  std::vector<uint32_t> whole;
  std::vector<uint32_t> expandable;
  for (const uint32_t list : pools_[pool].lists) {
    keep_releasable(lists_[list]);
    for (const uint32_t index : lists_[list].releasable) {
      (blocks_[index].expandable ? expandable : whole).push_back(index);
    }
  }
  for (const uint32_t block : whole) release_segment(block);
  for (const uint32_t block : expandable) unmap(block);
  // What is left of an expandable block has no whole page.
  for (const uint32_t list : pools_[pool].lists) lists_[list].releasable.clear();
}

void CachingAllocator::release_everything() {
  const uint64_t freed = counts_.driver_frees;
  // This synchronizes every stream, which completes all pending frees.
  complete_first(pending_.size());
  release_pool(0);
  release_pool(1);
  for (uint32_t i = 2; i < pools_.size(); ++i) {
    if (pools_[i].retired) release_pool(i);
  }
  counts_.emptied += counts_.driver_frees != freed;
}

void CachingAllocator::empty_cache() {
  release_everything();
}

void CachingAllocator::retire_pool(uint32_t pool) {
  for (BlockPool& p : pools_) {
    if (pool != 0 && p.pool == pool) p.retired = true;
  }
}

// With a split limit, blocks above it are whole segments: releases one that is large enough, or
// several.
bool CachingAllocator::release_oversize(uint32_t list, uint64_t size) {
  const uint64_t limit = settings_.rules.max_split_bytes;
  if (limit == UINT64_MAX) return false;
  const uint64_t wanted = std::max(size, limit);
  FreeSet& free = lists_[list].free;
  const FreeSet::Place fit = free.lower_bound(wanted);
  if (fit != free.end() && !blocks_[free.at(fit).block].expandable) {
    release_segment(free.at(fit).block);
    return true;
  }
  std::vector<uint32_t> chosen;  // largest first
  uint64_t released = 0;
  for (FreeSet::Place at = fit; at != free.begin() && released < wanted;) {
    at = free.previous(at);
    if (free.at(at).size < limit) break;
    if (blocks_[free.at(at).block].expandable) continue;
    chosen.push_back(free.at(at).block);
    released += free.at(at).size;
  }
  for (const uint32_t block : chosen) release_segment(block);
  return released >= wanted;
}

// Frees whole segments that went unused for longer than the average, until enough is reclaimed.
void CachingAllocator::collect_garbage() {
  const auto threshold =
      static_cast<uint64_t>(settings_.gc_threshold * static_cast<double>(limits_.allowed));
  if (totals_.reserved <= threshold) return;
  const uint64_t target = totals_.reserved - threshold;
  const BlockPool& large = pools_[0];
  const auto age = [&](uint32_t block) {
    return static_cast<double>(large.calls - blocks_[block].gc_base);
  };
  std::vector<uint32_t> whole;
  double total_age = 0;
  for (const uint32_t list : large.lists) {
    keep_releasable(lists_[list]);
    for (const uint32_t index : lists_[list].releasable) {
      if (blocks_[index].split()) continue;
      whole.push_back(index);
      total_age += age(index);
    }
  }
  uint64_t reclaimed = 0;
  bool freed = true;
  while (reclaimed < target && freed && !whole.empty()) {
    const double limit = total_age / static_cast<double>(whole.size());
    freed = false;
    std::erase_if(whole, [&](uint32_t block) {
      // 2.5+: expandable blocks count for the average but are not freed here.
      if (blocks_[block].expandable || age(block) < limit) return false;
      freed = true;
      reclaimed += blocks_[block].size;
      total_age -= age(block);
      release_segment(block);
      return true;
    });
  }
  if (reclaimed != 0) ++counts_.collections;
}

}  // namespace tidemark
