// Forward passes whose activations wait for one backward pass over the sum of their losses.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

// A forward pass that ends with a loss.
struct ForwardPass {
  std::vector<size_t> kept;       // rows, alive when the backward pass begins
  std::set<uint64_t> operations;  // of what is kept
  uint64_t bytes = 0;
  uint64_t mean_release = 0;
  uint32_t first_release = kNever;  // events
  uint32_t end = 0;
  bool fed = false;  // the program allocated its input after the pass before
};

// Those that one backward pass frees.
struct Accumulation {
  std::vector<ForwardPass> passes;
  uint32_t stack = 0;         // of the line that computes or adds the losses
  bool of_functions = false;  // of the program, which calls hardly any module in them
};

// Of two forward passes or more; empty otherwise, as in most programs.
Accumulation accumulation_before(const DeviceEvidence& d, const BackwardPass& backward);

// The same of the step that memory ran out in, before its backward pass: the whole passes, without
// the one that failed. `known`: of an earlier step; where there is none, in the first step, the
// losses are known by the names of their functions.
Accumulation accumulation_at_failure(const DeviceEvidence& d, const Accumulation& known);

// Whether the forward passes around the peak wait for one backward pass: more and smaller ones
// would keep as much.
bool passes_wait_for_one_backward(const DeviceEvidence& d);

}  // namespace tidemark
