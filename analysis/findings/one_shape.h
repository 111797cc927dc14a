// Blocks whose sizes are those of one shape.
#pragma once

#include <cstdint>

namespace tidemark {

// One operation's results have one shape, in one precision or two. Blocks are rounded up.
inline bool of_one_shape(uint64_t bytes, uint64_t largest) {
  const auto is_near = [&](uint64_t b) {
    return b <= largest + largest / 32 && b >= largest - largest / 32;
  };
  return is_near(bytes) || is_near(2 * bytes);
}

}  // namespace tidemark
