// Graphs of past steps that fill the memory after so few steps that no growth can be measured.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct LeftGraphs {
  uint64_t steps = 0;           // of which each left one
  uint64_t bytes_per_step = 0;  // the most
  uint64_t saved_bytes = 0;     // at the peak, had they been freed at the ends of their steps
  uint32_t stack = 0;           // of most bytes
};

// Activations of several operations from each of several past steps that were alive when memory ran
// out; nothing if there are none.
std::optional<LeftGraphs> graphs_left_at_failure(const DeviceEvidence& d);

// Whether memory ran out because of what past steps, failed ones or a validation left: advice for a
// smaller training step would only delay the error.
bool fails_for_what_was_left(const DeviceEvidence& d);

}  // namespace tidemark
