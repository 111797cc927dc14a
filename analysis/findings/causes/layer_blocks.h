// Blocks that the repeated layers of a model share: each of them made its own at the same lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "analysis/findings/evidence.h"

namespace tidemark {

// The blocks that most layers have of one line.
struct LayerBlocks {
  size_t layers = 0;   // that have one each; 0: no line has three or more in different layers
  uint32_t stack = 0;  // of that line
  uint64_t bytes = 0;  // of one such block
  uint64_t largest_bytes = 0;  // of a block of any line that repeats
  // Whether lines that repeat like this made three quarters of all the blocks, so that no single
  // operation did. Where the nn.Modules are not known, two such lines tell.
  bool are_most = false;
};

// `rows`: allocations. Layers are told apart by their nn.Modules, where these are known.
LayerBlocks blocks_of_layers(const DeviceEvidence& d, std::span<const size_t> rows);

// Whether a fused kernel of attention ran, or PyTorch's function that chooses one is on a stack:
// the program calls it already.
bool has_fused_attention(const Dictionary& names);

}  // namespace tidemark
