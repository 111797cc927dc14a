#include "analysis/findings/causes/carried_blocks.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/passes/backward_passes.h"

namespace tidemark {

CarriedBlocks::CarriedBlocks(const DeviceEvidence& d) {
  if (d.categories.has_backward) return;
  find_passes(d);
  const AllocationColumns& all = d.model->allocations;
  carried_.assign(all.size(), false);
  size_t next = 0;                                // pass
  std::unordered_map<uint32_t, size_t> first_of;  // by line: its first block before that
  for (size_t i = 0; i < all.size(); ++i) {
    for (; next < passes_.size() && passes_[next].first <= all.birth(i); ++next) first_of.clear();
    if (next == passes_.size()) break;
    if (d.roles->of(all.stack(i)) != StackRole::kUser) continue;
    if (passes_[next].last >= all.release(i)) continue;
    const auto [line, is_first] = first_of.try_emplace(all.stack(i), i);
    if (!is_first) carried_[i] = carried_[line->second] = true;
  }
  for (const FailedAllocation& failure : d.model->failures) find_pool(d, failure);
}

// What runs between them, a single module, say, is much shorter.
void CarriedBlocks::find_passes(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  bool in_pass = false;
  uint32_t longest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool forward = d.roles->of(all.stack(i)) == StackRole::kForward;
    if (forward && !in_pass) passes_.push_back({all.birth(i), 0, 0});
    in_pass = forward;
    if (!forward) continue;
    passes_.back().last = all.birth(i);
    longest = std::max(longest, ++passes_.back().births);
  }
  std::erase_if(passes_, [&](const Pass& pass) { return 2 * pass.births < longest; });
}

// Block after block of one shape, with nothing else in between, and all are there when the line
// of two of them asks for one more. A variable holds one result while the next is computed.
void CarriedBlocks::find_pool(const DeviceEvidence& d, const FailedAllocation& failure) {
  if (d.roles->of(failure.stack) != StackRole::kUser) return;
  const AllocationColumns& all = d.model->allocations;
  const size_t end = births_within(*d.model, 0, failure.event + 1).end;
  size_t begin = end;
  size_t of_line = 0;
  for (; begin != 0; --begin) {
    const size_t i = begin - 1;
    if (d.roles->of(all.stack(i)) != StackRole::kUser || all.release(i) <= failure.event) break;
    if (!of_one_shape(all.block_bytes(i), failure.requested_bytes)) break;
    of_line += all.stack(i) == failure.stack ? 1U : 0U;
  }
  if (of_line < 2 || has_results(all, failure)) return;
  for (size_t i = begin; i < end; ++i) carried_[i] = true;
}

// Whether the line of a request freed blocks before that were neither carried nor of a pool.
bool CarriedBlocks::has_results(const AllocationColumns& all,
                                const FailedAllocation& failure) const {
  for (size_t i = 0; i < all.size() && all.birth(i) <= failure.event; ++i) {
    const bool freed = all.release(i) <= failure.event;
    if (freed && all.stack(i) == failure.stack && !all.seeded(i) && !carried_[i]) return true;
  }
  return false;
}

}  // namespace tidemark
