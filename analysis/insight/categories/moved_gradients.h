// Gradients that a model has when it is moved to a device or to another type.
//
// Module._apply() of PyTorch's module.py moves each parameter, then its gradient, then the buffers
// of the module, each at a line of its own, in this order.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "analysis/insight/categories/categories.h"

namespace tidemark {

// By stack: those that make such a gradient, and how sure that is.
std::unordered_map<uint32_t, Confidence> moved_gradients(const Dictionary& names,
                                                         const AllocationHistory& model,
                                                         const StackRoles& roles);

}  // namespace tidemark
