#include "analysis/insight/categories/second_order.h"

#include <algorithm>
#include <iterator>

#include "analysis/names/backward_frame.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

// What hooks of a backward pass allocate does not end it, nor do layers that it computes again.
SecondOrderGraphs::SecondOrderGraphs(const Dictionary& names, const AllocationHistory& model,
                                     const StackRoles& roles) {
  const std::vector<bool> in_backward =
      stacks_with(names, [&](const Frame& frame) { return is_in_backward(names, frame); });
  bool runs = false;
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    model.passed(i);
    if (model.allocations.seeded(i)) continue;
    const uint32_t stack = model.allocations.stack(i);
    const uint32_t birth = model.allocations.birth(i);
    const StackRole role = roles.of(stack);
    const bool again = stack < in_backward.size() && in_backward[stack];
    if (role == StackRole::kBackward || (role == StackRole::kForward && again)) {
      if (!runs) passes_.push_back({birth, birth});
      passes_.back().last = birth;
      runs = true;
    } else if (role == StackRole::kForward || in_optimizer(role)) {
      runs = false;
    }
  }
}

int64_t SecondOrderGraphs::pass_at(uint32_t event) const {
  const auto after =
      std::upper_bound(passes_.begin(), passes_.end(), event,
                       [](uint32_t wanted, const Span& pass) { return wanted < pass.first; });
  if (after == passes_.begin() || event > std::prev(after)->last) return -1;
  return std::prev(after) - passes_.begin();
}

bool SecondOrderGraphs::hold(const Allocation& a) const {
  return pass_at(a.release) > pass_at(a.birth);
}

}  // namespace tidemark
