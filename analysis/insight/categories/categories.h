// The purpose of each allocation: parameter, gradient, optimizer state, activation, input,
// temporary, communication, KV cache, workspace of a library.
//
// Exact where the trace states it (tags of the recorder, categories of torch.profiler). Otherwise
// inferred from two things that every history has: the stack of an allocation, and what happened
// during its lifetime. Memory allocated in the forward pass that outlives a part of the backward
// pass is an activation; memory allocated in the backward pass that is alive in an optimizer step
// is a gradient; the rest is temporary. Blocks older than the history have no stack; gradients tell
// which sizes parameters and optimizer states have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/history/memory_state.h"
#include "analysis/steps/stack_roles.h"
#include "analysis/steps/steps.h"

namespace tidemark {

// How certain a category is, in tenths; 10: stated by the trace.
using Confidence = uint8_t;

struct Guess {
  Category category = Category::kUnknown;
  Confidence confidence = 0;
};

struct Categories {
  std::vector<Category> of;  // one per allocation
  std::vector<Confidence> confidence;
  // Allocated in a forward pass and kept as if for a backward pass, but none happened in their
  // lifetime.
  std::vector<uint32_t> kept_without_backward;
  // Copies of weights in 16 bits that autocast makes, in order.
  std::vector<uint32_t> weight_copies;
  bool copies_are_named = false;      // by native frames; else most weights have such blocks
  bool graphs_end_with_pass = false;  // those of a program without a backward pass
  bool has_backward = false;
  bool has_optimizer = false;
  // Of blocks older than the history, only graphs tell that the program trains: those that are
  // called parameters may be states of an optimizer, or gradients.
  bool older_may_be_states = false;
};

// `use_recorded`: whether to use categories stated by the trace; tests of the inference do not.
Categories categorize(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, const Steps& steps, bool use_recorded = true);

struct CategoryShare {
  Category category = Category::kUnknown;
  uint64_t bytes = 0;
  uint64_t count = 0;
  double confidence = 0;  // mean over the bytes; 1: stated by the trace
  bool may_be_states = false;

  // What outputs say of it: "", ", probably".
  std::string_view doubt() const {
    if (category == Category::kUnknown || confidence >= 0.6) return "";
    return may_be_states ? ", or optimizer state" : ", probably";
  }
};

// Of what is allocated at an instant; pending frees are left out. The largest first.
std::vector<CategoryShare> shares_by_category(const AllocationHistory& model,
                                              const MemoryState& state,
                                              const Categories& categories);

// Sets the category of every allocation of a trace to the one the report counts it under, for
// outputs that list single allocations.
void infer_categories(TraceModel& trace);

}  // namespace tidemark
