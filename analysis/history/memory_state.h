// The allocator's memory at one instant: segments, the blocks in them, and the holes between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

struct Hole {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint32_t segment = 0;  // index in MemoryState::segments
};

struct MemoryState {
  uint32_t event = 0;
  int64_t time_ns = 0;
  MemoryTotals totals;
  std::vector<SegmentRange> segments;  // by address
  std::vector<uint32_t> live;          // allocations, by address, pending ones included
  std::vector<Hole> holes;             // by address

  // Of `live`: freed by the program, but not yet reusable. Not part of totals.allocated.
  bool is_pending(const AllocationHistory& model, uint32_t allocation) const {
    return model.allocations.release(allocation) <= event;
  }
  uint64_t free_bytes() const { return totals.reserved - std::min(totals.active, totals.reserved); }
  const Hole* largest_hole() const;  // the first of that size; null: none
  uint64_t largest_hole_bytes() const;
};

// Segments by address, updated event by event: ranges that grow join their neighbours, as in the
// allocator's own snapshots.
class SegmentRanges {
 public:
  SegmentRanges() = default;
  explicit SegmentRanges(std::span<const SegmentRange> ranges);

  // The row of AllocationHistory::segment_changes.
  void apply(const AllocationHistory& model, uint32_t row);
  std::vector<SegmentRange> list() const;
  size_t size() const { return ranges_.size(); }

 private:
  void grow(const SegmentChange& change, uint32_t index);
  void shrink(const SegmentChange& change);

  std::map<uint64_t, SegmentRange> ranges_;
};

// Fills in the holes between the live blocks of each segment.
void find_holes(const AllocationHistory& model, MemoryState& state);

// The state after the given event, from the keyframe before it (analysis/history/state_index.h).
MemoryState state_after(const AllocationHistory& model, uint32_t event);

}  // namespace tidemark
