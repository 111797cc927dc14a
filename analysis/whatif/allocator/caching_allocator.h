// PyTorch's caching allocator for one device, without the device (torch 2.0 to 2.13).
//
// The rules follow c10/cuda/CUDACachingAllocator.cpp step by step: which free block serves a
// request, how it is split and merged again, when the driver is called, what is returned to it, how
// expandable segments grow and shrink. SegmentAddresses decides the addresses of memory, since
// versions up to 2.11 prefer the lower address among free blocks of one size.
//
// For one thread. The caller names an allocation by an id, dense from 0.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "analysis/history/block_map.h"
#include "analysis/history/block_store.h"
#include "analysis/whatif/allocator/free_set.h"
#include "analysis/whatif/allocator/maximum_of.h"
#include "analysis/whatif/allocator/segment_addresses.h"
#include "analysis/whatif/allocator/settings.h"

namespace tidemark {

struct AllocatorLimits {
  uint64_t allowed = 0;   // by a memory fraction; 0: none is set
  uint64_t capacity = 0;  // of the driver; 0: not known, never fails
  // Address range of an expandable segment; torch reserves 1.125 times the card.
  uint64_t expandable_range = uint64_t{1} << 40;

  static AllocatorLimits of(uint64_t allowed, uint64_t capacity, uint64_t card) {
    AllocatorLimits limits{allowed, capacity};
    if (card != 0) limits.expandable_range = card + card / 8;
    return limits;
  }
};

struct AllocatorCounts {
  uint64_t driver_allocations = 0;
  uint64_t driver_frees = 0;
  uint64_t retries = 0;  // as PyTorch counts them: also if there was nothing to return
  uint64_t emptied = 0;  // times that the whole cache was returned, and was not empty
  uint64_t collections = 0;
};

// The peak of reserved memory, and its composition.
struct ReservedPeak {
  uint64_t reserved = 0;
  uint64_t allocated = 0;
  uint64_t cached_free = 0;
  uint64_t largest_hole = 0;
};

// A segment that existed before the first request, with the blocks in use in it.
struct ExistingBlock {
  uint32_t id = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested = 0;
};
struct ExistingSegment {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t stream = 0;
  uint32_t pool = 0;
  bool small = false;
  bool expandable = false;
  std::vector<ExistingBlock> blocks;  // by address
};

class CachingAllocator {
 public:
  CachingAllocator(const AllocatorSettings& settings, const AllocatorLimits& limits,
                   SegmentAddresses& addresses);

  // Call before the first request; expandable segments of a stream and pool in the order of their
  // addresses.
  void add_existing(const ExistingSegment& segment);

  // False: out of memory, after everything possible was returned to the driver.
  bool allocate(uint32_t id, uint64_t requested, uint64_t stream, uint32_t pool);
  // The program freed it; another stream still uses it.
  void release(uint32_t id);
  // No stream uses it any longer. Does nothing when that is already known.
  void complete(uint32_t id);
  void empty_cache();
  // Nothing more can be allocated from a private pool: its memory may be returned to the driver.
  void retire_pool(uint32_t pool);

  // Whether this request would be served without the driver.
  bool has_free(uint64_t requested, uint64_t stream, uint32_t pool) const;
  // Whether this request would make the allocator return memory to the driver.
  bool would_free_segments(uint64_t requested, uint64_t stream, uint32_t pool) const;

  // 0: not in use.
  uint64_t address_of(uint32_t id) const;
  uint64_t block_bytes_of(uint32_t id) const;

  const MemoryTotals& totals() const { return totals_; }
  const AllocatorCounts& counts() const { return counts_; }
  const ReservedPeak& peak() const { return peak_; }
  uint64_t allocated_peak() const { return allocated_peak_; }
  uint64_t requested_peak() const { return requested_peak_; }

  enum class State : uint8_t { kGone, kFree, kAllocated, kPending, kUnmapped };
  struct Block {
    uint64_t address = 0;
    uint64_t size = 0;
    uint64_t requested = 0;
    uint64_t registration = 0;  // order in which the object was created
    uint64_t gc_base = 0;       // the pool's `calls` when it became free
    uint32_t previous = 0;
    uint32_t next = 0;
    uint32_t list = 0;
    uint32_t segment = 0;
    uint32_t id = 0;
    State state = State::kGone;
    bool expandable = false;

