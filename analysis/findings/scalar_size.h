// Blocks that are as small as a loss.
#pragma once

#include <cstdint>

namespace tidemark {

// Where the requested bytes were not recorded, a scalar has the least size of a block.
inline bool is_scalar_size(uint64_t asked_bytes) {
  constexpr uint64_t kScalarBytes = 8;
  constexpr uint64_t kLeastBlock = 512;
  return asked_bytes <= kScalarBytes || asked_bytes == kLeastBlock;
}

}  // namespace tidemark
