// Categories that the recorder knew: which tensors are parameters, gradients, optimizer state.
#pragma once

#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

// Gives the tagged allocations their category. Tags name an address and a time.
void apply_tags(AllocationHistory& model, std::vector<TensorTag> tags);

}  // namespace tidemark
