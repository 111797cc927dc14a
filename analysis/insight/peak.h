// What is allocated at one instant: by stack (as a list and as a tree), size and age, and the
// allocation that reached this level. Shares add up to MemoryTotals::allocated: pending frees
// are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/history/memory_state.h"
#include "analysis/steps/steps.h"

namespace tidemark {

struct StackShare {
  uint64_t bytes = 0;
  uint64_t count = 0;
  bool before_history = false;      // allocated before recording began: no stack can be known
  std::vector<std::string> frames;  // innermost first
  Category category = Category::kUnknown;  // of most of the bytes
  uint64_t category_bytes = 0;
};

// Blocks of at least `from_bytes`, up to that of the next share.
struct SizeShare {
  uint64_t from_bytes = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// Blocks allocated in a range of steps before this one, or before the first step.
struct AgeShare {
  std::string age;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// A node of the call tree, outermost frames first; children follow their parent.
struct TreeNode {
  std::string frame;
  uint32_t parent = 0;  // index of the parent + 1; 0: none
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// With `absent`, also the stacks of the history that have nothing allocated at this instant.
std::vector<StackShare> shares_by_stack(const AllocationHistory& model, const MemoryState& state,
                                        std::span<const Category> categories,
                                        const Dictionary& names, size_t limit, bool absent = false);
std::vector<SizeShare> shares_by_size(const AllocationHistory& model, const MemoryState& state);
std::vector<AgeShare> shares_by_age(const AllocationHistory& model, const MemoryState& state,
                                    const Steps& steps);
// Nodes below `least_share` of the whole are folded into their parents.
std::vector<TreeNode> stack_tree(const AllocationHistory& model, const MemoryState& state,
                                 const Dictionary& names, double least_share);

// The last allocation at or before the event; null when there is none.
std::optional<Allocation> pushed_by(const AllocationHistory& model, uint32_t event);

}  // namespace tidemark
