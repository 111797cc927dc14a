// Finds the large blocks that live past an event without looking at the small and short-lived ones.
//
// A tree over the allocations in the order of their birth. A node knows, for each of kClasses
// sizes, the last event at which one of its blocks of at least that size was still in use; a search
// leaves out every node without a block that is large enough and lives long enough. It takes little
// more than a byte per allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

class LifeTree {
 public:
  // A pass over all allocations. The history must outlive it.
  explicit LifeTree(const AllocationHistory& memory);

  // Calls visit(block) for each of the blocks [first, last) of at least this size that the program
  // frees after the event, in the order of their birth.
  template <typename Visit>
  void visit(uint32_t first, uint32_t last, uint64_t least_bytes, uint32_t event,
             const Visit& visit) const {
    if (first >= last || levels_.empty()) return;
    const Search search{first, last, least_bytes, event, class_of(least_bytes)};
    look_into(levels_.size() - 1, 0, search, visit);
  }

  // The number of allocations born up to an event.
  uint32_t born_by(uint32_t event) const;

 private:
  static constexpr uint32_t kLeaf = 64;
  static constexpr uint32_t kFan = 8;
  static constexpr uint32_t kClasses = 16;
  // By class of size: blocks of at least largest >> class, in the last class all. Of these the
  // latest release.
  using Node = std::array<uint32_t, kClasses>;
  struct Search {
    uint32_t first;
    uint32_t last;
    uint64_t least_bytes;
    uint32_t event;
    uint32_t size_class;
  };

  // The smallest class with all blocks of at least this size.
  uint32_t class_of(uint64_t bytes) const {
    for (uint32_t c = 0; c + 1 < kClasses; ++c) {
      if ((largest_ >> c) <= bytes) return c;
    }
    return kClasses - 1;
  }

  template <typename Visit>
  void look_into(size_t level, size_t node, const Search& s, const Visit& visit) const {
    if (levels_[level][node][s.size_class] <= s.event) return;
    uint64_t width = kLeaf;
    for (size_t i = 0; i < level; ++i) width *= kFan;
    const uint64_t begin = node * width;
    const uint64_t end = begin + width;
    if (end <= s.first || begin >= s.last) return;
    if (level > 0) {
      const size_t last = std::min(levels_[level - 1].size(), (node + 1) * kFan);
      for (size_t child = node * kFan; child < last; ++child) {
        look_into(level - 1, child, s, visit);
      }
      return;
    }
    const auto& blocks = memory_->allocations;
    const auto from = static_cast<uint32_t>(std::max<uint64_t>(begin, s.first));
    const auto to = static_cast<uint32_t>(std::min<uint64_t>(end, s.last));
    for (uint32_t b = from; b < to; ++b) {
      if (blocks.release(b) > s.event && blocks.block_bytes(b) >= s.least_bytes) visit(b);
    }
  }

  const AllocationHistory* memory_;
  uint64_t largest_ = 0;
  std::vector<std::vector<Node>> levels_;  // leaves first
};

}  // namespace tidemark
