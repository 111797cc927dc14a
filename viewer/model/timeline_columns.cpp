#include "viewer/model/timeline_columns.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tidemark::view {

namespace {

double column_edge(const TimeWindow& w, uint32_t count, uint32_t i) {
  return w.begin + (w.end - w.begin) * (static_cast<double>(i) / static_cast<double>(count));
}

}  // namespace

TimelineColumns columns_of(const FrameworkModel& model, const MinMaxPyramid& pyramid,
                           const TimeWindow& window, uint32_t count) {
  ColumnWork work;
  work.begin(model, pyramid, window, count, true);
  return work.columns();
}

void ColumnWork::begin(const FrameworkModel& model, const MinMaxPyramid& pyramid,
                       const TimeWindow& window, uint32_t count, bool exact) {
  model_ = &model;
  pyramid_ = &pyramid;
  window_ = window;
  count_ = count;
  next_ = 0;
  edges_.clear();
  columns_ = {};
  if (count == 0 || model.event_count() == 0 || !(window.end > window.begin)) {
    next_ = count + 1;
    return;
  }
  if (exact || !holds_many()) {
    work(-1);
    return;
  }
  const double width = (window.end - window.begin) / count;
  std::vector<MinMaxPyramid::Edge> near;
  near.reserve(size_t{count} + 1);
  for (uint32_t i = 0; i <= count; ++i)
    near.push_back(near_edge(column_edge(window, count, i), width));
  columns_ = join(near);
}

// A few cells in each column: fewer events are quickly looked at.
bool ColumnWork::holds_many() const {
  const auto cells_before = [&](double time) {
    return std::partition_point(model_->cells.begin(), model_->cells.end(),
                                [&](const CellStart& c) {
                                  return static_cast<double>(c.time_ns - window_.origin_ns) < time;
                                }) -
           model_->cells.begin();
  };
  return cells_before(window_.end) - cells_before(window_.begin) > static_cast<int64_t>(count_);
}

MinMaxPyramid::Edge ColumnWork::near_edge(double time, double width) const {
  const auto since = [&](int64_t time_ns) {
    return static_cast<double>(time_ns - window_.origin_ns);
  };
  const auto* const after =
      std::partition_point(model_->cells.begin(), model_->cells.end(),
                           [&](const CellStart& c) { return since(c.time_ns) < time; });
  const auto cell = static_cast<size_t>(after - model_->cells.begin());
  if (cell == 0) return pyramid_->cell_edge(0);
  // The cell before begins left of the border. One that lasts longer than a column is looked into.
  const int64_t end_ns = cell < model_->cells.size() ? after->time_ns : model_->time_ns.back();
  if (since(end_ns) - since((after - 1)->time_ns) > width) {
    return pyramid_->edge(
        model_->first_event_not([&](int64_t time_ns) { return since(time_ns) < time; }));
  }
  return pyramid_->cell_edge(cell);
}

bool ColumnWork::work(int64_t budget_ns) {
  if (is_exact()) return false;
  constexpr uint32_t kBetweenLooks = 16;  // borders, until the clock is looked at
  const auto start = std::chrono::steady_clock::now();
  const uint32_t begin = next_;
  edges_.reserve(size_t{count_} + 1);
  for (; next_ <= count_; ++next_) {
    if (budget_ns >= 0 && next_ > begin && next_ % kBetweenLooks == 0 &&
        std::chrono::steady_clock::now() - start > std::chrono::nanoseconds(budget_ns)) {
      return false;
    }
    const double time = column_edge(window_, count_, next_);
    const uint32_t event = model_->first_event_not(
        [&](int64_t time_ns) { return static_cast<double>(time_ns - window_.origin_ns) < time; });
    const bool same = !edges_.empty() && edges_.back().event == event;
    edges_.push_back(same ? edges_.back() : pyramid_->edge(event));
  }
  columns_ = join(edges_);
  edges_.clear();
  return true;
}

TimelineColumns ColumnWork::join(const std::vector<MinMaxPyramid::Edge>& edges) const {
  TimelineColumns out;
  out.edges.reserve(edges.size());
  for (const MinMaxPyramid::Edge& edge : edges) out.edges.push_back(edge.event);
  for (auto& curve : out.curves) curve.resize(count_);
  while (out.first_known < count_ && out.edges[out.first_known + 1] == 0) ++out.first_known;
  for (uint32_t i = 0; i < count_; ++i) {
    const MinMaxPyramid::Edge& left = edges[i];
    const MinMaxPyramid::Edge& right = edges[i + 1];
    const bool changes = right.event > left.event;
    Extremes range = changes ? pyramid_->between(left, right) : Extremes::nothing();
    // Before the first event nothing is known, so the zero carried in is not a value.
    if (left.event > 0 || !changes) range.include(left.before);
    for (size_t c = 0; c < kCurves; ++c) {
      const uint64_t first = left.event > 0 ? left.before[c] : range.min[c];
      out.curves[c][i] = {first, range.min[c], range.max[c], right.before[c]};
    }
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
    const double x = events == 1
                         ? static_cast<double>(model.time_ns[columns.edges[i]] - window.origin_ns)
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
