// Graphs of what a training step computes beside its loss, such as a metric: no backward pass is
// called on it, but as it is computed with autograd, its operations keep their results until the
// metric itself is freed.
//
// A function of the program, which does not call the model, runs between the forward and the
// backward pass, and returns something small. Large results of its operations are alive after that
// backward pass and are then freed with what it returned, the last first, as a graph is. What
// variables and dictionaries hold is freed in the order in which it was stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/passes/backward_passes.h"

namespace tidemark {

struct SideGraph {
  BackwardPass pass;                  // that does not free it
  std::vector<uint32_t> rows;         // blocks that it keeps, by birth
  uint64_t bytes = 0;                 // of these
  std::vector<uint32_t> temporaries;  // other large blocks of the same call
  uint64_t temporary_bytes = 0;
};

// In order of time.
std::vector<SideGraph> find_side_graphs(const Dictionary& names, const AllocationHistory& model,
                                        std::span<const BackwardPass> passes);

}  // namespace tidemark
