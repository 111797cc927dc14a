#include "analysis/findings/causes/left_graphs.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/findings/causes/kept_by_error.h"
#include "analysis/findings/causes/past_graphs.h"
#include "analysis/findings/growth/growth.h"
#include "analysis/findings/growth/kept_outputs.h"
#include "analysis/findings/growth/time_growth.h"
#include "analysis/findings/largest_stack.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/module_stacks.h"

namespace tidemark {

std::optional<LeftGraphs> graphs_left_at_failure(const DeviceEvidence& d) {
  constexpr uint64_t kLeastSteps = 2;
  constexpr size_t kLeastStacks = 3;
  if (!d.ran_out() || !d.categories.has_backward || d.steps.count() < kLeastSteps) {
    return std::nullopt;
  }
  struct OfStep {
    uint64_t bytes = 0;
    std::unordered_set<uint32_t> stacks;
  };
  std::map<uint32_t, OfStep> by_step;  // by the step's end
  std::unordered_map<uint32_t, uint64_t> by_stack;
  const uint32_t failed = d.model->failures.back().event;
  const std::vector<bool> in_module = module_stacks(d.process->names);
  Rehearsal released(*d.model);
  for (const Allocation& a : d.model->allocations) {
    const uint32_t end = d.steps.end_of_step(a.birth);
    if (a.seeded || end > failed || a.release <= failed || a.block_bytes <= kSmallBytes) continue;
    if (d.roles->of(a.stack) != StackRole::kForward || !in_module[a.stack]) continue;
    OfStep& step = by_step[end];
    step.bytes += a.block_bytes;
    step.stacks.insert(a.stack);
    by_stack[a.stack] += a.block_bytes;
    released.leave_out_from(a, end);
  }
  LeftGraphs left;
  for (const auto& [end, step] : by_step) {
    left.bytes_per_step = std::max(left.bytes_per_step, step.bytes);
  }
  for (const auto& [end, step] : by_step) {
    if (2 * step.bytes >= left.bytes_per_step && step.stacks.size() >= kLeastStacks) ++left.steps;
  }
  left.saved_bytes = released.saved_bytes();
  left.stack = largest_stack(by_stack);
  if (left.steps < kLeastSteps || left.saved_bytes < d.peak_bytes() / 5) return std::nullopt;
  return left;
}

bool fails_for_what_was_left(const DeviceEvidence& d) {
  return d.ran_out() &&
         (d.fails_for_kept_graph() || grows(d) || growth_over_time(d) ||
          graphs_left_at_failure(d) || fails_for_past_graph(d) || fails_for_earlier_error(d) ||
          (d.fails_in_validation() && outputs_kept(d)));
}

}  // namespace tidemark
