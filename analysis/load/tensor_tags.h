// Categories known to the recorder: which tensors are parameters, gradients, optimizer state.
#pragma once

#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

struct TaggedRow {
  uint32_t row = 0;  // of the allocations
  Category category = Category::kUnknown;
};

// The tagged allocations, in the order of the tags. Tags refer to an address and a time.
std::vector<TaggedRow> tagged_rows(const AllocationHistory& model, std::vector<TensorTag> tags);

// Sets their categories.
void apply_tags(AllocationHistory& model, std::vector<TensorTag> tags);

}  // namespace tidemark
