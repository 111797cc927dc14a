#include "analysis/passes/backward_passes.h"

#include <string_view>

#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

bool recomputes(const Dictionary& names, const Frame& frame) {
  if (frame.kind == FrameKind::kAutograd) return true;
  std::string_view function = names.string(frame.function);
  function = function.substr(function.rfind('.') + 1);  // npos + 1 is 0
  if (function == "backward") return true;
  if (names.string(frame.file).find("checkpoint") == std::string_view::npos) return false;
  return function == "recompute_fn" || function == "unpack_hook";
}

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
  return stacks_with(names, [&](const Frame& frame) { return recomputes(names, frame); });
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
  const auto row_of = [&](uint32_t event) {
    size_t low = 0;
    size_t high = model.allocations.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (model.allocations.birth(middle) < event) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  return {row_of(first), row_of(last)};
}

}  // namespace tidemark
