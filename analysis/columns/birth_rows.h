// Rows of allocations by when they were born: they are in that order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "analysis/columns/allocation_columns.h"

namespace tidemark {

// The first row that was born at an event or later.
inline size_t first_born_from(const AllocationColumns& all, uint32_t event) {
  size_t low = 0;
  size_t high = all.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (all.birth(middle) < event) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace tidemark
