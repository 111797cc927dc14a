// Rounds of a loop whose lines do not tell where each begins.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/columns/allocation_columns.h"
#include "analysis/names/program_places.h"

namespace tidemark {

// The line of a function at or under which an allocation was made; 0: in another function.
class LineOfAllocation {
 public:
  LineOfAllocation(const AllocationColumns& allocations, const Places& places,
                   std::vector<int64_t> by_place)
      : allocations_(allocations), places_(places), by_place_(std::move(by_place)) {}

  int64_t operator[](uint32_t allocation) const {
    return by_place_[places_.of(allocations_.stack(allocation))];
  }

 private:
  const AllocationColumns& allocations_;
  const Places& places_;
  std::vector<int64_t> by_place_;
};

// A round is named by the allocation that begins it; `line_of` tells lines of the loop's function.

// Whether what a line allocates in a round lives on in the round after the next: requests that run
// side by side. One after the other, each is gone when its round ends, or when the next result
// takes its place.
bool rounds_overlap(const AllocationColumns& allocations, const std::vector<uint32_t>& rounds,
                    const LineOfAllocation& line_of, int64_t line);

// Rounds that allocate at one line only are not seen to go back. Where every other round makes as
// many allocations at its first line, one with a multiple of them is as many rounds, provided that
// each of these gives back what it made.
std::vector<uint32_t> split_rounds(const AllocationColumns& allocations,
                                   const std::vector<uint32_t>& rounds,
                                   const LineOfAllocation& line_of);

}  // namespace tidemark
