// The blocks of a stretch of time: allocated in it, freed in it, kept after it, or both allocated
// and freed in it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "export/time_range.h"

namespace tidemark::view {

enum class StretchPart : uint8_t { kAllocated, kFreed, kKept, kShortLived };
inline constexpr size_t kStretchParts = 4;

// Indexes of allocations. The end of the range belongs to it.
std::vector<uint32_t> blocks_in(const AllocationHistory& memory, const TimeRange& range,
                                StretchPart part);

struct StretchSum {
  uint64_t bytes = 0;
  uint64_t count = 0;
};
// One for each part.
using StretchSums = std::array<StretchSum, kStretchParts>;
StretchSums sums_in(const AllocationHistory& memory, const TimeRange& range);

// Bytes of those among the blocks that were allocated before the range.
uint64_t older_bytes(const AllocationHistory& memory, const TimeRange& range,
                     const std::vector<uint32_t>& blocks);

// How many events the range has: what the functions above cost.
uint32_t events_in(const AllocationHistory& memory, const TimeRange& range);

}  // namespace tidemark::view
