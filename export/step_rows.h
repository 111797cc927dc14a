// The iterations of a device inside a time range: those at its ends are cut off there.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/steps.h"
#include "export/time_range.h"

namespace tidemark {

struct StepRow {
  uint64_t number = 0;  // of the run; see Steps
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t begin_event = 0;
  uint32_t end_event = 0;  // not part of it
  StepLevels levels;       // of what is allocated, inside the range
};

std::vector<StepRow> steps_in(const Steps& steps, const AllocationHistory& model,
                              const TimeRange& range);

}  // namespace tidemark
