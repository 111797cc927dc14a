#include "viewer/model/trace/visible_range.h"

#include <algorithm>
#include <cmath>

namespace tidemark::view {

int64_t absolute_ns(const Model& model, double time) {
  // Half the range of int64_t around the start is more than any trace spans.
  constexpr double kMost = 4e18;
  return model.trace.start_ns + static_cast<int64_t>(std::floor(std::clamp(time, -kMost, kMost)));
}

TimeRange absolute_range(const Model& model, const VisibleRange& range) {
  return {absolute_ns(model, range.begin), absolute_ns(model, range.end)};
}

double since_start(const Model& model, int64_t time_ns) {
  return static_cast<double>(time_ns - model.trace.start_ns);
}

VisibleRange since_start(const Model& model, const TimeRange& range) {
  return {since_start(model, range.begin_ns), since_start(model, range.end_ns)};
}

}  // namespace tidemark::view
