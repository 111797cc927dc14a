// The live blocks of one instant, added up. Panels draw from the sums, so that a frame does not
// cost more where more blocks are live.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/memory_state.h"
#include "analysis/names/dictionary.h"

namespace tidemark::view {

struct StackRow {
  uint32_t stack = 0;
  bool before_recording = false;
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint64_t largest = 0;
};

struct CategoryRow {
  Category category = Category::kUnknown;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

struct LiveSums {
  std::vector<StackRow> stacks;         // most bytes first, pending frees not counted
  std::vector<CategoryRow> categories;  // the same
  uint64_t pending_bytes = 0;
  uint64_t pending_requested_bytes = 0;
  uint64_t pending_count = 0;
};

LiveSums sums_of_live(const AllocationHistory& memory, const Dictionary& names,
                      const MemoryState& state);

}  // namespace tidemark::view
