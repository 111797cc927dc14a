// The blocks of a stretch of time: allocated in it, freed in it, kept after it, or both allocated
// and freed in it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "export/time_range.h"

namespace tidemark::view {

// The events [first, last) of a range. Its two ends belong to it; what existed before the recording
// was allocated before it.
struct StretchEvents {
  uint32_t first = 0;
  uint32_t last = 0;

  bool has(uint32_t event) const { return event >= first && event < last; }
  uint32_t count() const { return last - first; }
};
StretchEvents events_of(const AllocationHistory& memory, const TimeRange& range);
// The range of the events [first, last) where they share no time with those after them.
TimeRange range_of(const AllocationHistory& memory, uint32_t first, uint32_t last);

enum class StretchPart : uint8_t { kAllocated, kFreed, kKept, kShortLived };
inline constexpr size_t kStretchParts = 4;

// Indexes of allocations.
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

}  // namespace tidemark::view
