#include "viewer/model/flame/flame_tree.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/insight/module_tree.h"
#include "proto/base/hash.h"
#include "viewer/model/flame/flame_stacks.h"
#include "viewer/model/frame_text.h"

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
constexpr uint64_t kPendingKey = kNoStackKey + 2;

using Sums = std::map<uint64_t, Sum>;

// Stacks without the frames of the allocator and of the unwinder at their inner ends.
class InnerEnds {
 public:
  explicit InnerEnds(const Dictionary& names) : names_(&names) {}

  uint32_t cut(uint32_t stack) {
    const auto [known, fresh] = cut_.try_emplace(stack, stack);
    if (!fresh) return known->second;
    uint32_t at = stack;
    while (names_->stack(at).parent != 0 && is_allocators(names_->stack(at).frame)) {
      at = names_->stack(at).parent;
    }
    // A stack of nothing else stays whole.
    const bool left = at != 0 && !is_allocators(names_->stack(at).frame);
    return cut_[stack] = left ? at : stack;
  }

 private:
  bool is_allocators(uint32_t frame) {
    const auto [known, fresh] = frames_.try_emplace(frame, false);
    if (fresh) known->second = is_allocator_frame(names_->frame_text(frame));
    return known->second;
  }

  const Dictionary* names_;
  std::unordered_map<uint32_t, uint32_t> cut_;
  std::unordered_map<uint32_t, bool> frames_;
};

uint64_t key_of(uint32_t stack, bool before_recording, InnerEnds& ends) {
  if (stack != 0) return ends.cut(stack);
  return before_recording ? kBeforeKey : kNoStackKey;
}

Sums sum_by_stack(const AllocationHistory& memory, const Dictionary& names,
                  std::span<const uint32_t> blocks) {
  Sums sums;
  InnerEnds ends(names);
  for (const uint32_t i : blocks) {
    const Allocation& a = memory.allocations[i];
    sums[key_of(a.stack, a.seeded, ends)] +=
        {a.block_bytes, static_cast<int64_t>(a.block_bytes), 1};
  }
  return sums;
}

Sums sum_by_stack(const FlameSide& side) {
  Sums sums;
  InnerEnds ends(side.names);
  for (const StackRow& row : side.live.stacks) {
    sums[key_of(row.stack, row.before_recording, ends)] +=
        {row.bytes, static_cast<int64_t>(row.bytes), row.count};
  }
  if (side.live.pending_count != 0) {
    sums[kPendingKey] = {side.live.pending_bytes, static_cast<int64_t>(side.live.pending_bytes),
                         side.live.pending_count};
  }
  return sums;
}

// Adds every stack to its parents. Parents have smaller ids, so one pass from the end is enough.
void add_to_parents(Sums& sums, const FlameStacks& stacks) {
  for (auto it = sums.rbegin(); it != sums.rend(); ++it) {
    if (it->first >= kNoStackKey) continue;
    const uint32_t parent = stacks.parent(static_cast<uint32_t>(it->first));
    if (parent != 0) sums[parent] += it->second;
  }
}

FlameNode node_of(uint64_t key, const Sum& sum, const FlameStacks& stacks) {
  FlameNode node;
  node.key = key;
  node.bytes = sum.bytes;
  node.net = sum.net;
  node.count = sum.count;
  if (key >= kNoStackKey) {
    node.kind = key == kBeforeKey    ? FlameKind::kBeforeRecording
                : key == kPendingKey ? FlameKind::kPending
                                     : FlameKind::kNoStack;
  } else {
    node.stack = static_cast<uint32_t>(key);
    node.frame = stacks.frame(node.stack);
    node.other = FlameStacks::is_other(node.stack);
  }
  return node;
}

using Children = std::unordered_map<uint64_t, std::vector<FlameNode>>;  // by the parent's key

Children top_down(Sums sums, const FlameStacks& stacks) {
  add_to_parents(sums, stacks);
  Children children;
  for (const auto& [key, sum] : sums) {
    if (sum.bytes == 0) continue;
    const FlameNode node = node_of(key, sum, stacks);
    children[node.stack == 0 ? 0 : stacks.parent(node.stack)].push_back(node);
  }
  return children;
}

