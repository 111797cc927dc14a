// Gradients that are older than the history and stay: those of a program that adds to them, because
// it never clears them or sets them to zero.
//
// PyTorch's AccumulateGrad keeps the gradient that a backward pass computes as the parameter's own
// if it has none, and otherwise adds it and lets it go. So each parameter has one block of its size
// in each backward pass that is freed before the pass ends, and none that outlives it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

// How many blocks there are for each parameter, its gradient included, among `older`, rows from
// before the history. 0: the history does not show that gradients are among them.
uint64_t sets_with_gradients(const AllocationHistory& model, const StackRoles& roles,
                             const std::vector<uint32_t>& older);

}  // namespace tidemark
