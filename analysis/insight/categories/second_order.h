// Graphs of gradients: what a backward pass with create_graph keeps for a later one, as a penalty
// on gradients or an inner loop of meta-learning needs it.
//
// Such a block is allocated in one backward pass and freed in the course of another. A gradient is
// freed by the program, or added to in place.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

class SecondOrderGraphs {
 public:
  SecondOrderGraphs(const Dictionary& names, const AllocationHistory& model,
                    const StackRoles& roles);

  // Of a block that a backward pass allocated.
  bool hold(const Allocation& a) const;

 private:
  struct Span {  // of a backward pass, from its first allocation to its last
    uint32_t first = 0;
    uint32_t last = 0;
  };
  // The pass that was running at an event; -1: none was.
  int64_t pass_at(uint32_t event) const;

  std::vector<Span> passes_;
};

}  // namespace tidemark
