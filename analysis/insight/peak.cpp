#include "analysis/insight/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

namespace tidemark {

namespace {

struct Sum {
  uint64_t bytes = 0;
  uint64_t count = 0;

  void add(uint64_t more) {
    bytes += more;
    ++count;
  }
  void operator+=(const Sum& other) {
    bytes += other.bytes;
    count += other.count;
  }
};

uint32_t step_of(const Steps& steps, uint32_t event) {
  const auto it = std::upper_bound(steps.boundaries.begin(), steps.boundaries.end(), event);
  return static_cast<uint32_t>(it - steps.boundaries.begin());
}

}  // namespace

std::vector<StackShare> shares_by_stack(const AllocationHistory& model, const MemoryState& state,
                                        std::span<const Category> categories,
                                        const Dictionary& names, size_t limit, bool absent) {
  struct StackSum : Sum {
    std::map<Category, uint64_t> by_category;
    std::pair<Category, uint64_t> largest() const {
      const auto most =
          std::max_element(by_category.begin(), by_category.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (most == by_category.end()) return {Category::kUnknown, 0};
      return *most;
    }
  };
  std::unordered_map<uint64_t, StackSum> sums;
  if (absent) {
    for (const AllocationKind& kind : model.allocations.kinds()) {
      if (kind.stack != 0) sums.try_emplace(kind.stack);
    }
  }
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const Allocation& a = model.allocations[i];
    const bool unknown_origin = a.seeded && a.stack == 0;
    StackSum& sum = sums[(uint64_t{unknown_origin} << 32) | a.stack];
    sum.add(a.block_bytes);
    sum.by_category[categories[i]] += a.block_bytes;
  }
  std::vector<std::pair<uint64_t, StackSum>> order(sums.begin(), sums.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
  });
  if (order.size() > limit) order.resize(limit);
  std::vector<StackShare> shares;
  for (const auto& [key, sum] : order) {
    const auto [category, bytes] = sum.largest();
    shares.push_back({sum.bytes, sum.count, (key >> 32) != 0,
                      names.stack_text(static_cast<uint32_t>(key)), category, bytes});
  }
  return shares;
}

std::vector<SizeShare> shares_by_size(const AllocationHistory& model, const MemoryState& state) {
  // The allocator's own thresholds: small blocks, blocks that share a segment, blocks with their
  // own.
  constexpr std::array<uint64_t, 5> kFrom = {0, kSmallBytes + 1, uint64_t{10} << 20,
                                             uint64_t{100} << 20, uint64_t{1} << 30};
  std::array<Sum, kFrom.size()> sums{};
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const uint64_t bytes = model.allocations[i].block_bytes;
    const auto behind = std::upper_bound(kFrom.begin(), kFrom.end(), bytes);
    sums[static_cast<size_t>(behind - kFrom.begin()) - 1].add(bytes);
  }
  std::vector<SizeShare> shares;
  for (size_t i = 0; i < kFrom.size(); ++i) {
    if (sums[i].count != 0) shares.push_back({kFrom[i], sums[i].bytes, sums[i].count});
  }
  return shares;
}

std::vector<AgeShare> shares_by_age(const AllocationHistory& model, const MemoryState& state,
                                    const Steps& steps) {
  constexpr std::array<const char*, 5> kNames = {"this step", "the step before", "2 to 10 steps",
                                                 "more than 10 steps", "before the first step"};
  if (steps.count() == 0) return {};
  const uint32_t now = step_of(steps, state.event);
  std::array<Sum, kNames.size()> sums{};
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const Allocation& a = model.allocations[i];
    const uint32_t then = step_of(steps, a.birth);
    const uint32_t age = now - std::min(now, then);
    const size_t line = then == 0 || a.seeded ? 4 : age == 0 ? 0 : age == 1 ? 1 : age <= 10 ? 2 : 3;
    sums[line].add(a.block_bytes);
  }
  std::vector<AgeShare> shares;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (sums[i].count != 0) shares.push_back({kNames[i], sums[i].bytes, sums[i].count});
  }
  return shares;
}

