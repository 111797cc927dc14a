// A caching allocator in the simplest possible code. It writes the events torch would write and
// keeps the true totals, with which tests compare the model.
#pragma once

#include <map>
#include <random>
#include <vector>

#include "analysis/history/allocator_rules.h"
#include "analysis/history/block_map.h"
#include "proto/rows.h"

namespace tidemark {

class ToyAllocator {
 public:
  struct ToyBlock {
    uint64_t size = 0;
    uint64_t requested = 0;
    bool used = false;
    bool pending = false;
  };
  struct Segment {
    uint64_t size = 0;
    std::map<uint64_t, ToyBlock> blocks;
  };

  ToyAllocator(const AllocatorRules& rules, uint64_t seed) : rules_(rules), rng_(seed) {}

  std::vector<FrameworkEvent> events;
  std::vector<MemoryTotals> totals;  // after each event
  std::map<uint64_t, Segment> segments;

  void random_step() {
    const uint64_t dice = rng_() % 100;
    if (dice < 50) {
      malloc_block(random_size());
    } else if (dice < 97) {
      free_random();
    } else if (dice < 99) {
      complete_pending();
    } else {
      empty_cache();
    }
  }

  std::vector<std::pair<uint64_t, ToyBlock>> live() const {
    std::vector<std::pair<uint64_t, ToyBlock>> all;
    for (const auto& [base, segment] : segments) {
      for (const auto& [address, block] : segment.blocks) {
        if (block.used || block.pending) all.emplace_back(address, block);
      }
    }
    return all;
  }

 private:
  uint64_t random_size() { return 1 + rng_() % (uint64_t{1} << (6 + rng_() % 20)); }

  void note(FrameworkAction action, uint64_t address, uint64_t size) {
    FrameworkEvent event{};
    event.time_ns = static_cast<int64_t>(1000 + 10 * events.size());
    event.action = action;
    event.address = address;
    event.size_bytes = size;
    event.stack = 1 + static_cast<uint32_t>(rng_() % 9);
    events.push_back(event);
    MemoryTotals t;
    for (const auto& [base, segment] : segments) {
      t.reserved += segment.size;
      for (const auto& [at, block] : segment.blocks) {
        if (block.used) t.allocated += block.size;
        if (block.used || block.pending) {
          t.active += block.size;
          t.requested += block.requested;
        }
      }
    }
    totals.push_back(t);
  }

  void malloc_block(uint64_t requested) {
    const uint64_t size = rules_.round(requested);
    const bool small = size <= kSmallBytes;
    std::map<uint64_t, ToyBlock>* home = nullptr;
    uint64_t best = 0;
    for (auto& [base, segment] : segments) {
      if ((segment.size == 2 * kSmallBytes) != small) continue;
      for (auto& [address, block] : segment.blocks) {
        if (block.used || block.pending || block.size < size) continue;
        if (home == nullptr || block.size < home->at(best).size) {
          home = &segment.blocks;
          best = address;
        }
      }
    }
    if (home == nullptr) {
      const uint64_t bytes = small                     ? 2 * kSmallBytes
                             : size < 10 * kSmallBytes ? 20 * kSmallBytes
                                                       : (size + 2 * kSmallBytes - 1) /
                                                             (2 * kSmallBytes) * 2 * kSmallBytes;
      best = next_address_;
      next_address_ += bytes;  // segments are adjacent, and must still not be merged
      segments[best] = {bytes, {{best, {bytes, 0, false, false}}}};
      home = &segments[best].blocks;
      note(FrameworkAction::kSegmentAlloc, best, bytes);
    }
    ToyBlock& block = home->at(best);
    if (rules_.splits(size, block.size)) {
      (*home)[best + size] = {block.size - size, 0, false, false};
      block.size = size;
    }
    block.used = true;
    block.requested = requested;
    note(FrameworkAction::kAlloc, best, requested);
  }

  void free_random() {
    std::vector<std::pair<uint64_t, uint64_t>> used;
    for (const auto& [base, segment] : segments) {
      for (const auto& [address, block] : segment.blocks) {
        if (block.used) used.emplace_back(base, address);
      }
    }
    if (used.empty()) return;
    const auto [base, address] = used[rng_() % used.size()];
    ToyBlock& block = segments[base].blocks[address];
    block.used = false;
    block.pending = true;
    note(FrameworkAction::kFreeRequested, address, block.requested);
    if (rng_() % 5 != 0) complete(base, address);  // otherwise another stream still uses it
  }

  void complete_pending() {
    for (const auto& [base, segment] : segments) {
      for (const auto& [address, block] : segment.blocks) {
        if (block.pending) return complete(base, address);
      }
    }
  }

  void complete(uint64_t base, uint64_t address) {
    auto& blocks = segments[base].blocks;
    const uint64_t requested = blocks[address].requested;
    blocks[address].pending = false;
    blocks[address].requested = 0;
    const auto is_free = [](const ToyBlock& b) { return !b.used && !b.pending; };
    for (auto it = blocks.begin(); it != blocks.end();) {
      const auto next = std::next(it);
      if (next != blocks.end() && is_free(it->second) && is_free(next->second)) {
        it->second.size += next->second.size;
        blocks.erase(next);
      } else {
        it = next;
      }
    }
    note(FrameworkAction::kFreeCompleted, address, requested);
  }

  void empty_cache() {
    for (auto it = segments.begin(); it != segments.end();) {
      const auto& [address, segment] = *it;
      const bool idle = segment.blocks.size() == 1 && !segment.blocks.begin()->second.used &&
                        !segment.blocks.begin()->second.pending;
      if (!idle) {
        ++it;
        continue;
      }
      const uint64_t at = address;
      const uint64_t size = segment.size;
      it = segments.erase(it);
      note(FrameworkAction::kSegmentFree, at, size);
    }
  }

  AllocatorRules rules_;
  std::mt19937_64 rng_;
  uint64_t next_address_ = uint64_t{1} << 32;
};

}  // namespace tidemark
