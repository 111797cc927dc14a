// What each allocation is for: parameter, gradient, optimizer state, activation, input, temporary,
// communication.
//
// Exact where the trace says so (tags of the recorder, categories of torch.profiler). Else from two
// things that every history has: the stack of an allocation, and what happened during its life.
// What was made in the forward pass and outlives a piece of the backward pass is an activation;
// what the backward pass made and an optimizer step met is a gradient; what neither met is a
// temporary.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/insight/stack_roles.h"
#include "analysis/insight/steps.h"

namespace tidemark {

// How sure a category is, in tenths; 10: the trace says so.
using Confidence = uint8_t;

struct Categories {
  std::vector<Category> of;  // one per allocation
  std::vector<Confidence> confidence;
  // Made in a forward pass, kept as for a backward pass, and none came in their lives.
  std::vector<uint32_t> kept_without_backward;
  bool has_backward = false;
  bool has_optimizer = false;
};

// `use_recorded`: whether categories that the trace has are taken; tests of the inference say no.
Categories categorize(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, const Steps& steps, bool use_recorded = true);

// Gives every allocation of a trace the category that the report counts it under, for whoever lists
// allocations one by one.
void infer_categories(TraceModel& trace);

}  // namespace tidemark
