// Memory that the allocator holds but that is not in use: its holes, what pins them, and what they
// cost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/history/memory_state.h"
#include "analysis/names/dictionary.h"

namespace tidemark {

// A live block next to a hole: while it lives, its segment cannot be returned to the driver.
struct Pin {
  uint64_t bytes = 0;
  int64_t age_ns = 0;
  std::vector<std::string> frames;
};

struct PinnedHole {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t segment_bytes = 0;
  std::vector<Pin> pins;  // the neighbours, one or two; none: the whole segment is free
};

struct Fragmentation {
  int64_t time_ns = 0;
  uint64_t cached_free_bytes = 0;
  uint64_t holes = 0;
  uint64_t largest_hole_bytes = 0;
  double ratio = 0;               // cached_free_bytes / reserved
  uint64_t releasable_bytes = 0;  // in entirely free segments, but of private pools
  uint64_t peak_cost_bytes = 0;   // reserved peak minus allocated peak
  std::vector<PinnedHole> largest;
};

// The allocator reserves memory for a request, which is served next: before that, the new segment
// is no hole. Returns the event of that allocation, or `event` if none follows.
uint32_t served_after(const AllocationHistory& model, uint32_t event);

// Where holes matter most: at the last out-of-memory error or, without one, at the reserved peak.
// If that is what the process held before its history began, nobody knows when it was reached: then
// at the allocated peak.
struct HolesInstant {
  uint32_t event = 0;
  std::string_view name;  // "reserved peak"
};
HolesInstant worst_for_holes(const AllocationHistory& model);

// The holes that the allocator could have used for a request: those of its stream, of its pool, and
// in segments for requests of its size (small or large).
struct UsableHoles {
  uint64_t bytes = 0;
  uint64_t largest_bytes = 0;
  uint64_t largest_at = 0;  // the first of that size
};
UsableHoles usable_holes(const AllocationHistory& model, const MemoryState& state,
                         const FailedAllocation& request);

Fragmentation fragmentation_of(const AllocationHistory& model, const MemoryState& state,
                               const Dictionary& names, size_t holes_listed);

}  // namespace tidemark
