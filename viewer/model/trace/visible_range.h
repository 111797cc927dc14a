// The part of the run on the screen. Its times are doubles in ns since the start of the trace: at
// the closest zoom a pixel is less than a nanosecond, and a view may begin before the trace does. A
// range of the trace itself is a TimeRange, in whole ns of the trace's clock.
#pragma once

#include <cstdint>

#include "export/time_range.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

struct VisibleRange {
  double begin = 0;
  double end = 1;

  double span() const { return end - begin; }
};

// From ns since the start of the trace to the trace's clock, and back.
int64_t absolute_ns(const Model& model, double time);
TimeRange absolute_range(const Model& model, const VisibleRange& range);
double since_start(const Model& model, int64_t time_ns);
VisibleRange since_start(const Model& model, const TimeRange& range);

}  // namespace tidemark::view
