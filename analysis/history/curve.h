// A device's memory use over time, downsampled for drawing: every point covers a range of events
// and keeps its minimum and maximum, so that no peak is lost.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

struct CurvePoint {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t allocated_low = UINT64_MAX;
  uint64_t allocated_high = 0;
  uint64_t reserved_low = UINT64_MAX;
  uint64_t reserved_high = 0;
};

// At most `points` points that cover equal time spans; spans without events have none.
std::vector<CurvePoint> thinned_curve(const AllocationHistory& model, size_t points);

}  // namespace tidemark
