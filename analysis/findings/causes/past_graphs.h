// The graph of one past step that is alive in every step, beside that of the step itself.
//
// A backward pass frees what it uses. What it leaves (retain_graph=True) and no later one uses is
// alive for nothing until the program lets go of the loss. A loss whose backward pass comes after
// the next forward pass holds its graph as long.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct PastGraph {
  bool waits = false;        // for its backward pass; otherwise it has had it
  uint64_t passes = 0;       // backward passes with such a graph
  uint64_t bytes = 0;        // the most of one
  uint64_t peak_bytes = 0;   // of those that are alive at the peak, and had their backward pass
  uint64_t peak_passes = 0;  // of which these are
  // Backward passes go through the graphs of earlier ones: a state of the program goes from one
  // forward pass into the next.
  bool carries_state = false;
  // Another backward pass goes through a part of each graph, as that of a generator, whose result
  // its discriminator was given.
  bool shares = false;
  uint64_t saved_bytes = 0;  // at the peak, had it been freed in time
  uint64_t at_failure_bytes = 0;
  uint32_t stack = 0;  // of most bytes
};

// Nothing if there is none, or not in most steps.
std::optional<PastGraph> graph_of_past_step(const DeviceEvidence& d);

// Whether memory ran out while such a graph took more than was requested and a tenth of the memory.
bool fails_for_past_graph(const DeviceEvidence& d);

}  // namespace tidemark
