// The line that holds most of what is in use: what to look at where no change is known to help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Blocks of one line, however it was called, or all gradients.
struct LargestLine {
  uint64_t bytes = 0;
  std::vector<std::string> frames;  // of most of its bytes; empty: most is older than the history
  std::string place;                // empty: gradients
  bool in_backward_pass = false;    // which has no line
  bool in_optimizer = false;
  bool waits_for_backward = false;   // most of it is activations
  std::vector<std::string> as_much;  // other lines, which hold nearly as much
  bool equal = true;                 // exactly so
};

// After an event; none if most of what is in use has no stack.
std::optional<LargestLine> largest_line(const DeviceEvidence& d, uint32_t event);

Advice look_at(const DeviceEvidence& d, const LargestLine& largest);

}  // namespace tidemark
