// PyTorch's caching allocator in the simplest possible code: it answers every question by searching
// all blocks. The model in analysis/whatif is compared with it.
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <vector>

#include "analysis/whatif/allocator/caching_allocator.h"

namespace tidemark {

// Ascending addresses; freed ones are reused from the lowest. Deterministic, and produces ties.
class PlainAddresses : public SegmentAddresses {
 public:
  uint64_t allocate(uint64_t bytes) override {
    for (auto it = freed_.begin(); it != freed_.end(); ++it) {
      if (it->second != bytes) continue;
      const uint64_t address = it->first;
      freed_.erase(it);
      return address;
    }
    next_ += bytes;
    return next_ - bytes;
  }
  void free(uint64_t address, uint64_t bytes) override { freed_[address] = bytes; }
  uint64_t reserve(uint64_t bytes) override {
    range_ += bytes;
    return range_ - bytes;
  }

 private:
  std::map<uint64_t, uint64_t> freed_;
  uint64_t next_ = uint64_t{1} << 40;
  uint64_t range_ = uint64_t{1} << 32;
};

class ReferenceAllocator {
 public:
  enum class Use { kFree, kUsed, kPending, kUnmapped };
  struct Block {
    uint64_t address = 0;
    uint64_t size = 0;
    Use use = Use::kFree;
    uint64_t serial = 0;
    uint64_t free_since = 0;
    uint64_t requested = 0;
    uint32_t id = 0;
  };
  struct Segment {
    uint64_t stream = 0;
    uint32_t pool = 0;
    bool small = false;
    uint64_t number = 0;
    uint64_t base = 0;
    uint64_t page = 0;  // 0: not expandable
    std::list<Block> blocks;
  };
  struct Found {
    std::list<Segment>::iterator segment;
    std::list<Block>::iterator block;
  };

  ReferenceAllocator(const AllocatorSettings& settings, const AllocatorLimits& limits,
                     SegmentAddresses& addresses)
      : settings_(settings), limits_(limits), addresses_(addresses) {}

  MemoryTotals totals() const {
    MemoryTotals t;
    for (const Segment& s : segments_) {
      for (const Block& b : s.blocks) {
        if (b.use != Use::kUnmapped) t.reserved += b.size;
        if (b.use == Use::kUsed) t.allocated += b.size;
        if (b.use == Use::kUsed || b.use == Use::kPending) {
          t.active += b.size;
          t.requested += b.requested;
        }
      }
    }
    return t;
  }

  AllocatorCounts counts;

  uint64_t address_of(uint32_t id) {
    const Found f = find(id);
    return f.segment == segments_.end() ? 0 : f.block->address;
  }

  bool allocate(uint32_t id, uint64_t requested, uint64_t stream, uint32_t pool) {
    for (const uint32_t done : done_) complete(done);
    done_.clear();
    const uint64_t size = settings_.rules.round(requested);
    const bool small = size <= kSmallBytes;
    if (collects()) ++calls_[{pool, small}];
    Found f = best_fit(size, stream, pool, small);
    if (f.segment == segments_.end()) f = ask_driver(size, stream, pool, small);
    if (f.segment == segments_.end()) return false;
    const uint64_t rest = f.block->size - size;
    const bool split = small || settings_.rules.expandable_segments
                           ? rest >= 512
                           : size < settings_.rules.max_split_bytes && rest > kSmallBytes;
    if (split) {
      const auto front = f.segment->blocks.insert(f.block, Block{f.block->address, size});
      front->serial = ++serials_;
      f.block->address += size;
      f.block->size = rest;
      became_free(f);
      f.block = front;
    }
    f.block->use = Use::kUsed;
    f.block->requested = requested;
    f.block->id = id;
    return true;
  }

  void release(uint32_t id) {
    const Found f = find(id);
    if (f.segment == segments_.end() || f.block->use != Use::kUsed) return;
    f.block->use = Use::kPending;
    pending_.push_back(id);
  }

  void complete(uint32_t id) {
    Found f = find(id);
    if (f.segment == segments_.end()) return;
    f.block->use = Use::kFree;
    merge(f);
    became_free(f);
    std::erase(pending_, id);
  }

  void empty_cache() { release_everything(); }
  void retire_pool(uint32_t pool) { retired_.push_back(pool); }

