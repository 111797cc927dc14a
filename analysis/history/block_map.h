// The segments of one device and the blocks inside them, updated event by event.
//
// Blocks of a segment form a list by address. A table finds a block by its first byte, the only
// thing by which the allocator's events identify it, so every event costs O(1). Free neighbours are
// merged as the allocator does, so that the size of the next block split from them is right.
//
// The map never fails: an event that contradicts it (a history that began late, a damaged block) is
// counted in anomalies() and applied as far as possible.
#pragma once

#include <algorithm>
#include <cstdint>

#include "analysis/history/allocator_rules.h"
#include "analysis/history/block_store.h"
#include "proto/base/address_table.h"

namespace tidemark {

enum class BlockUse : uint8_t { kFree, kAllocated, kPendingFree, kGone };

struct Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested = 0;  // falls when a free completes, so it can exceed what is allocated
  uint32_t previous = 0;   // 0: first of its segment
  uint32_t next = 0;       // 0: last of its segment
  uint32_t owner = 0;      // the caller's value for an allocated block
  BlockUse use = BlockUse::kFree;
  bool expandable = false;  // part of a range that grows by mapping
  bool stray = false;       // in no known segment
};

// The sums that PyTorch's statistics call allocated_bytes, requested_bytes, active_bytes,
// reserved_bytes.
struct MemoryTotals {
  uint64_t allocated = 0;
  uint64_t requested = 0;  // falls when a free completes, so it can exceed what is allocated
  uint64_t active = 0;     // allocated or pending
  uint64_t reserved = 0;

  // Freed by the program, but another stream may still use it: not allocated, and not free either.
  uint64_t pending() const { return active - std::min(active, allocated); }

  friend bool operator==(const MemoryTotals&, const MemoryTotals&) = default;
};

class BlockMap {
 public:
  explicit BlockMap(const AllocatorRules& rules);

  // Segment events. A mapped range joins the free block before or after it.
  void add_segment(uint64_t address, uint64_t size, bool joins_neighbours);
  // Removes the known parts of [address, address + size).
  void remove_range(uint64_t address, uint64_t size);

  // Makes a block begin at `at`, inside of the free block that begins at `begin`, if there is one.
  void split_free(uint64_t begin, uint64_t at);

  // Splits a block for a request off the free block at `address`. With size 0 the rules give the
  // size; any other size is used as is. Returns the block's index.
  uint32_t allocate(uint64_t address, uint64_t requested, uint64_t size, uint32_t owner);
  // Both return the block's index, or 0 when no such block is in use.
  uint32_t request_free(uint64_t address);
  uint32_t complete_free(uint64_t address);

  const MemoryTotals& totals() const { return totals_; }
  uint64_t anomalies() const { return anomalies_; }
  const Block& block(uint32_t index) const { return blocks_[index]; }
  // Index of the block that starts at this address, 0 if none. Events in a row are often about the
  // same block.
  uint32_t find(uint64_t address) {
    if (recent_ == 0 || blocks_[recent_].address != address) recent_ = by_address_.find(address);
    return recent_;
  }
  // Begin to load what an event at this address will read: first where its block is, then the
  // block.
  void prefetch_place(uint64_t address) const { by_address_.prefetch(address); }
  void prefetch_block(uint64_t address) const {
    __builtin_prefetch(&blocks_[by_address_.find(address)]);
  }
  // Calls use(const Block&) for every existing block, in no particular order.
  template <typename Use>
  void for_each(Use&& use) const {
    for (auto block = blocks_.begin() + 1; block != blocks_.end(); ++block) {
      if (block->use != BlockUse::kGone) use(*block);
    }
  }

 private:
  uint32_t make_block(uint64_t address, uint64_t size, bool expandable);
  void drop_block(uint32_t index);
  void forget(uint64_t address);
  // Keeps the first `size` bytes in `index`; the rest becomes a free block after it.
  uint32_t split(uint32_t index, uint64_t size);
  // Merges the block after `index` into it.
  void swallow_next(uint32_t index);
  uint32_t merge_free(uint32_t index);
  void note_end(uint32_t index);
  // A free block that starts at `address`, split off a larger one if necessary; 0 if there is none.
  uint32_t free_block_at(uint64_t address);
  uint32_t search_free_block(uint64_t address);
  uint32_t stray_block(uint64_t address, uint64_t size);

  AllocatorRules rules_;
  BlockStore<Block> blocks_;
  AddressTable by_address_;  // first byte -> block
  uint32_t recent_ = 0;      // the block that by_address_ has for its address; 0: none
  AddressTable range_end_;   // end of an expandable range -> its last block
  MemoryTotals totals_;
  uint64_t anomalies_ = 0;
  // Searches are linear and needed only for inconsistent histories. Each event adds to the budget,
  // so that no input makes the whole replay more than linear.
  uint64_t search_budget_ = 1 << 22;
};

}  // namespace tidemark
