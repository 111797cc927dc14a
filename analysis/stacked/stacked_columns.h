// A stacked timeline: in every column of pixels, the memory as bands on top of each other that sum
// to the curve.
//
// A block of at least `least_bytes` is a band of its own, wherever it is in use at the instant that
// a column shows. All other blocks of a group are one band, above those that have their own, as in
// PyTorch's page: most of them come and go, and what stays is flat below them. Where blocks of all
// groups are together, small ones of about the same age, or life, are a band at their place among
// the large ones (small_blocks.h); if there are too many to look at, those that stay, where a block
// would be that came when they began to matter. The cost grows with
// what is drawn, not with the length of the history: large blocks come from a LifeTree, the rest of
// a group is its total minus its bands.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/stacked/column_samples.h"
#include "analysis/stacked/group_totals.h"
#include "analysis/stacked/life_tree.h"

namespace tidemark {

enum class BandOrder : uint8_t {
  kBirth,  // the oldest block at the bottom; the gap of a freed one is closed
  kLife,   // the one that lives longest at the bottom, so that what stays is flat
};

// What the length of a life is counted in: as on the axis below it.
enum class LifeUnit : uint8_t { kTime, kEvents };
// From birth to release, or to the end of the history.
uint64_t life_of(const AllocationHistory& memory, uint32_t birth, uint32_t release, LifeUnit unit);

enum class BandKind : uint8_t {
  kBlock,    // one block
  kRest,     // the blocks of a group that have no band of their own
  kFree,     // the free part of a segment
  kOthers,   // groups that are nowhere large enough for a band
  kPending,  // freed by the program, but still in use by a stream; above the curve
};

struct StackBand {
  BandKind kind = BandKind::kBlock;
  uint32_t block = 0;  // of kBlock
  uint32_t group = 0;
  uint32_t first_column = UINT32_MAX;  // of kBlock
  uint32_t last_column = 0;
  uint64_t first_key = 0;  // of kRest: the blocks with these stacking_key()s
  uint64_t end_key = UINT64_MAX;
};

struct StackOptions {
  uint64_t least_bytes = 1;  // of blocks and of groups
  bool blocks_alone = true;  // false: groups only
  bool by_group = true;      // false: blocks of all groups together, the rests above them
  bool pending = false;      // with a band for pending frees
  BandOrder order = BandOrder::kBirth;
  LifeUnit life = LifeUnit::kTime;
  std::vector<bool> hidden;  // per group; empty: none
  // Only bands within these heights are listed.
  uint64_t bottom_bytes = 0;
  uint64_t top_bytes = UINT64_MAX;
};

struct StackedColumns {
  StackOptions options;
  std::vector<StackBand> bands;
  ColumnSamples samples;
  // Of column i, from the bottom: bands[slice_bands[k]] ends at slice_ends[k], for k in
  // [starts[i], starts[i + 1]); the first begins at base[i].
  std::vector<uint32_t> starts;
  std::vector<uint64_t> base;
  std::vector<uint32_t> slice_bands;
  std::vector<uint64_t> slice_ends;
  std::vector<uint64_t> group_highest;  // of each group, also of a hidden one
  uint64_t highest = 0;                 // of all columns
  uint32_t other_groups = 0;            // in the band kOthers

  uint32_t count() const { return samples.count(); }
  static constexpr uint32_t kNothing = UINT32_MAX;
  // The slice of a column at this height; kNothing: above all bands.
  uint32_t slice_at(uint32_t column, uint64_t bytes) const;
  // The slice of a band in a column.
  uint32_t slice_of(uint32_t column, uint32_t band) const;
  uint64_t begin_of(uint32_t column, uint32_t slice) const {
    return slice == starts[column] ? base[column] : slice_ends[slice - 1];
  }
};

// Grows from the bottom of a stack to its top, except among blocks that are older than the history.
uint64_t stacking_key(const AllocationHistory& memory, uint32_t block, const StackOptions& options);

// The block of a kRest band at this event and this many bytes above the lower edge of the band.
// None: the event has fewer.
std::optional<uint32_t> block_in_rest(const AllocationHistory& memory, const LifeTree& lives,
                                      const BlockGroups& groups, const StackOptions& options,
                                      const StackBand& rest, uint32_t event, uint64_t bytes);

// Of segments the curve is the reserved one, otherwise the allocated one; the samples must be those
// of that curve.
StackedColumns stack_columns(const AllocationHistory& memory, const LifeTree& lives,
                             const BlockGroups& groups, const GroupTotals& totals,
                             ColumnSamples samples, const StackOptions& options);

}  // namespace tidemark