  const std::list<Segment>& segments() const { return segments_; }

 private:
  bool collects() const { return limits_.allowed != 0 && settings_.gc_threshold > 0; }
  Found none() { return {segments_.end(), {}}; }

  Found find(uint32_t id) {
    for (auto s = segments_.begin(); s != segments_.end(); ++s) {
      for (auto b = s->blocks.begin(); b != s->blocks.end(); ++b) {
        if ((b->use == Use::kUsed || b->use == Use::kPending) && b->id == id) return {s, b};
      }
    }
    return none();
  }

  bool before(const Found& a, const Found& b) const {
    if (a.block->size != b.block->size) return a.block->size < b.block->size;
    switch (settings_.version.tie_break()) {
      case TieBreak::kRegistration:
        return a.block->serial < b.block->serial;
      case TieBreak::kSegment:
        if (a.segment->number != b.segment->number) return a.segment->number < b.segment->number;
        break;
      case TieBreak::kAddress:
        break;
    }
    return a.block->address < b.block->address;
  }

  // Free blocks in torch's order: stream, size, tie-break.
  std::vector<Found> free_blocks(uint32_t pool, bool small) {
    std::vector<Found> all;
    for (auto s = segments_.begin(); s != segments_.end(); ++s) {
      if (s->pool != pool || s->small != small) continue;
      for (auto b = s->blocks.begin(); b != s->blocks.end(); ++b) {
        if (b->use == Use::kFree) all.push_back({s, b});
      }
    }
    std::sort(all.begin(), all.end(), [&](const Found& a, const Found& b) {
      if (a.segment->stream != b.segment->stream) return a.segment->stream < b.segment->stream;
      return before(a, b);
    });
    return all;
  }

  static uint64_t could_grow_to(const Found& f) {
    const auto next = std::next(f.block);
    const bool grows = next != f.segment->blocks.end() && next->use == Use::kUnmapped;
    return f.block->size + (grows ? next->size : 0);
  }

  Found best_fit(uint64_t size, uint64_t stream, uint32_t pool, bool small) {
    std::vector<Found> fits = free_blocks(pool, small);
    std::erase_if(
        fits, [&](const Found& f) { return f.segment->stream != stream || f.block->size < size; });
    if (fits.empty()) return none();
    size_t i = 0;
    if (settings_.rules.expandable_segments) {
      while (fits[i].segment->page != 0 && i + 1 < fits.size() &&
             could_grow_to(fits[i + 1]) < could_grow_to(fits[i])) {
        ++i;
      }
    }
    const uint64_t limit = settings_.rules.max_split_bytes;
    const uint64_t found = fits[i].block->size;
    if (size < limit && found >= limit) return none();
    if (size >= limit && found >= size + settings_.non_split_slack()) return none();
    return fits[i];
  }

  Found ask_driver(uint64_t size, uint64_t stream, uint32_t pool, bool small) {
    if (collects()) collect_garbage();
    Found f = new_memory(size, stream, pool, small);
    if (f.segment != segments_.end() || settings_.fail_before_driver) return f;
    if (release_oversize(size, stream, pool, small)) {
      f = new_memory(size, stream, pool, small);
      if (f.segment != segments_.end()) return f;
    }
    release_everything();
    ++counts.retries;
    return new_memory(size, stream, pool, small);
  }

  Found new_memory(uint64_t size, uint64_t stream, uint32_t pool, bool small) {
    const uint64_t bytes = small                     ? 2 * kSmallBytes
                           : size < 10 * kSmallBytes ? settings_.large_segment_bytes
                                                     : (size + 2 * kSmallBytes - 1) /
                                                           (2 * kSmallBytes) * (2 * kSmallBytes);
    const uint64_t reserved = totals().reserved;
    if (limits_.allowed != 0 && reserved + bytes > limits_.allowed) return none();
    if (settings_.rules.expandable_segments && (pool == 0 || settings_.version.at_least(5))) {
      return grow(size, stream, pool, small);
    }
    if (limits_.capacity != 0 && reserved + bytes > limits_.capacity) return none();
    ++counts.driver_allocations;
    return add_segment(addresses_.allocate(bytes), bytes, 0, stream, pool, small);
  }

