// A recording that ends after the first step of the optimizer: AdamW makes its states in that step,
// after the passes whose memory they are added to in every later one.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/insight/categories/categories.h"
#include "analysis/passes/backward_passes.h"

namespace tidemark {

// Whether no pass was recorded that began with all of the optimizer's states.
bool ends_with_first_step(const AllocationHistory& model, const Categories& categories,
                          const std::vector<BackwardPass>& passes);

// Rows of the states that this step made and kept, in order; empty: there are none, or it is not
// the only one.
std::vector<uint32_t> states_of_only_step(const AllocationHistory& model,
                                          const Categories& categories,
                                          const std::vector<BackwardPass>& passes);

}  // namespace tidemark
