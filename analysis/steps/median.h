// The median of values; the upper one of two; 0 without values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tidemark {

template <typename Value>
Value median(std::vector<Value> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tidemark
