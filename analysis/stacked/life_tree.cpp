#include "analysis/stacked/life_tree.h"

namespace tidemark {

LifeTree::LifeTree(const AllocationHistory& memory) : memory_(&memory) {
  const AllocationColumns& blocks = memory.allocations;
  if (blocks.empty()) return;
  for (const AllocationKind& k : blocks.kinds()) largest_ = std::max(largest_, k.block_bytes);
  // A block belongs to the first class whose least size it has, and with it to all after that one.
  std::vector<uint8_t> class_of_kind(blocks.kinds().size());
  for (size_t k = 0; k < class_of_kind.size(); ++k) {
    uint32_t c = 0;
    while (c + 1 < kClasses && blocks.kinds()[k].block_bytes < (largest_ >> c)) ++c;
    class_of_kind[k] = static_cast<uint8_t>(c);
  }
  std::vector<Node> nodes((blocks.size() + kLeaf - 1) / kLeaf, Node{});
  for (size_t b = 0; b < blocks.size(); ++b) {
    uint32_t& latest = nodes[b / kLeaf][class_of_kind[blocks.kind(b)]];
    latest = std::max(latest, blocks.release(b));
  }
  for (Node& node : nodes) {
    for (uint32_t c = 1; c < kClasses; ++c) node[c] = std::max(node[c], node[c - 1]);
  }
  levels_.push_back(std::move(nodes));
  while (levels_.back().size() > 1) {
    const std::vector<Node>& below = levels_.back();
    std::vector<Node> above((below.size() + kFan - 1) / kFan, Node{});
    for (size_t i = 0; i < below.size(); ++i) {
      Node& node = above[i / kFan];
      for (uint32_t c = 0; c < kClasses; ++c) node[c] = std::max(node[c], below[i][c]);
    }
    levels_.push_back(std::move(above));
  }
}

uint32_t LifeTree::born_by(uint32_t event) const {
  uint32_t low = 0;
  auto high = static_cast<uint32_t>(memory_->allocations.size());
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (memory_->allocations.birth(middle) <= event) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace tidemark
