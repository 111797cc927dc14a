// Blocks of half the size of an operation's results that have it by chance.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/columns/allocation_columns.h"

namespace tidemark {

// By row. A result in 16 bits is made next to the same in 32, with nothing but small blocks between
// them. What is computed among blocks of other sizes, as a hidden layer, is another tensor.
std::vector<bool> unrelated_halves(const AllocationColumns& all, uint64_t whole_bytes);

}  // namespace tidemark
