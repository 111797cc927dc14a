// The memory that already existed when the recorded history began.
//
// A snapshot holds the allocator's full state at its end and a history that may begin late or have
// lost its beginning. Undoing that history backwards from the full state gives the segments and
// blocks that existed before the first recorded event.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/base/address_table.h"
#include "analysis/history/allocator_rules.h"
#include "analysis/history/block_store.h"
#include "proto/rows.h"

namespace tidemark {

struct SeedBlock {
  uint64_t address = 0;
  uint64_t size_bytes = 0;  // exact if in the end state, else by the allocator's rules
  uint64_t requested_bytes = 0;
  uint32_t stack = 0;
  bool pending_free = false;
};

struct SeedSegment {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t stream = 0;
  uint32_t stack = 0;
  uint32_t pool = 0;
  bool expandable = false;
  bool small = false;
};

// The state of one device, going back in time.
class SeedState {
 public:
  void add(const SegmentState& segment);
  void add(const BlockState& block);

  // Undoes one event. Call in reverse order.
  void undo(const FrameworkEvent& event);
  // The pool of the next segment that appears, going forward again. Events before torch 2.12 do not
  // name it; the end state does for segments that still exist.
  uint32_t take_pool_of_growth();
  // The stack that the end state gives for the block of the next allocation, going forward again; 0
  // if it has none. With context="state", torch names stacks there only.
  uint32_t take_stack_of_allocation();

  std::vector<SeedSegment> segments() const;
  std::vector<SeedBlock> blocks(const AllocatorRules& rules) const;

 private:
  // Removes a range of addresses from the segments. Returns the pool it belonged to.
  uint32_t remove_segments(uint64_t address, uint64_t size);
  // The end of the mapped range that holds `address`, at most `limit`; `limit` if there is none.
  uint64_t end_of_range(uint64_t address, uint64_t limit) const;
  void put_block(const SeedBlock& block);

  std::map<uint64_t, SeedSegment> segments_;
  AddressTable block_at_;  // address -> index in blocks_
  BlockStore<SeedBlock> blocks_;
  std::vector<uint32_t> growth_pools_;  // the last segment first
  struct EndStack {
    uint64_t allocation;  // counted from the end
    uint32_t stack;
  };
  std::vector<EndStack> end_stacks_;  // of blocks alive at the end, the last allocation first
  uint64_t undone_allocations_ = 0;
};

}  // namespace tidemark
