#include "viewer/model/timeline/columns.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tidemark::view {

double column_edge(const TimeWindow& window, uint32_t count, uint32_t i) {
  if (window.edges != nullptr) return (*window.edges)[i];
  return window.begin +
         (window.end - window.begin) * (static_cast<double>(i) / static_cast<double>(count));
}

TimelineColumns columns_of(const AllocationHistory& model, const MinMaxPyramid& pyramid,
                           const TimeWindow& window, uint32_t count) {
  ColumnWork work;
  work.begin(model, pyramid, window, count, true);
  return work.columns();
}

void ColumnWork::begin(const AllocationHistory& model, const MinMaxPyramid& pyramid,
                       const TimeWindow& window, uint32_t count, bool exact) {
  model_ = &model;
  pyramid_ = &pyramid;
  window_ = window;
  count_ = count;
  next_ = 0;
  row_ = {};
  columns_ = {};
  if (count == 0 || model.event_count() == 0 || !(window.end > window.begin)) {
    next_ = count + 1;
    return;
  }
  const Grain grain = exact || window.edges != nullptr ? Grain::kEvent : fitting_grain();
  if (grain == Grain::kEvent) {
    work(-1);
    return;
  }
  Row near;
  for (uint32_t i = 0; i <= count; ++i) {
    add(near_edge(column_edge(window, count, i), grain, near.leaf), near);
  }
  columns_ = std::move(near.columns);
}

// The coarsest grain with more than one piece per column on average.
ColumnWork::Grain ColumnWork::fitting_grain() const {
  constexpr size_t kLeavesPerCell = AllocationHistory::kCell / MinMaxPyramid::kLeaf;
  const auto cells_before = [&](double time) {
    return std::partition_point(model_->cells.begin(), model_->cells.end(),
                                [&](const CellStart& c) { return since(c.time_ns) < time; });
  };
  const auto cells = static_cast<size_t>(cells_before(window_.end) - cells_before(window_.begin));
  return cells > count_                    ? Grain::kCell
         : cells * kLeavesPerCell > count_ ? Grain::kLeaf
                                           : Grain::kEvent;
}

MinMaxPyramid::Edge ColumnWork::true_edge(double time, MinMaxPyramid::Leaf& leaf) const {
  return pyramid_->edge(
      model_->first_event_not([&](int64_t time_ns) { return since(time_ns) < time; }), leaf);
}

// The piece (a cell or a leaf) before the border belongs to the column in which it begins. A piece
// that lasts longer than a column is searched for the exact border.
MinMaxPyramid::Edge ColumnWork::near_edge(double time, Grain grain,
                                          MinMaxPyramid::Leaf& leaf) const {
  constexpr size_t kLeaf = MinMaxPyramid::kLeaf;
  constexpr size_t kLeavesPerCell = AllocationHistory::kCell / kLeaf;
  const double width = (window_.end - window_.begin) / count_;
  const DataColumn<CellStart>& cells = model_->cells;
  const DataColumn<int64_t>& times = model_->time_ns;
  const auto cell = static_cast<size_t>(
      std::partition_point(cells.begin(), cells.end(),
                           [&](const CellStart& c) { return since(c.time_ns) < time; }) -
      cells.begin());
  if (cell == 0) return pyramid_->cell_edge(0);
  if (grain == Grain::kCell) {
    const int64_t end_ns = cell < cells.size() ? cells[cell].time_ns : times.back();
    if (since(end_ns) - since(cells[cell - 1].time_ns) > width) return true_edge(time, leaf);
    return pyramid_->cell_edge(cell);
  }
  const size_t leaves = model_->keyframes.size();
  size_t low = (cell - 1) * kLeavesPerCell + 1;  // the cell's first leaf begins before the border
  size_t high = std::min(leaves, cell * kLeavesPerCell);
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (since(times[middle * kLeaf]) < time) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const int64_t end_ns = low < leaves ? times[low * kLeaf] : times.back();
  if (since(end_ns) - since(times[(low - 1) * kLeaf]) > width) return true_edge(time, leaf);
  return pyramid_->leaf_edge(low);
}

bool ColumnWork::work(int64_t budget_ns) {
  if (is_exact()) return false;
  constexpr uint32_t kBetweenLooks = 16;  // borders between two reads of the clock
  const auto start = std::chrono::steady_clock::now();
  const uint32_t begin = next_;
  for (; next_ <= count_; ++next_) {
    if (budget_ns >= 0 && next_ > begin && next_ % kBetweenLooks == 0 &&
        std::chrono::steady_clock::now() - start > std::chrono::nanoseconds(budget_ns)) {
      return false;
    }
    add(true_edge(column_edge(window_, count_, next_), row_.leaf), row_);
  }
  columns_ = std::move(row_.columns);
  row_ = {};
  return true;
}

void ColumnWork::add(const MinMaxPyramid::Edge& edge, Row& row) const {
  TimelineColumns& out = row.columns;
  if (out.edges.empty()) {
    out.edges.reserve(size_t{count_} + 1);
    for (auto& curve : out.curves) curve.reserve(count_);
  } else {
    const MinMaxPyramid::Edge& left = row.last;
    const bool changes = edge.event > left.event;
    Extremes range = changes ? pyramid_->between(left, edge, row.leaf) : Extremes::nothing();
    // Before the first event nothing is known: the zero carried in is no value.
    if (left.event > 0 || !changes) range.include(left.before);
    for (size_t c = 0; c < kCurves; ++c) {
      const uint64_t first = left.event > 0 ? left.before[c] : range.min[c];
      out.curves[c].push_back({first, range.min[c], range.max[c], edge.before[c]});
    }
    if (edge.event == 0) ++out.first_known;
  }
  out.edges.push_back(edge.event);
  row.last = edge;
}

void curve_points(const AllocationHistory& model, const TimelineColumns& columns, Curve curve,
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
      // The extreme farther from the last value comes first, so that the line continues from the
      // nearer.
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
