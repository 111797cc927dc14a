// Which group each block of a history belongs to: its category, its line of code, its stream, the
// segment it lies in. Groups are numbered in the order in which they are stacked.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

struct BlockGroups {
  uint32_t count = 0;
  // One of the three is filled: by the kind of the block, block by block, or by the category.
  std::vector<uint32_t> of_kind;
  std::vector<uint32_t> of_block;
  std::vector<uint32_t> of_category;
  // Groups that are segments: the group of every segment change. Blocks in no known segment have
  // the group `count`.
  std::vector<uint32_t> of_change;

  bool are_segments() const { return !of_change.empty(); }
  uint32_t of(const AllocationHistory& memory, uint32_t block) const {
    if (!of_kind.empty()) return of_kind[memory.allocations.kind(block)];
    if (!of_block.empty()) return of_block[block];
    return of_category[static_cast<size_t>(memory.allocations.category(block))];
  }
};

// The order in which categories are stacked: what lives longest is at the bottom.
inline constexpr std::array kCategoryOrder = {
    Category::kParameter,      Category::kOptimizerState, Category::kGradient,
    Category::kKvCache,        Category::kInput,          Category::kActivation,
    Category::kAutogradDetail, Category::kCommunication,  Category::kWorkspace,
    Category::kTemporary,      Category::kUnknown};
BlockGroups category_groups();
// All blocks in one group.
BlockGroups one_group(const AllocationHistory& memory);
// A segment for every one that the allocator reserved, by birth. Ranges of an expandable segment
// that touched at any time are one.
BlockGroups segment_groups(const AllocationHistory& memory);

}  // namespace tidemark
