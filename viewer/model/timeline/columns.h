// A stretch of time in so many pixels: what each pixel column must show so that no spike is missed.
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

// A view of the model's times in ns since `origin_ns`: a double holds those exactly, which it does
// not do for ns since 1970.
struct TimeWindow {
  int64_t origin_ns = 0;
  double begin = 0;
  double end = 0;
};

// Column i covers the times [begin + i * w, begin + (i + 1) * w) with w = (end - begin) / count.
TimelineColumns columns_of(const AllocationHistory& model, const MinMaxPyramid& pyramid,
                           const TimeWindow& window, uint32_t count);

// The same, made in portions: the borders between columns of a long trace are so many places in it
// that looking at all of them takes longer than a frame.
//
// Where the columns hold many events, the first answer is there at once: borders lie where a leaf
// of the pyramid or a cell of the model begins, less than a column's width from where they belong.
// No event is left out, and all that is off is that one at a border may stand in the neighbouring
// column. work() then finds the true borders. Belongs to one thread.
class ColumnWork {
 public:
  // Begins anew; the model and its pyramid must outlive the work.
  void begin(const AllocationHistory& model, const MinMaxPyramid& pyramid, const TimeWindow& window,
             uint32_t count, bool exact = false);
  // Goes on for about that long (< 0: to the end). True: columns() became exact by this call.
  bool work(int64_t budget_ns);

  bool is_exact() const { return next_ > count_; }
  // Of the first answer until work() has come to its end.
  const TimelineColumns& columns() const { return columns_; }

 private:
  enum class Grain : uint8_t { kEvent, kLeaf, kCell };
  // Columns from the left to the right as their borders are found.
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
  uint32_t next_ = 1;  // border to be found next
  Row row_;            // by the true borders, so far
  TimelineColumns columns_;
};

// The curve as points of a line: steps at their exact time where a column holds one event, else the
// column's whole extent at its middle. The last value holds on until `stop_ns`, where the trace
// ends. Times are those of the window.
void curve_points(const AllocationHistory& model, const TimelineColumns& columns, Curve curve,
                  const TimeWindow& window, int64_t stop_ns, std::vector<double>& xs,
                  std::vector<double>& ys);

}  // namespace tidemark::view
