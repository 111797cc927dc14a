// Weights that take so much of the memory that a smaller batch does not help: which lines made
// them, whether some are there twice, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Weights of one line, made without a forward pass in between.
struct WeightsOfLine {
  uint32_t stack = 0;  // from that line on; 0: older than the history
  uint64_t bytes = 0;
  std::vector<uint32_t> rows;  // allocations, in the order of birth
};

struct HeldWeights {
  uint64_t bytes = 0;
  std::vector<WeightsOfLine> lines;  // the largest first
  // The largest blocks of the same or half the sizes of earlier weights that are alive, too, and
  // these; empty: there are none as large as asked for.
  WeightsOfLine copy;
  WeightsOfLine original;
  bool is_halved = false;  // the copy has half their precision
  // Both were made before anything ran, and stay through several steps: a second model.
  bool side_by_side = false;
  // How often that line made weights of these sizes that are alive, and what they take together.
  size_t times = 0;
  uint64_t times_bytes = 0;

  bool has_copy() const { return copy.bytes != 0; }
};

// What is alive after an event. A smaller copy than `least_copy_bytes` is not looked for.
HeldWeights weights_held_at(const DeviceEvidence& d, uint32_t event, uint64_t least_copy_bytes);

// "weights take 2.5 GiB, which the batch does not change: 2.3 GiB of train.py:14, ..."
std::string weights_text(const Dictionary& names, const HeldWeights& weights);

// `failed`: the request was one for more of them.
Advice smaller_weights(const DeviceEvidence& d, const HeldWeights& weights, bool failed);

// What is freed if each time only the newest of them are kept, or one of them for all.
uint64_t freed_by_one_copy(const HeldWeights& weights);

// Whether a stack goes through the line that made weights.
bool makes_weights(const DeviceEvidence& d, const HeldWeights& weights, uint32_t stack);

}  // namespace tidemark
