// The line to name, where a finding's bytes come from several.
#pragma once

#include <cstdint>

namespace tidemark {

// The stack with the most bytes; of equal ones the first, so that reports do not vary. 0: none.
template <typename BytesByStack>
uint32_t largest_stack(const BytesByStack& bytes_by_stack) {
  uint32_t largest = 0;
  uint64_t most = 0;
  for (const auto& [stack, bytes] : bytes_by_stack) {
    if (bytes < most || (bytes == most && stack > largest)) continue;
    largest = stack;
    most = bytes;
  }
  return largest;
}

}  // namespace tidemark
