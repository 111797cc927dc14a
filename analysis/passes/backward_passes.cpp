#include "analysis/passes/backward_passes.h"

#include "analysis/columns/birth_rows.h"
#include "analysis/names/backward_frame.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

enum class Part : uint8_t { kForward, kBackward, kBetween, kOther };

Part part_of(StackRole role, bool recomputing) {
  switch (role) {
    case StackRole::kForward:
      return recomputing ? Part::kBackward : Part::kForward;
    case StackRole::kBackward:
      return Part::kBackward;
    case StackRole::kOptimizer:
    case StackRole::kOptimizerInit:
      return Part::kBetween;
    default:
      return Part::kOther;  // hooks of a backward pass allocate such memory, too
  }
}

}  // namespace

std::vector<bool> recomputing_stacks(const Dictionary& names) {
  return stacks_with(names, [&](const Frame& frame) { return is_in_backward(names, frame); });
}

std::vector<BackwardPass> find_backward_passes(const Dictionary& names,
                                               const AllocationHistory& model,
                                               const StackRoles& roles) {
  const std::vector<bool> recomputing = recomputing_stacks(names);
  std::vector<BackwardPass> passes;
  bool in_backward = false;
  bool began = false;  // an allocation since the last pass
  uint32_t begin = 0;
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    model.passed(i);
    if (model.allocations.seeded(i)) continue;
    const uint32_t stack = model.allocations.stack(i);
    const uint32_t birth = model.allocations.birth(i);
    const Part part = part_of(roles.of(stack), stack < recomputing.size() && recomputing[stack]);
    if (part == Part::kBackward) {
      if (!in_backward) passes.push_back({began ? begin : birth, birth, birth, 0});
      in_backward = true;
      began = false;
      passes.back().last = birth;
      continue;
    }
    if (part == Part::kForward || part == Part::kBetween) {
      if (in_backward) passes.back().end = birth;
      in_backward = false;
    }
    if (part == Part::kBetween) began = false;
    if (!in_backward && !began && part != Part::kBetween) {
      began = true;
      begin = birth;
    }
  }
  if (in_backward) passes.back().end = model.event_count();
  return passes;
}

BirthRange births_within(const AllocationHistory& model, uint32_t first, uint32_t last) {
  return {first_born_from(model.allocations, first), first_born_from(model.allocations, last)};
}

}  // namespace tidemark
