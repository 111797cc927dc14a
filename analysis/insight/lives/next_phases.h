// Visits the allocations from the last to the first and knows, at each, when the next phase of each
// kind begins: an event, or kNever.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

class NextPhases {
 public:
  // `in_module`: by stack, kept by reference; passes of a model are those of its modules, unless
  // there are none.
  NextPhases(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
             const std::vector<bool>& in_module);

  // Before an allocation is examined, and after that.
  void advance_to(const Allocation& a);
  void pass(const Allocation& a);

  bool has_optimizer_marks() const { return has_marks_; }
  // Not of a function of torch.nn that the program calls itself, unless there are no modules.
  bool is_of_model(uint32_t stack) const {
    return !has_modules_ || (stack < in_module_.size() && in_module_[stack]);
  }

  uint32_t next_forward = kNever;
  uint32_t next_pass = kNever;  // of a model
  uint32_t next_backward = kNever;
  uint32_t next_optimizer = kNever;
  uint32_t next_other = kNever;  // not of a backward pass
  uint32_t next_failure = kNever;
  uint32_t pass_end = kNever;      // the last allocation of the forward pass
  uint32_t backward_end = kNever;  // of the backward pass

 private:
  StackRole role_of(const Allocation& a) const;

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const std::vector<bool>& in_module_;
  const bool has_modules_;
  std::vector<uint32_t> marks_;  // events of the optimizer's that are not yet visited
  const bool has_marks_;
  size_t failures_;                           // those not yet visited
  StackRole role_before_ = StackRole::kNone;  // of the allocation visited before
};

}  // namespace tidemark
