// Traces made by rule, of any length, in the shape of a training run: memory rises through the
// forward pass and falls through the backward pass of every step.
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
  bool card = false;          // what the card says is used, ten times a second
  bool repeat_sizes = false;  // a line of the program asks for the same size again and again
  uint64_t spike_bytes = 0;   // one block of this size, freed by the very next event, half way
};

// Into a file; false when that failed.
bool write_synthetic_trace(const SyntheticOptions& options, const std::string& path);

// An anonymous file in memory.
TraceReader synthetic_trace(const SyntheticOptions& options);

TraceModel synthetic_model(const SyntheticOptions& options);

}  // namespace tidemark::view
