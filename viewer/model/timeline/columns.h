// A range of time in a number of pixels: what each pixel column must show so that no spike is
// missed.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/minmax_pyramid.h"

namespace tidemark::view {

// One curve in one pixel column.
struct Column {
  uint64_t first = 0;  // carried in from the left
  uint64_t min = 0;    // over `first` and everything that happens in the column
  uint64_t max = 0;
  uint64_t last = 0;  // carried out to the right
};

struct TimelineColumns {
  // Events of column i are [edges[i], edges[i + 1]).
  std::vector<uint32_t> edges;
  std::array<std::vector<Column>, kCurves> curves;
  uint32_t first_known = 0;  // columns before this one lie before the first event

  uint32_t count() const { return edges.empty() ? 0 : static_cast<uint32_t>(edges.size()) - 1; }
};

// A range of times in ns since `origin_ns`. A double holds those exactly, but not ns since 1970.
struct TimeWindow {
  int64_t origin_ns = 0;
  double begin = 0;
  double end = 0;
  const std::vector<double>* edges = nullptr;  // of columns that are not equally long
};

// The beginning of column i of `count`; i = count: the end of the last one.
double column_edge(const TimeWindow& window, uint32_t count, uint32_t i);

// Column i covers the times [begin + i * w, begin + (i + 1) * w) with w = (end - begin) / count.
TimelineColumns columns_of(const AllocationHistory& model, const MinMaxPyramid& pyramid,
                           const TimeWindow& window, uint32_t count);

// The same, computed in portions: to find all borders between the columns of a long trace takes
// longer than a frame.
//
// Where columns hold many events, an approximate answer is available at once: its borders are where
// a leaf of the pyramid or a cell of the model begins, less than a column's width from the exact
// place. No event is left out; an event at a border may only be in the neighbouring column. work()
// then finds the exact borders. Belongs to one thread.
class ColumnWork {
 public:
  // Starts over. The model and its pyramid must outlive the work.
  void begin(const AllocationHistory& model, const MinMaxPyramid& pyramid, const TimeWindow& window,
             uint32_t count, bool exact = false);
  // Continues for about this long (< 0: to the end). True: this call made columns() exact.
  bool work(int64_t budget_ns);

  bool is_exact() const { return next_ > count_; }
  // Approximate until work() is done.
  const TimelineColumns& columns() const { return columns_; }

 private:
  enum class Grain : uint8_t { kEvent, kLeaf, kCell };
  // Columns from left to right, as their borders are found.
  struct Row {
    TimelineColumns columns;
    MinMaxPyramid::Edge last;
    MinMaxPyramid::Leaf leaf;
  };

  double since(int64_t time_ns) const { return static_cast<double>(time_ns - window_.origin_ns); }
  Grain fitting_grain() const;
  MinMaxPyramid::Edge true_edge(double time, MinMaxPyramid::Leaf& leaf) const;
  MinMaxPyramid::Edge near_edge(double time, Grain grain, MinMaxPyramid::Leaf& leaf) const;
  void add(const MinMaxPyramid::Edge& edge, Row& row) const;

  const AllocationHistory* model_ = nullptr;
  const MinMaxPyramid* pyramid_ = nullptr;
  TimeWindow window_;
  uint32_t count_ = 0;
  uint32_t next_ = 1;  // the next border to find
  Row row_;            // with exact borders, so far
  TimelineColumns columns_;
};

// The curve as points of a line: a step at its exact time where a column holds one event, otherwise
// the column's minimum and maximum at its middle. The last value continues until `stop_ns`, the end
// of the trace. Times are those of the window.
void curve_points(const AllocationHistory& model, const TimelineColumns& columns, Curve curve,
                  const TimeWindow& window, int64_t stop_ns, std::vector<double>& xs,
                  std::vector<double>& ys);

}  // namespace tidemark::view
