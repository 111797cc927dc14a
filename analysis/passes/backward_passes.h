// The backward passes of a training program on one device, each with the forward pass or passes
// before it.
//
// Found from what the stacks say of each allocation: memory allocated inside a module's call
// belongs to a forward pass, memory of autograd's threads to a backward pass. What a backward pass
// computes again (checkpointed layers) is part of it. Two calls of backward() with no forward pass
// and no optimizer step between them are one pass.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

struct BackwardPass {
  uint32_t forward_first = 0;  // event: the first allocation after the pass before it
  uint32_t first = 0;          // events of its first and last allocation
  uint32_t last = 0;
  uint32_t end = 0;  // the event at which the next forward pass or the optimizer begins

  // Whether a block was allocated before the backward pass and freed in it.
  bool consumes(const Allocation& a) const {
    return a.birth < first && a.release >= first && a.release < end;
  }
};

// Which stacks, by id, compute layers again inside a backward pass.
std::vector<bool> recomputing_stacks(const Dictionary& names);

// In order of time.
std::vector<BackwardPass> find_backward_passes(const Dictionary& names,
                                               const AllocationHistory& model,
                                               const StackRoles& roles);

// Rows of AllocationColumns whose birth lies in [first, last).
struct BirthRange {
  size_t begin = 0;
  size_t end = 0;
};
BirthRange births_within(const AllocationHistory& model, uint32_t first, uint32_t last);

}  // namespace tidemark
