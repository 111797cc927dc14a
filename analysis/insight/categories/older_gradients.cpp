#include "analysis/insight/categories/older_gradients.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "analysis/insight/lives/block_life.h"

namespace tidemark {

namespace {

constexpr uint64_t kMostSets = 4;  // parameter, gradient, and the two states of Adam

// Of one size.
struct Blocks {
  uint64_t older = 0;
  uint64_t added = 0;  // the most in one backward pass
  uint64_t held = 0;   // by backward passes
  uint64_t in_pass = 0;
  uint32_t pass = 0;  // in which they were counted
};

using BySize = std::unordered_map<uint64_t, Blocks>;

void count_gradients(const AllocationHistory& model, const StackRoles& roles, BySize& sizes) {
  uint32_t end = kNever;  // the last allocation of the pass
  uint32_t pass = 0;
  for (size_t i = model.allocations.size(); i-- > 0;) {
    model.passed(i);
    if (model.allocations.seeded(i)) break;  // they come first
    if (roles.of(model.allocations.stack(i)) != StackRole::kBackward) {
      end = kNever;
      ++pass;
      continue;
    }
    const Allocation& a = model.allocations[i];
    if (end == kNever) end = a.birth;
    const auto found = sizes.find(a.asked_bytes());
    if (found == sizes.end()) continue;
    Blocks& blocks = found->second;
    if (stays(a) || a.release > end + kLastFrees) {
      ++blocks.held;
      continue;
    }
    blocks.in_pass = blocks.pass == pass ? blocks.in_pass + 1 : 1;
    blocks.pass = pass;
    blocks.added = std::max(blocks.added, blocks.in_pass);
  }
}

}  // namespace

uint64_t sets_with_gradients(const AllocationHistory& model, const StackRoles& roles,
                             const std::vector<uint32_t>& older) {
  BySize sizes;
  uint64_t bytes = 0;
  for (const uint32_t i : older) {
    const Allocation& a = model.allocations[i];
    if (!stays(a) || !is_older(a)) continue;
    ++sizes[a.asked_bytes()].older;
    bytes += a.asked_bytes();
  }
  count_gradients(model, roles, sizes);
  std::array<uint64_t, kMostSets + 1> votes{};  // bytes
  for (const auto& [size, blocks] : sizes) {
    if (blocks.added == 0 || blocks.held != 0) continue;
    for (uint64_t sets = 1; sets <= kMostSets; ++sets) {
      if (blocks.older == sets * blocks.added) votes[sets] += size * blocks.older;
    }
  }
  const auto most = std::max_element(votes.begin(), votes.end());
  const auto sets = static_cast<uint64_t>(most - votes.begin());
  return sets >= 2 && 2 * *most > bytes ? sets : 0;
}

}  // namespace tidemark
