// Parts of a training run that differ from its other steps, and the peak of each: the first step,
// validation, generation, and the saving of checkpoints.
//
// Found from stacks. A line of the program that calls a module is training if what it allocates is
// still alive when a backward pass begins; a line whose forward passes are not followed by a
// backward pass is validation or generation if its functions are named so, and otherwise only that:
// forward passes. A phase ends where the program leaves the function that made its passes. Ranges
// that the program itself named (NVTX, record_function) take precedence. Linear in the number of
// allocations.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/steps/stack_roles.h"
#include "analysis/steps/steps.h"

namespace tidemark {

enum class PhaseKind : uint8_t { kFirstStep, kValidation, kSaving, kGeneration, kForwardOnly };

// Forward passes that no backward pass follows.
inline bool is_forward_only(PhaseKind kind) {
  return kind == PhaseKind::kValidation || kind == PhaseKind::kGeneration ||
         kind == PhaseKind::kForwardOnly;
}

// Events [first, last).
struct Phase {
  PhaseKind kind = PhaseKind::kFirstStep;
  uint32_t first = 0;
  uint32_t last = 0;
  Peak peak;  // of allocated bytes

  bool holds(uint32_t event) const { return first <= event && event < last; }
};

// In the order of their first events. Different kinds may overlap: a first step may contain a
// validation.
std::vector<Phase> find_phases(const ProcessModel& process, const AllocationHistory& model,
                               const StackRoles& roles, const Steps& steps);

}  // namespace tidemark
