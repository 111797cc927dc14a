// The blocks and holes of a segment, laid out in a row of a given width.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/memory_state.h"

namespace tidemark::view {

enum class CellKind : uint8_t {
  kBlock,
  kHole,
  kFolded,  // several blocks and holes, each too narrow to see
};

struct MapCell {
  float begin_px = 0;
  float end_px = 0;
  CellKind kind = CellKind::kBlock;
  uint32_t allocation = 0;  // kBlock; kFolded: the largest block in it
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t used_bytes = 0;
  uint32_t blocks = 0;
};

enum class RowOrder : uint8_t { kAddress, kSize, kFree };

// Finds the blocks and holes of a segment without a search per row. Made for one state.
class MapLayout {
 public:
  MapLayout() = default;
  MapLayout(const AllocationHistory& model, const MemoryState& state);

  // Segments in the order of the rows.
  std::vector<uint32_t> rows(RowOrder order) const;
  // The cells of a segment drawn `width_px` wide, from left to right without gaps.
  std::vector<MapCell> cells(uint32_t segment, float width_px) const;

  uint64_t used_bytes(uint32_t segment) const { return used_[segment]; }
  uint32_t block_count(uint32_t segment) const { return blocks_[segment]; }
  uint32_t hole_count(uint32_t segment) const { return holes_[segment + 1] - holes_[segment]; }
  uint64_t largest_hole(uint32_t segment) const;
  uint64_t largest_segment_bytes() const { return largest_segment_; }
  // The segment of an address, or -1.
  int64_t segment_of(uint64_t address) const;
  // The live allocations before and after this one in its segment; kNever where there is none.
  struct Neighbours {
    uint32_t before = kNever;
    uint32_t after = kNever;
    uint64_t hole_before = 0;
    uint64_t hole_after = 0;
  };
  Neighbours neighbours(uint32_t allocation) const;
  // The hole at an address, and the blocks that pin it: while one of them is live, the segment
  // cannot be returned to the driver.
  struct HolePlace {
    uint64_t address = 0;
    uint64_t size_bytes = 0;  // 0: there is no hole
    uint32_t segment = 0;
    uint32_t before = kNever;
    uint32_t after = kNever;
  };
  HolePlace hole_at(uint64_t address) const;

 private:
  const AllocationHistory* model_ = nullptr;
  const MemoryState* state_ = nullptr;
  std::vector<uint32_t> live_{0};   // per segment: its first block in state.live
  std::vector<uint32_t> holes_{0};  // per segment: its first hole in state.holes
  std::vector<uint64_t> used_;
  std::vector<uint32_t> blocks_;
  uint64_t largest_segment_ = 0;
};

}  // namespace tidemark::view