// One numbering for the frames of two processes: frames are matched by their text, and those of
// this process keep their numbers.
class FrameNumbers {
 public:
  FrameNumbers(const Sums& sums, const FlameStacks& stacks) : stacks_(&stacks) {
    if (!stacks.has_other()) return;
    for (const auto& [key, sum] : sums) {
      if (key >= kNoStackKey) continue;
      for (auto at = static_cast<uint32_t>(key); at != 0; at = stacks.parent(at)) {
        if (FlameStacks::is_other(at) || !seen_.insert(stacks.frame(at)).second) continue;
        by_text_.try_emplace(stacks.frame_text(at), stacks.frame(at));
      }
    }
  }

  uint32_t of(uint32_t stack) {
    const uint32_t frame = stacks_->frame(stack);
    if (!FlameStacks::is_other(stack)) return frame;
    const auto [known, added] = others_.try_emplace(frame, frame | FlameStacks::kOtherBit);
    if (added) {
      const auto same = by_text_.find(stacks_->frame_text(stack));
      if (same != by_text_.end()) known->second = same->second;
    }
    return known->second;
  }

 private:
  const FlameStacks* stacks_;
  std::unordered_set<uint32_t> seen_;
  std::unordered_map<std::string, uint32_t> by_text_;  // of this process
  std::unordered_map<uint32_t, uint32_t> others_;
};

uint64_t key_below(uint64_t parent, uint32_t frame) {
  // 0 is reserved for the root.
  return mix_bits(parent ^ (frame + kGoldenRatio)) | 1;
}

Children bottom_up(const Sums& sums, const FlameStacks& stacks) {
  FrameNumbers numbers(sums, stacks);
  struct Found {
    FlameNode node;
    uint64_t parent = 0;
  };
  std::unordered_map<uint64_t, Found> nodes;
  std::vector<uint64_t> in_order;  // the tree must not depend on the order of the map
  const auto add = [&](FlameNode node, uint64_t parent, const Sum& sum) {
    const auto [it, fresh] = nodes.try_emplace(node.key, Found{node, parent});
    if (fresh) in_order.push_back(node.key);
    FlameNode& to = it->second.node;
    to.bytes += sum.bytes;
    to.net += sum.net;
    to.count += sum.count;
  };
  for (const auto& [key, sum] : sums) {
    if (sum.bytes == 0) continue;
    if (key >= kNoStackKey) {
      add(node_of(key, {}, stacks), 0, sum);
      continue;
    }
    uint64_t parent = 0;
    for (auto at = static_cast<uint32_t>(key); at != 0; at = stacks.parent(at)) {
      FlameNode node;
      node.key = key_below(parent, numbers.of(at));
      node.frame = stacks.frame(at);
      node.other = FlameStacks::is_other(at);
      add(node, parent, sum);
      parent = node.key;
    }
  }
  Children children;
  for (const uint64_t key : in_order) {
    const Found& found = nodes.at(key);
    children[found.parent].push_back(found.node);
  }
  return children;
}

