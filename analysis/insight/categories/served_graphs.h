// Graphs of a program without a backward pass: a server or a scorer that runs its model without
// torch.no_grad() and keeps results. Without a graph, what a layer computes is freed within the
// pass, but for outputs and the keys and values of a cache: these come from one or two lines of the
// model and are the smaller part of what it allocates.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "analysis/steps/stack_roles.h"

namespace tidemark {

// Stacks of the model whose results most passes keep as a graph; empty: there are no graphs.
// `in_module`: by stack. `workspaces`: by the events of their births.
std::unordered_set<uint32_t> served_graphs(const AllocationHistory& model, const StackRoles& roles,
                                           const std::vector<bool>& in_module,
                                           const std::unordered_set<uint32_t>& workspaces);

}  // namespace tidemark
