// What a program holds beside its weights and its step when memory runs out: a data set, a pool, a
// result of the warm-up, copies for saving. No smaller batch makes it smaller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct HeldLine {
  uint32_t stack = 0;  // of its first block
  std::string line;    // "load data.py:9"
  uint64_t bytes = 0;
  std::vector<uint32_t> rows;  // allocations, in the order of birth
};

// The event at which the model runs for the first time: what the program made before was not
// computed by a step. 0: no model runs.
uint32_t begin_of_first_pass(const DeviceEvidence& d);

// Lines of the program that hold at least `least_bytes` after an event, the largest first.
std::vector<HeldLine> lines_held_at(const DeviceEvidence& d, uint32_t event, uint64_t least_bytes);

// "data.py:9 holds 10.8 GiB (300 blocks), engine.py:55 4.0 GiB (8 blocks), whatever the batch is";
// without the last words where all are inputs.
std::string held_text(const DeviceEvidence& d, const std::vector<HeldLine>& lines);

// Also at others of these lines that hold as much in as many blocks, such as keys and values.
Advice hold_less(const DeviceEvidence& d, const HeldLine& line, const std::vector<HeldLine>& lines);

}  // namespace tidemark