FlameTree lay_out(Children children, const FlameNode& root) {
  FlameTree tree;
  tree.nodes.push_back(root);
  for (uint32_t i = 0; i < tree.nodes.size(); ++i) {
    const FlameNode parent = tree.nodes[i];
    const auto found = children.find(parent.key);
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

template <typename Totals>
FlameNode root_of(const Totals& sums) {
  FlameNode root;
  root.kind = FlameKind::kRoot;
  for (const auto& [key, sum] : sums) {
    root.bytes += sum.bytes;
    root.net += sum.net;
    root.count += sum.count;
  }
  return root;
}

FlameTree build(const Sums& recorded, FlameStacks stacks, FlameOrder order) {
  std::vector<uint32_t> ids;
  for (const auto& [key, sum] : recorded) {
    if (key < kNoStackKey) ids.push_back(static_cast<uint32_t>(key));
  }
  stacks.hide_interpreter(ids);
  Sums sums;
  for (const auto& [key, sum] : recorded) {
    const uint64_t shown = key < kNoStackKey ? stacks.shown(static_cast<uint32_t>(key)) : key;
    sums[shown != 0 ? shown : kNoStackKey] += sum;
  }
  return lay_out(order == FlameOrder::kBottomUp ? bottom_up(sums, stacks) : top_down(sums, stacks),
                 root_of(sums));
}

// By path; pending frees under a name that no path has.
using ModuleSums = std::map<std::string, Sum>;
constexpr std::string_view kPendingPath = ".pending";

ModuleSums sum_by_module(const ModuleSide& side) {
  std::unordered_map<uint32_t, Sum> by_id;
  ModuleSums sums;
  for (const uint32_t i : side.blocks) {
    const Allocation a = side.memory.allocations[i];
    const Sum sum{a.block_bytes, static_cast<int64_t>(a.block_bytes), 1};
    if (side.state != nullptr && side.state->is_pending(side.memory, i)) {
      sums[std::string(kPendingPath)] += sum;
    } else {
      by_id[side.process.nn_module_of(a)] += sum;
    }
  }
  for (const auto& [id, sum] : by_id) sums[side.process.names.nn_module_text(id)] += sum;
  return sums;
}

uint64_t key_of_path(std::string_view path) {
  return std::hash<std::string_view>()(path) | 1;
}

FlameTree build(const ModuleSums& sums) {
  std::map<std::string, Sum, std::less<>> all;  // with what is inside
  for (const auto& [path, sum] : sums) {
    if (path == kPendingPath) {
      all[path] += sum;
      continue;
    }
    for (const std::string_view prefix : module_prefixes(path)) all[std::string(prefix)] += sum;
  }
  Children children;
  std::vector<std::string> names;
  for (const auto& [path, sum] : all) {
    if (sum.bytes == 0) continue;
    FlameNode node;
    node.key = key_of_path(path);
    node.bytes = sum.bytes;
    node.net = sum.net;
    node.count = sum.count;
    node.kind = path == kPendingPath ? FlameKind::kPending : FlameKind::kModule;
    node.frame = static_cast<uint32_t>(names.size());
    const std::vector<std::string_view> way = module_prefixes(path);
    const bool top = way.size() == 1 || node.kind == FlameKind::kPending;
    const std::string_view outer = top ? std::string_view() : way[way.size() - 2];
    names.push_back(path.empty() ? "no module" : path.substr(top ? 0 : outer.size() + 1));
    children[top ? 0 : key_of_path(outer)].push_back(node);
  }
  FlameTree tree = lay_out(std::move(children), root_of(sums));
  tree.names = std::move(names);
  return tree;
}

}  // namespace

FlameTree FlameTree::of(const FlameSide& side, FlameOrder order) {
  return build(sum_by_stack(side), FlameStacks(side.names), order);
}

FlameTree FlameTree::of_blocks(const AllocationHistory& memory, const Dictionary& names,
                               std::span<const uint32_t> blocks, FlameOrder order) {
  return build(sum_by_stack(memory, names, blocks), FlameStacks(names), order);
}

FlameTree FlameTree::difference(const FlameSide& before, const FlameSide& after, FlameOrder order) {
  FlameStacks stacks(after.names);
  Sums sums = sum_by_stack(after);
  if (&before.names != &after.names) {
    for (const auto& [key, sum] : sums) {
      if (key < kNoStackKey) stacks.know(static_cast<uint32_t>(key));
    }
  }
  for (const auto& [key, sum] : sum_by_stack(before)) {
    const uint64_t here =
        key < kNoStackKey ? stacks.translate(before.names, static_cast<uint32_t>(key)) : key;
    sums[here].net -= sum.net;
  }
  for (auto& [key, s] : sums) s.bytes = static_cast<uint64_t>(s.net < 0 ? -s.net : s.net);
  return build(sums, std::move(stacks), order);
}

FlameTree FlameTree::by_module(const ModuleSide& side) {
  return build(sum_by_module(side));
}

FlameTree FlameTree::module_difference(const ModuleSide& before, const ModuleSide& after) {
  ModuleSums sums = sum_by_module(after);
  for (const auto& [path, sum] : sum_by_module(before)) sums[path].net -= sum.net;
  for (auto& [path, s] : sums) s.bytes = static_cast<uint64_t>(s.net < 0 ? -s.net : s.net);
  return build(sums);
}

uint32_t FlameTree::find(uint64_t key) const {
  if (key == 0) return 0;
  const auto it =
      std::find_if(nodes.begin(), nodes.end(), [&](const FlameNode& n) { return n.key == key; });
  return it == nodes.end() ? 0 : static_cast<uint32_t>(it - nodes.begin());
}

}  // namespace tidemark::view
