// Rounds of a loop that each add a token to an answer.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/columns/allocation_columns.h"

namespace tidemark {

// Whether a line allocates as much more in most rounds as in the one before, a longer cache with
// every token, and begins anew from time to time. `rounds`: the allocations that begin one, in
// order.
bool adds_tokens(const AllocationColumns& allocations, const std::vector<uint32_t>& rounds);

}  // namespace tidemark
