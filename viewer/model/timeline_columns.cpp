#include "viewer/model/timeline_columns.h"

#include <algorithm>
#include <cmath>

namespace tidemark::view {

namespace {

// The first event at or after `time`, searching from `from` in growing steps: the next edge is
// near the last one.
uint32_t first_event_from(const FrameworkModel& model, int64_t origin_ns, uint32_t from,
                          double time) {
  const uint32_t n = model.event_count();
  const auto before = [&](uint32_t e) {
    return static_cast<double>(model.time_ns[e] - origin_ns) < time;
  };
  uint32_t step = 1;
  uint32_t low = from;
  while (low < n && before(low)) {
    const uint64_t next = uint64_t{low} + step;
    if (next >= n || !before(static_cast<uint32_t>(next))) {
      uint32_t high = static_cast<uint32_t>(std::min<uint64_t>(next, n));
      ++low;
      while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (before(middle)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    }
    low = static_cast<uint32_t>(next);
    step = step < (1U << 30) ? step * 2 : step;
  }
  return low;
}

double column_edge(const TimeWindow& w, uint32_t count, uint32_t i) {
  return w.begin + (w.end - w.begin) * (static_cast<double>(i) / static_cast<double>(count));
}

}  // namespace

TimelineColumns columns_of(const FrameworkModel& model, const MinMaxPyramid& pyramid,
                           const TimeWindow& window, uint32_t count) {
  TimelineColumns out;
  if (count == 0 || model.event_count() == 0 || !(window.end > window.begin)) return out;
  out.edges.resize(size_t{count} + 1);
  uint32_t event = 0;
  for (uint32_t i = 0; i <= count; ++i) {
    event = first_event_from(model, window.origin_ns, event, column_edge(window, count, i));
    out.edges[i] = event;
  }
  for (auto& curve : out.curves) curve.resize(count);
  while (out.first_known < count && out.edges[out.first_known + 1] == 0) ++out.first_known;
  MinMaxPyramid::Edge left = pyramid.edge(out.edges[0]);
  for (uint32_t i = 0; i < count; ++i) {
    const bool changes = out.edges[i + 1] > out.edges[i];
    const MinMaxPyramid::Edge right = changes ? pyramid.edge(out.edges[i + 1]) : left;
    Extremes range = changes ? pyramid.between(left, right) : Extremes::nothing();
    // Before the first event nothing is known, so the zero carried in is not a value.
    if (left.event > 0 || !changes) range.include(left.before);
    for (size_t c = 0; c < kCurves; ++c) {
      const uint64_t first = left.event > 0 ? left.before[c] : range.min[c];
      out.curves[c][i] = {first, range.min[c], range.max[c], right.before[c]};
    }
    left = right;
  }
  return out;
}

void curve_points(const FrameworkModel& model, const TimelineColumns& columns, Curve curve,
                  const TimeWindow& window, int64_t stop_ns, std::vector<double>& xs,
                  std::vector<double>& ys) {
  xs.clear();
  ys.clear();
  const uint32_t count = columns.count();
  const auto put = [&](double x, uint64_t y) {
    xs.push_back(x);
    ys.push_back(static_cast<double>(y));
  };
  const auto& values = columns.curves[static_cast<size_t>(curve)];
  for (uint32_t i = columns.first_known; i < count; ++i) {
    const Column& v = values[i];
    const uint32_t events = columns.edges[i + 1] - columns.edges[i];
    if (xs.empty() && columns.edges[i] > 0) put(window.begin, v.first);
    if (events == 0) continue;
    if (v.first == v.min && v.min == v.max && !xs.empty()) continue;
    const int64_t time = model.time_ns[columns.edges[i]] - window.origin_ns;
    const double x = events == 1
                         ? static_cast<double>(time)
                         : (column_edge(window, count, i) + column_edge(window, count, i + 1)) / 2;
    put(x, v.first);
    if (events > 1) {
      // The extreme farther from the way out comes first, so that the line ends where it goes on.
      const bool low_first = v.last - v.min >= v.max - v.last;
      put(x, low_first ? v.min : v.max);
      put(x, low_first ? v.max : v.min);
    }
    put(x, v.last);
  }
  if (!xs.empty()) {
    const double stop = std::min(window.end, static_cast<double>(stop_ns - window.origin_ns));
    put(std::max(xs.back(), stop), values[count - 1].last);
  }
}

}  // namespace tidemark::view