    bool split() const { return previous != 0 || next != 0; }
  };
  // Every block, mapped or not, in no particular order: for tests.
  template <typename Use>
  void for_each_block(Use&& use) const {
    for (const Block& block : blocks_) {
      if (block.state != State::kGone) use(block);
    }
  }

 private:
  struct BlockPool {
    uint32_t pool = 0;
    bool small = false;
    bool retired = false;
    uint64_t calls = 0;           // searches for a free block, the clock of garbage collection
    std::vector<uint32_t> lists;  // by stream, the order in which torch visits them
  };
  // The blocks of one stream in one pool.
  struct StreamList {
    uint64_t stream = 0;
    uint32_t pool = 0;  // in pools_
    FreeSet free;
    std::vector<uint32_t> unmapped;  // by address
    // Every block that can be released is among these; some may have been taken since.
    std::vector<uint32_t> releasable;
    size_t releasable_kept = 0;  // when the others were last forgotten
  };
  struct Segment {
    uint64_t base = 0;
    uint64_t size = 0;
    uint64_t page = 0;  // 0: not expandable
  };

  bool small(const StreamList& list) const { return pools_[list.pool].small; }
  uint32_t find_list(uint64_t stream, uint32_t pool, bool small) const;
  uint32_t list_for(uint64_t stream, uint32_t pool, bool small);
  bool collects_garbage() const { return limits_.allowed != 0 && settings_.gc_threshold > 0; }

  uint32_t make_block(uint64_t address, uint64_t size, uint32_t list, uint32_t segment);
  void drop_block(uint32_t index);
  uint64_t order_of(const Block& block) const;
  void insert_free(uint32_t index);
  void erase_free(uint32_t index);
  void insert_unmapped(uint32_t index);
  void erase_unmapped(uint32_t index);
  bool mergeable(uint32_t into, uint32_t from) const;
  void try_merge(uint32_t into, uint32_t from);

  FreeSet::Place find_free(const StreamList& list, uint64_t size) const;
  uint32_t take_free(uint32_t list, uint64_t size);
  uint32_t ask_driver(uint32_t list, uint64_t size);
  uint32_t allocate_segment(uint32_t list, uint64_t size);
  void place(uint32_t id, uint32_t index, uint64_t size, uint64_t requested);
  void free_block(uint32_t index);
  void note_peaks();
  void note_largest(uint32_t list);
  void complete_first(size_t count);

  uint64_t expandable_size(uint32_t index) const;
  uint32_t find_expandable(uint32_t list, uint64_t size);
  uint32_t allocate_expandable(uint32_t list, uint64_t size);
  bool map(uint32_t index, uint64_t size);
  void unmap(uint32_t index);
  void add_existing_expandable(const ExistingSegment& segment, uint32_t list);
  uint32_t fill_existing(const ExistingSegment& segment, uint32_t list, uint32_t segment_index,
                         uint32_t previous);

  void collect_garbage();
  bool release_oversize(uint32_t list, uint64_t size);
  void release_everything();
  void release_pool(uint32_t pool);
  void keep_releasable(StreamList& list) const;
  void release_segment(uint32_t index);

  AllocatorSettings settings_;
  AllocatorLimits limits_;
  SegmentAddresses& addresses_;
  TieBreak tie_break_;
  BlockStore<Block> blocks_;
  std::vector<BlockPool> pools_;
  std::vector<StreamList> lists_;
  std::map<std::tuple<uint64_t, uint32_t, bool>, uint32_t> list_of_;  // by stream, pool, small
  MaximumOf largest_free_;                                            // by list
  std::vector<Segment> segments_;
  std::vector<uint32_t> block_of_;  // by id; 0: not in use
  std::vector<uint32_t> pending_;   // ids in order of release; some are already completed
  size_t pending_live_ = 0;
  size_t pending_done_ = 0;  // number of the first ones that need not wait any longer
  uint64_t registrations_ = 0;
  mutable uint32_t last_list_[2] = {0, 0};
  MemoryTotals totals_;
  AllocatorCounts counts_;
  ReservedPeak peak_;
  uint64_t allocated_peak_ = 0;
  uint64_t requested_peak_ = 0;
};

}  // namespace tidemark