  Found add_segment(uint64_t base, uint64_t bytes, uint64_t page, uint64_t stream, uint32_t pool,
                    bool small) {
    segments_.push_back({stream, pool, small, ++numbers_, base, page, {}});
    Block block{base, bytes, page != 0 ? Use::kUnmapped : Use::kFree};
    block.serial = ++serials_;
    segments_.back().blocks.push_back(block);
    return {std::prev(segments_.end()), segments_.back().blocks.begin()};
  }

  static bool idle(const Block& b) { return b.use == Use::kFree || b.use == Use::kUnmapped; }

  Found grow(uint64_t size, uint64_t stream, uint32_t pool, bool small) {
    Found at = room_for(size, stream, pool, small);
    if (at.block->use == Use::kUnmapped && !map(at, std::min(size, at.block->size))) return none();
    while (at.block->size < size) {
      Found next{at.segment, std::next(at.block)};
      if (!map(next, std::min(size - at.block->size, next.block->size))) return none();
      at = next;
    }
    return at;
  }

  Found room_for(uint64_t size, uint64_t stream, uint32_t pool, bool small) {
    std::vector<Found> unmapped;
    for (auto s = segments_.begin(); s != segments_.end(); ++s) {
      if (s->stream != stream || s->pool != pool || s->small != small) continue;
      for (auto b = s->blocks.begin(); b != s->blocks.end(); ++b) {
        if (b->use == Use::kUnmapped) unmapped.push_back({s, b});
      }
    }
    std::sort(unmapped.begin(), unmapped.end(),
              [](const Found& a, const Found& b) { return a.block->address < b.block->address; });
    for (Found f : unmapped) {
      if (f.block != f.segment->blocks.begin() && idle(*std::prev(f.block))) --f.block;
      uint64_t room = 0;
      for (auto b = f.block; b != f.segment->blocks.end() && idle(*b); ++b) room += b->size;
      if (room >= size) return f;
    }
    const uint64_t page = small ? 2 * kSmallBytes : settings_.large_segment_bytes;
    const uint64_t range = (std::max(limits_.expandable_range, size) + page - 1) / page * page;
    return add_segment(addresses_.reserve(range), range, page, stream, pool, small);
  }

  bool map(const Found& f, uint64_t size) {
    const uint64_t page = f.segment->page;
    uint64_t bytes = 0;
    while (bytes < size) bytes += page;
    bytes = std::min(bytes, f.block->size);
    if (limits_.capacity != 0 && totals().reserved + bytes > limits_.capacity) return false;
    if (bytes < f.block->size) {
      Block rest{f.block->address + bytes, f.block->size - bytes, Use::kUnmapped};
      rest.serial = ++serials_;
      f.segment->blocks.insert(std::next(f.block), rest);
      f.block->size = bytes;
    }
    f.block->use = Use::kFree;
    merge(f);
    became_free(f);
    counts.driver_allocations += bytes / page;
    return true;
  }

  // Merges the block with its neighbours of the same kind.
  static void merge(const Found& f) {
    auto& blocks = f.segment->blocks;
    if (f.block != blocks.begin() && std::prev(f.block)->use == f.block->use) {
      f.block->address = std::prev(f.block)->address;
      f.block->size += std::prev(f.block)->size;
      blocks.erase(std::prev(f.block));
    }
    const auto next = std::next(f.block);
    if (next != blocks.end() && next->use == f.block->use) {
      f.block->size += next->size;
      blocks.erase(next);
    }
  }

  void became_free(const Found& f) {
    f.block->use = Use::kFree;
    f.block->free_since = calls_[{f.segment->pool, f.segment->small}];
  }

  void free_segment(const Found& f) {
    addresses_.free(f.block->address, f.block->size);
    segments_.erase(f.segment);
    ++counts.driver_frees;
    done_ = pending_;
  }

