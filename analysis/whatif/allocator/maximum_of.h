// The maximum of values that change one at a time: a binary tree of maxima.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidemark {

class MaximumOf {
 public:
  // New values are 0.
  void resize(size_t count) {
    if (count <= leaves_) return;
    std::vector<uint64_t> values(tree_.begin() + static_cast<std::ptrdiff_t>(leaves_), tree_.end());
    leaves_ = std::bit_ceil(count);
    tree_.assign(2 * leaves_, 0);
    std::copy(values.begin(), values.end(), tree_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (size_t i = leaves_; i-- > 1;) tree_[i] = std::max(tree_[2 * i], tree_[2 * i + 1]);
  }

  void set(size_t index, uint64_t value) {
    size_t at = leaves_ + index;
    tree_[at] = value;
    while (at > 1) {
      at /= 2;
      const uint64_t largest = std::max(tree_[2 * at], tree_[2 * at + 1]);
      if (tree_[at] == largest) return;
      tree_[at] = largest;
    }
  }

  uint64_t largest() const { return leaves_ == 0 ? 0 : tree_[1]; }

 private:
  size_t leaves_ = 0;
  std::vector<uint64_t> tree_;  // the children of i are 2 i and 2 i + 1; the root is 1
};

}  // namespace tidemark
