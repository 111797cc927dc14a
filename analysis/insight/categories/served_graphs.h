// Graphs of a program without a backward pass: a server or a scorer that runs its model without
// torch.no_grad(). Without a graph, what a layer computes is freed when the layer returns, but for
// outputs and the keys and values of a cache: these come from one or two lines of the model and are
// the smaller part of what it allocates.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "analysis/steps/stack_roles.h"

namespace tidemark {

struct ServedGraphs {
  // Of the model, whose results most passes keep as a graph; empty: there are no graphs.
  std::unordered_set<uint32_t> stacks;
  bool outlive_passes = false;  // the program keeps results; else they end with their pass
  // Blocks that are older than the history and were freed in it: the graph of the pass before the
  // first one, in increasing order.
  std::vector<uint32_t> older;
};

// `in_module`: by stack. `left_out`: workspaces and copies of weights, by the events of their
// births.
ServedGraphs served_graphs(const AllocationHistory& model, const StackRoles& roles,
                           const std::vector<bool>& in_module,
                           const std::unordered_set<uint32_t>& left_out);

}  // namespace tidemark