  void unmap(const Found& f) {
    const uint64_t page = f.segment->page;
    const uint64_t base = f.segment->base;
    uint64_t begin = f.block->address;
    while ((begin - base) % page != 0) begin += 512;
    uint64_t end = f.block->address + f.block->size;
    while ((end - base) % page != 0) end -= 512;
    if (begin >= end) return;
    auto& blocks = f.segment->blocks;
    if (begin > f.block->address) {
      const auto front = blocks.insert(f.block, Block{f.block->address, begin - f.block->address});
      front->serial = ++serials_;
      became_free({f.segment, front});
    }
    if (const uint64_t old_end = f.block->address + f.block->size; old_end > end) {
      const auto back = blocks.insert(std::next(f.block), Block{end, old_end - end});
      back->serial = ++serials_;
      became_free({f.segment, back});
    }
    f.block->address = begin;
    f.block->size = end - begin;
    f.block->use = Use::kUnmapped;
    counts.driver_frees += (end - begin) / page;
    merge(f);
    if (blocks.size() == 1) segments_.erase(f.segment);
  }

  void release_pool(uint32_t pool, bool small) {
    const std::vector<Found> all = free_blocks(pool, small);
    for (const Found& f : all) {
      if (f.segment->page == 0 && f.segment->blocks.size() == 1) free_segment(f);
    }
    std::vector<Found> expandable = free_blocks(pool, small);
    std::erase_if(expandable, [](const Found& f) { return f.segment->page == 0; });
    for (const Found& f : expandable) unmap(f);
  }

  void release_everything() {
    const std::vector<uint32_t> waiting = pending_;
    for (const uint32_t id : waiting) complete(id);
    done_.clear();
    release_pool(0, false);
    release_pool(0, true);
    for (const auto& [key, calls] : std::map(calls_)) {
      const bool retired = std::find(retired_.begin(), retired_.end(), key.first) != retired_.end();
      if (key.first != 0 && retired) release_pool(key.first, key.second);
    }
  }

  bool release_oversize(uint64_t size, uint64_t stream, uint32_t pool, bool small) {
    const uint64_t limit = settings_.rules.max_split_bytes;
    if (limit == UINT64_MAX) return false;
    std::vector<Found> mine = free_blocks(pool, small);
    std::erase_if(mine, [&](const Found& f) { return f.segment->stream != stream; });
    const uint64_t wanted = std::max(size, limit);
    const auto enough = std::find_if(mine.begin(), mine.end(),
                                     [&](const Found& f) { return f.block->size >= wanted; });
    if (enough != mine.end() && enough->segment->page == 0) {
      free_segment(*enough);
      return true;
    }
    uint64_t released = 0;
    for (auto it = std::make_reverse_iterator(enough); it != mine.rend(); ++it) {
      if (released >= wanted || it->block->size < limit) break;
      if (it->segment->page != 0) continue;
      released += it->block->size;
      free_segment(*it);
    }
    return released >= wanted;
  }

  void collect_garbage() {
    const auto threshold =
        static_cast<uint64_t>(settings_.gc_threshold * static_cast<double>(limits_.allowed));
    const uint64_t reserved = totals().reserved;
    if (reserved <= threshold) return;
    std::vector<Found> whole = free_blocks(0, false);
    std::erase_if(whole, [](const Found& f) { return f.segment->blocks.size() != 1; });
    uint64_t reclaimed = 0;
    const auto age = [&](const Found& f) {
      return static_cast<double>(calls_[{0, false}] - f.block->free_since);
    };
    for (bool freed = true; freed && reclaimed < reserved - threshold && !whole.empty();) {
      double sum = 0;
      for (const Found& f : whole) sum += age(f);
      const double average = sum / static_cast<double>(whole.size());
      freed = false;
      for (size_t i = 0; i < whole.size();) {
        if (whole[i].segment->page != 0 || age(whole[i]) < average) {
          ++i;
          continue;
        }
        reclaimed += whole[i].block->size;
        free_segment(whole[i]);
        whole.erase(whole.begin() + static_cast<std::ptrdiff_t>(i));
        freed = true;
      }
    }
    if (reclaimed != 0) ++counts.collections;
  }

  AllocatorSettings settings_;
  AllocatorLimits limits_;
  SegmentAddresses& addresses_;
  std::list<Segment> segments_;
  std::map<std::pair<uint32_t, bool>, uint64_t> calls_;
  std::vector<uint32_t> pending_;
  std::vector<uint32_t> done_;
  std::vector<uint32_t> retired_;
  uint64_t serials_ = 0;
  uint64_t numbers_ = 0;
};

}  // namespace tidemark
