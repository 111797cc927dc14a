// Rounds of a loop whose lines do not tell where each begins.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/columns/allocation_columns.h"

namespace tidemark {

// A round is named by the allocation that begins it; `line_of` has, for each allocation, the line
// of the loop's function that it was made at or under, 0 for other functions.

// Whether what a line allocates in a round lives on in the round after the next: requests that run
// side by side. One after the other, each is gone when its round ends, or when the next result
// takes its place.
bool rounds_overlap(const AllocationColumns& allocations, const std::vector<uint32_t>& rounds,
                    const std::vector<int64_t>& line_of, int64_t line);

// Rounds that allocate at one line only are not seen to go back. Where every other round makes as
// many allocations at its first line, one with a multiple of them is as many rounds, provided that
// each of these gives back what it made.
std::vector<uint32_t> split_rounds(const AllocationColumns& allocations,
                                   const std::vector<uint32_t>& rounds,
                                   const std::vector<int64_t>& line_of);

}  // namespace tidemark
