#include "analysis/insight/categories/pass_graphs.h"

#include <algorithm>

#include "analysis/insight/categories/kept_graphs.h"

namespace tidemark {

namespace {

// The large blocks of a forward pass, and those of them that outlive it.
struct Outliving {
  uint64_t all = 0;
  uint64_t bytes = 0;
  uint64_t kept = 0;
  uint64_t kept_bytes = 0;
  std::unordered_set<uint32_t> kept_stacks;

  void add(const Allocation& a, bool outlives) {
    ++all;
    bytes += a.block_bytes;
    if (!outlives) return;
    ++kept;
    kept_bytes += a.block_bytes;
    if (kept_stacks.size() < 2) kept_stacks.insert(a.stack);
  }
  // Layers in a loop have one line for several of them.
  bool are_most() const {
    return all >= 3 && 2 * kept >= all && 2 * kept_bytes >= bytes &&
           (kept_stacks.size() >= 2 || kept >= 3);
  }
};

}  // namespace

bool PassGraphs::add(uint32_t row) {
  const AllocationColumns& all = model_.allocations;
  const StackRole role = roles_.of(all.stack(row));
  const bool begins = role == StackRole::kForward && !in_pass_;
  if (role == StackRole::kBackward) end_pass(all.birth(row), kNever);
  if (begins) end_pass(kNever, all.birth(row));
  in_pass_ = role == StackRole::kForward;
  if (in_pass_) pass_.push_back(row);
  return begins;
}

// The forward pass before a backward pass, or before another forward pass. A graph that no backward
// pass uses is alive as a whole when the pass ends. One of a few operations only shows if the
// results of several, and most bytes, are still alive when the next pass begins.
void PassGraphs::end_pass(uint32_t backward, uint32_t next_pass) {
  if (pass_.empty()) return;
  const uint32_t end = model_.allocations.birth(pass_.back());
  int64_t blocks = 0;
  std::unordered_set<uint32_t> stacks;
  Outliving large;
  Outliving large_at_end;
  for (const uint32_t i : pass_) {
    const Allocation& a = model_.allocations[i];
    if (a.block_bytes > kSmallBytes && !workspaces_.contain(a)) {
      large.add(a, meets(a, next_pass));
      large_at_end.add(a, meets(a, end));
    }
    const bool used = a.release > backward && !validates_at(a.stack);
    if (!meets(a, end) || used || copies_.holds(i, parameter_sizes_)) continue;
    ++blocks;
    if (stacks.size() < kGraph.stacks) stacks.insert(a.stack);
  }
  if (blocks >= kGraph.blocks && stacks.size() >= kGraph.stacks) {
    unused_.insert(end);
    graphs_ += fails_before(next_pass) ? 0U : 1U;
  }
  // Its result, and what the last operation works on.
  const bool keeps_little = large_at_end.kept <= 2 && large_at_end.all >= 8;
  if (keeps_little) without_graph_.insert(end);
  const uint32_t stack = model_.allocations.stack(pass_.front());
  if (validates_at(stack) && (large.are_most() || is_freed_backwards())) {
    small_.insert(roles_.caller_of(stack));
  }
  pass_.clear();
}

// Whether an error ended the surveyed pass, and its variables may be kept with it.
bool PassGraphs::fails_before(uint32_t next_pass) const {
  const uint32_t first = model_.allocations.birth(pass_.front());
  return std::any_of(model_.failures.begin(), model_.failures.end(), [&](const auto& failure) {
    return first <= failure.event && failure.event <= next_pass;
  });
}

// Whether the surveyed pass is freed as a graph is.
bool PassGraphs::is_freed_backwards() const {
  std::vector<uint32_t> results = pass_;
  std::erase_if(results, [&](uint32_t i) {
    return workspaces_.contain(model_.allocations[i]) || copies_.holds(i, parameter_sizes_);
  });
  return !graph_freed_backwards(model_, results).empty();
}

}  // namespace tidemark
