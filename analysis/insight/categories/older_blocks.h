// Blocks that are older than the history have no stack, and the stacks of a program's own modules
// and optimizers say little. What the history itself allocates tells which sizes parameters, their
// states and caches have.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/insight/categories/categories.h"

namespace tidemark {

// What the history allocates.
struct KnownSizes {
  struct Gradients {
    std::vector<uint32_t> all;
    std::vector<uint32_t> held;  // alive when something other than the backward pass allocates
  };
  std::unordered_map<uint64_t, Gradients> gradients;  // by size
  std::vector<uint32_t> flat_gradients;               // of FSDP
  std::unordered_set<uint64_t> gathered_sizes;        // of what FSDP allocates
  std::unordered_set<uint64_t> cache_sizes;
  std::unordered_set<uint64_t> kept_sizes;    // of what the program keeps
  std::unordered_set<uint64_t> result_sizes;  // large ones, of forward passes
  // Not in a program of functions, without modules and an optimizer.
  bool may_have_states = true;
  bool only_optimizes = false;   // neither forward nor backward passes
  uint64_t workspace_bytes = 0;  // of cuBLAS's workspaces; 0: either of the usual sizes
  std::vector<uint32_t> set_up;  // rows: made by constructors of the program, and kept
};

// Sets the categories of the older blocks and of known.set_up; all others are known.
// `use_recorded`: keep those that the trace states.
void sort_older_blocks(const ProcessModel& process, const AllocationHistory& model,
                       const StackRoles& roles, const Steps& steps, const KnownSizes& known,
                       bool use_recorded, Categories& out);

}  // namespace tidemark
