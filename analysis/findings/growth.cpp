#include "analysis/findings/growth.h"

#include <unordered_set>

#include "analysis/history/rehearsal.h"

namespace tidemark {

namespace {
constexpr uint64_t kLeastGrowth = uint64_t{8} << 20;
constexpr size_t kGraphStacks = 3;  // a graph is kept through several operations of each layer
}  // namespace

bool grows(const DeviceEvidence& d) {
  if (d.model == nullptr || d.steps.growth_bytes_per_step <= 0) return false;
  const double steps = d.steps.window_last + 1 - d.steps.window_first;
  const double gained = d.steps.growth_bytes_per_step * steps;
  return gained >= static_cast<double>(kLeastGrowth) &&
         gained >= 0.05 * static_cast<double>(d.peak_bytes());
}

bool grows_by_graphs(const DeviceEvidence& d) {
  if (!grows(d) || !d.categories.has_backward) return false;
  double all = 0;
  double forward = 0;
  size_t stacks = 0;
  for (const StackGrowth& g : d.steps.growing) {
    all += g.bytes_per_step;
    if (d.roles->of(g.stack) != StackRole::kForward) continue;
    forward += g.bytes_per_step;
    ++stacks;
  }
  return stacks >= kGraphStacks && forward >= 0.5 * all;
}

uint64_t saved_by_letting_go(const DeviceEvidence& d) {
  std::unordered_set<uint32_t> stacks;
  for (const StackGrowth& g : d.steps.growing) stacks.insert(g.stack);
  Rehearsal released(*d.model);
  for (const Allocation& a : d.model->allocations) {
    if (!stacks.contains(a.stack) || a.birth < d.steps.boundaries.front()) continue;
    released.leave_out_from(a, d.steps.end_of_step(a.birth));
  }
  return released.saved_bytes();
}

uint64_t full_at_step(const DeviceEvidence& d) {
  if (!grows(d) || d.limit.bytes == 0 || d.ran_out()) return 0;
  const uint64_t high = d.steps.levels.back().high_bytes;
  if (high >= d.limit.bytes) return d.steps.count();
  const double left = static_cast<double>(d.limit.bytes - high) / d.steps.growth_bytes_per_step;
  return left > 1e12 ? 0 : d.steps.count() + static_cast<uint64_t>(left);
}

}  // namespace tidemark
