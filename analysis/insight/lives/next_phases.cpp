#include "analysis/insight/lives/next_phases.h"

#include <algorithm>

#include "analysis/insight/lives/block_life.h"

namespace tidemark {

namespace {

// Events at which an optimizer began a step, from marks; in order.
std::vector<uint32_t> optimizer_events(const ProcessModel& process,
                                       const AllocationHistory& model) {
  std::vector<uint32_t> events;
  for (const Mark& mark : process.marks) {
    const bool is_step = mark.kind == MarkKind::kOptimizerStep ||
                         process.names.string(mark.name).starts_with("Optimizer.step");
    if (!is_step || mark.phase == MarkPhase::kEnd) continue;
    uint32_t event = 0;
    if (model.event_at(mark.time_ns, event)) events.push_back(event + 1);
  }
  std::sort(events.begin(), events.end());
  return events;
}

}  // namespace

NextPhases::NextPhases(const ProcessModel& process, const AllocationHistory& model,
                       const StackRoles& roles, const std::vector<bool>& in_module)
    : model_(model),
      roles_(roles),
      in_module_(in_module),
      has_modules_(std::find(in_module.begin(), in_module.end(), true) != in_module.end()),
      marks_(optimizer_events(process, model)),
      has_marks_(!marks_.empty()),
      failures_(model.failures.size()) {}

// Nothing is known of a block that is older than the history.
StackRole NextPhases::role_of(const Allocation& a) const {
  return is_older(a) ? StackRole::kNone : roles_.of(a.stack);
}

void NextPhases::advance_to(const Allocation& a) {
  while (!marks_.empty() && marks_.back() > a.birth) {
    next_optimizer = std::min(next_optimizer, marks_.back());
    marks_.pop_back();
  }
  while (failures_ != 0 && model_.failures[failures_ - 1].event >= a.birth) {
    const FailedAllocation& failure = model_.failures[--failures_];
    next_failure = failure.event;
    // The phase had begun, perhaps with this request.
    if (roles_.of(failure.stack) == StackRole::kBackward) next_backward = next_failure;
    if (in_optimizer(roles_.of(failure.stack))) {
      next_optimizer = std::min(next_optimizer, next_failure);
    }
  }
  const StackRole role = role_of(a);
  if (role == role_before_) return;
  if (role == StackRole::kForward) pass_end = a.birth;
  if (role == StackRole::kBackward) backward_end = a.birth;
}

// It is the next of its kind for those before it.
void NextPhases::pass(const Allocation& a) {
  const StackRole role = role_of(a);
  switch (role) {
    case StackRole::kForward:
      next_forward = a.birth;
      if (is_of_model(a.stack)) next_pass = a.birth;
      break;
    case StackRole::kBackward:
      next_backward = a.birth;
      break;
    case StackRole::kOptimizer:
    case StackRole::kOptimizerInit:
      next_optimizer = a.birth;
      break;
    default:
      break;
  }
  if (role != StackRole::kBackward) next_other = a.birth;
  role_before_ = role;
}

}  // namespace tidemark
