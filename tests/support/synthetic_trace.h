// Generated traces of any length that resemble a training run: memory rises in the forward pass and
// falls in the backward pass of every step.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/load/trace_model.h"
#include "proto/read/trace_reader.h"

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
  uint32_t kernels_per_event = 0;
  bool card = false;          // samples of the card, ten times a second
  bool repeat_sizes = false;  // a line of the program always requests the same size
  bool recorded = false;      // by tidemark itself: there is no state at the end to undo
  uint64_t spike_bytes = 0;   // one block of this size halfway, freed by the next event
};

// Writes a file; false when that failed.
bool write_synthetic_trace(const SyntheticOptions& options, const std::string& path);

// Writes an anonymous file in memory.
TraceReader synthetic_trace(const SyntheticOptions& options);

TraceModel synthetic_model(const SyntheticOptions& options);

}  // namespace tidemark::view
