// Traces made by rule, of any length, in the shape of a training run: memory rises through the
// forward pass and falls through the backward pass of every step.
#pragma once

#include <cstdint>

#include "analysis/trace_model.h"
#include "proto/trace_reader.h"

namespace tidemark::view {

struct SyntheticOptions {
  uint64_t events = 10'000;  // per rank
  uint32_t ranks = 1;
  uint32_t seed = 1;
  uint32_t slots = 1024;  // of one MiB; a block takes one to three
  uint32_t stacks = 200;
  uint32_t events_per_step = 4'000;
  bool marks = true;
  bool oom = true;
  uint64_t spike_bytes = 0;  // one block of this size, freed by the very next event, half way
};

// An anonymous file in memory.
TraceReader synthetic_trace(const SyntheticOptions& options);

TraceModel synthetic_model(const SyntheticOptions& options);

}  // namespace tidemark::view
