#include "viewer/model/flame_tree.h"

#include <algorithm>
#include <map>

namespace tidemark::view {

namespace {

struct Sum {
  uint64_t bytes = 0;
  int64_t net = 0;
  uint64_t count = 0;

  Sum& operator+=(const Sum& other) {
    bytes += other.bytes;
    net += other.net;
    count += other.count;
    return *this;
  }
};

// Stacks that have no frames get keys above every stack id.
constexpr uint64_t kNoStackKey = uint64_t{1} << 32;
constexpr uint64_t kBeforeKey = kNoStackKey + 1;

using Sums = std::map<uint64_t, Sum>;

uint64_t key_of(const Allocation& a) {
  if (a.stack != 0) return a.stack;
  return a.seeded ? kBeforeKey : kNoStackKey;
}

Sums sum_by_stack(const FrameworkModel& model, const MemoryState& state) {
  Sums sums;
  for (const uint32_t i : state.live) {
    const Allocation& a = model.allocations[i];
    sums[key_of(a)] += {a.block_bytes, static_cast<int64_t>(a.block_bytes), 1};
  }
  return sums;
}

// Adds every stack to the ones it grew from. Parents have smaller ids, so one way down is enough.
void add_to_parents(Sums& sums, const Dictionary& names) {
  for (auto it = sums.rbegin(); it != sums.rend(); ++it) {
    if (it->first >= kNoStackKey) continue;
    const uint32_t parent = names.stack(static_cast<uint32_t>(it->first)).parent;
    if (parent != 0) sums[parent] += it->second;
  }
}

FlameNode node_of(uint64_t key, const Sum& sum, const Dictionary& names) {
  FlameNode node;
  node.bytes = sum.bytes;
  node.net = sum.net;
  node.count = sum.count;
  if (key == kBeforeKey || key == kNoStackKey) {
    node.kind = key == kBeforeKey ? FlameKind::kBeforeRecording : FlameKind::kNoStack;
  } else {
    node.stack = static_cast<uint32_t>(key);
    node.frame = names.stack(node.stack).frame;
  }
  return node;
}

FlameTree build(Sums sums, const Dictionary& names) {
  FlameTree tree;
  FlameNode root;
  root.kind = FlameKind::kRoot;
  for (const auto& [key, sum] : sums) {
    root.bytes += sum.bytes;
    root.net += sum.net;
    root.count += sum.count;
  }
  add_to_parents(sums, names);
  std::map<uint64_t, std::vector<FlameNode>> children;  // by the parent's stack, 0 for the root
  for (const auto& [key, sum] : sums) {
    if (sum.bytes == 0) continue;
    const FlameNode node = node_of(key, sum, names);
    children[node.stack == 0 ? 0 : names.stack(node.stack).parent].push_back(node);
  }
  tree.nodes.push_back(root);
  for (uint32_t i = 0; i < tree.nodes.size(); ++i) {
    const FlameNode parent = tree.nodes[i];
    if (i != 0 && parent.stack == 0) continue;
    const auto found = children.find(parent.stack);
    if (found == children.end()) continue;
    std::stable_sort(found->second.begin(), found->second.end(),
                     [](const FlameNode& a, const FlameNode& b) { return a.bytes > b.bytes; });
    uint64_t begin = parent.begin;
    for (FlameNode& child : found->second) {
      child.parent = i;
      child.depth = parent.depth + 1;
      child.begin = begin;
      begin += child.bytes;
      tree.depth = std::max(tree.depth, child.depth);
      tree.nodes.push_back(child);
    }
  }
  return tree;
}

}  // namespace

FlameTree FlameTree::of(const FrameworkModel& model, const Dictionary& names,
                        const MemoryState& state) {
  return build(sum_by_stack(model, state), names);
}

FlameTree FlameTree::difference(const FrameworkModel& model, const Dictionary& names,
                                const MemoryState& before, const MemoryState& after) {
  Sums sums = sum_by_stack(model, after);
  for (const auto& [key, sum] : sum_by_stack(model, before)) {
    Sum& s = sums[key];
    s.net -= sum.net;
  }
  for (auto& [key, s] : sums) s.bytes = static_cast<uint64_t>(s.net < 0 ? -s.net : s.net);
  return build(std::move(sums), names);
}

uint32_t FlameTree::find(uint32_t stack) const {
  if (stack == 0) return 0;
  const auto it = std::find_if(nodes.begin(), nodes.end(),
                               [&](const FlameNode& n) { return n.stack == stack; });
  return it == nodes.end() ? 0 : static_cast<uint32_t>(it - nodes.begin());
}

}  // namespace tidemark::view
