// Steps that the trace's marks show: ends of optimizer steps, and ranges of iterations.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/load/trace_model.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

struct MarkedSteps {
  std::vector<uint32_t> boundaries;  // events after the ends of steps
  std::vector<uint32_t> done_again;  // as in Steps
};

MarkedSteps steps_from_marks(const ProcessModel& process, const AllocationHistory& model,
                             const StackRoles& roles);

}  // namespace tidemark
