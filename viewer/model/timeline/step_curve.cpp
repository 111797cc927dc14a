#include "viewer/model/timeline/step_curve.h"

#include <algorithm>

namespace tidemark::view {

namespace {

constexpr size_t kFan = 16;

void include(StepCurve::Range& range, uint64_t value) {
  range.min = std::min(range.min, value);
  range.max = std::max(range.max, value);
}

void include(StepCurve::Range& range, const StepCurve::Range& other) {
  range.min = std::min(range.min, other.min);
  range.max = std::max(range.max, other.max);
}

}  // namespace

StepCurve::StepCurve(const StepSeries& series) : series_(&series) {
  std::vector<Range> level((series.value.size() + kFan - 1) / kFan);
  for (size_t i = 0; i < series.value.size(); ++i) include(level[i / kFan], series.value[i]);
  while (level.size() > 1) {
    std::vector<Range> above((level.size() + kFan - 1) / kFan);
    for (size_t i = 0; i < level.size(); ++i) include(above[i / kFan], level[i]);
    levels_.push_back(std::move(level));
    level = std::move(above);
  }
  levels_.push_back(std::move(level));
}

uint64_t StepCurve::peak() const {
  return empty() ? 0 : levels_.back().front().max;
}

// Of the steps [first, last): whole groups from the levels, both ends step by step.
StepCurve::Range StepCurve::extremes(size_t first, size_t last) const {
  Range range;
  const auto level_at = [&](size_t level, size_t i) -> Range {
    if (level == 0) return {series_->value[i], series_->value[i]};
    return levels_[level - 1][i];
  };
  for (size_t level = 0; first < last; ++level) {
    while (first < last && first % kFan != 0) include(range, level_at(level, first++));
    while (first < last && last % kFan != 0) include(range, level_at(level, --last));
    first /= kFan;
    last /= kFan;
  }
  return range;
}

StepCurve::Range StepCurve::within(int64_t begin_ns, int64_t end_ns) const {
  if (empty()) return {};
  const auto& times = series_->time_ns;
  auto first = std::upper_bound(times.begin(), times.end(), begin_ns) - times.begin();
  auto last = std::lower_bound(times.begin(), times.end(), end_ns) - times.begin();
  if (first > 0) {
    --first;  // the value carried in
    last = std::max(last, first + 1);
  }
  return extremes(static_cast<size_t>(first), static_cast<size_t>(last));
}

size_t StepCurve::step_from(double time, int64_t origin_ns, size_t from) const {
  const auto& times = series_->time_ns;
  const auto begin = times.begin() + static_cast<std::ptrdiff_t>(from);
  const auto it = std::partition_point(
      begin, times.end(), [&](int64_t t) { return static_cast<double>(t - origin_ns) < time; });
  return static_cast<size_t>(it - times.begin());
}

void StepCurve::points(const TimeWindow& window, uint32_t columns, int64_t stop_ns,
                       std::vector<double>& xs, std::vector<double>& ys) const {
  xs.clear();
  ys.clear();
  if (empty() || columns == 0 || !(window.end > window.begin)) return;
  const auto put = [&](double x, uint64_t y) {
    xs.push_back(x);
    ys.push_back(static_cast<double>(y));
  };
  size_t left = step_from(window.begin, window.origin_ns, 0);
  if (left > 0) put(window.begin, series_->value[left - 1]);
  for (uint32_t i = 0; i < columns && left < series_->time_ns.size(); ++i) {
    const double edge = column_edge(window, columns, i + 1);
    const size_t right = step_from(edge, window.origin_ns, left);
    if (right == left) continue;
    const double x = right - left == 1
                         ? static_cast<double>(series_->time_ns[left] - window.origin_ns)
                         : (column_edge(window, columns, i) + edge) / 2;
    const uint64_t last = series_->value[right - 1];
    put(x, left > 0 ? series_->value[left - 1] : series_->value[left]);
    if (right - left > 1) {
      const Range range = extremes(left, right);
      put(x, last - range.min >= range.max - last ? range.min : range.max);
      put(x, last - range.min >= range.max - last ? range.max : range.min);
    }
    put(x, last);
    left = right;
  }
  if (xs.empty()) return;
  const double stop = std::min(window.end, static_cast<double>(stop_ns - window.origin_ns));
  put(std::max(xs.back(), stop), static_cast<uint64_t>(ys.back()));
}

}  // namespace tidemark::view
