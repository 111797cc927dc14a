// A device's water over time, thinned for drawing: every point covers a stretch of events and keeps
// its extremes, so that no peak is lost.
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

// At most `points` points, of equal time each; stretches without events have none.
std::vector<CurvePoint> thinned_curve(const AllocationHistory& model, size_t points);

}  // namespace tidemark
