// Categories known to the recorder: which tensors are parameters, gradients, optimizer state.
#pragma once

#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

// Sets the category of the tagged allocations. Tags refer to an address and a time.
void apply_tags(AllocationHistory& model, std::vector<TensorTag> tags);

}  // namespace tidemark