namespace {

// By stack: native frames between those of Python, and outside of them, are the interpreter's. What
// a line of Python called has none of Python below it.
std::vector<bool> interpreter_stacks(const Dictionary& names, const std::vector<Sum>& by_stack) {
  std::vector<bool> machinery(by_stack.size(), false);
  std::vector<bool> above_python(by_stack.size(), false);
  for (uint32_t id = static_cast<uint32_t>(by_stack.size()); id-- > 1;) {  // parents come first
    if (by_stack[id].count == 0) continue;
    const Stack& stack = names.stack(id);
    const FrameKind kind = names.frame(stack.frame).kind;
    machinery[id] = above_python[id] && kind == FrameKind::kNative;
    if (above_python[id] || kind == FrameKind::kPython) above_python[stack.parent] = true;
  }
  return machinery;
}

}  // namespace

std::vector<TreeNode> stack_tree(const AllocationHistory& model, const MemoryState& state,
                                 const Dictionary& names, double least_share) {
  // As deep as Python's recursion gets, and more. What a forged file has below is folded.
  constexpr uint32_t kDeepest = 2048;
  std::vector<Sum> by_stack(std::max<size_t>(names.stack_count(), 1));  // with all it calls
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const uint32_t stack = model.allocations[i].stack;
    by_stack[stack < by_stack.size() ? stack : 0].add(model.allocations[i].block_bytes);
  }
  for (uint32_t id = static_cast<uint32_t>(by_stack.size()); id-- > 1;) {  // parents come first
    by_stack[names.stack(id).parent] += by_stack[id];
  }
  const std::vector<bool> machinery = interpreter_stacks(names, by_stack);
  struct Node {
    uint32_t depth = 0;
    std::map<uint32_t, uint32_t> children;  // frame -> node
    Sum sum;
  };
  std::vector<Node> nodes(1);
  std::vector<uint32_t> node_of(by_stack.size());  // different stacks may read the same
  for (uint32_t id = 1; id < by_stack.size(); ++id) {
    if (by_stack[id].count == 0) continue;
    uint32_t& node = node_of[id];
    node = node_of[names.stack(id).parent];
    if (machinery[id]) continue;
    const uint32_t depth = nodes[node].depth + 1;
    if (depth > kDeepest) continue;
    const auto [child, added] = nodes[node].children.try_emplace(
        names.stack(id).frame, static_cast<uint32_t>(nodes.size()));
    node = child->second;
    if (added) nodes.push_back({depth, {}, {}});
    nodes[node].sum += by_stack[id];
  }
  std::vector<TreeNode> tree;
  const auto least = static_cast<uint64_t>(least_share * static_cast<double>(by_stack[0].bytes));
  struct Pending {
    uint32_t node = 0;
    uint32_t parent = 0;
    uint32_t frame = 0;
  };
  std::vector<Pending> pending;
  const auto push_children = [&](uint32_t node, uint32_t parent) {
    std::vector<std::pair<uint32_t, uint32_t>> order(nodes[node].children.begin(),
                                                     nodes[node].children.end());
    std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      const uint64_t x = nodes[a.second].sum.bytes;
      const uint64_t y = nodes[b.second].sum.bytes;
      return x != y ? x < y : a.first > b.first;  // the stack reverses it: largest first
    });
    for (const auto& [frame, child] : order) {
      if (nodes[child].sum.bytes >= std::max<uint64_t>(1, least)) {
        pending.push_back({child, parent, frame});
      }
    }
  };
  push_children(0, 0);
  while (!pending.empty()) {
    const Pending next = pending.back();
    pending.pop_back();
    tree.push_back({names.frame_text(next.frame), next.parent, nodes[next.node].sum.bytes,
                    nodes[next.node].sum.count});
    push_children(next.node, static_cast<uint32_t>(tree.size()));
  }
  return tree;
}

std::optional<Allocation> pushed_by(const AllocationHistory& model, uint32_t event) {
  if (model.event_count() == 0) return std::nullopt;
  for (uint32_t e = std::min(event, model.event_count() - 1) + 1; e-- > 0;) {
    if (model.change[e] == Change::kBirth) return model.allocations[model.subject[e]];
  }
  return std::nullopt;
}

}  // namespace tidemark
