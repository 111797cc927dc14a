// A step curve (the card's samples, an owner's bytes) in a number of pixels, with exact extremes at
// every zoom. The series must outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/driver_history.h"
#include "viewer/model/timeline/columns.h"

namespace tidemark::view {

class StepCurve {
 public:
  StepCurve() = default;
  explicit StepCurve(const StepSeries& series);

  bool empty() const { return series_ == nullptr || series_->empty(); }
  uint64_t peak() const;
  uint64_t at(int64_t time_ns) const { return empty() ? 0 : series_->at(time_ns); }

  struct Range {
    uint64_t min = UINT64_MAX;
    uint64_t max = 0;

    bool known() const { return min <= max; }
  };
  // Over all values within [begin_ns, end_ns); unknown before the first step.
  Range within(int64_t begin_ns, int64_t end_ns) const;

  // As points of a line, like curve_points().
  void points(const TimeWindow& window, uint32_t columns, int64_t stop_ns, std::vector<double>& xs,
              std::vector<double>& ys) const;

 private:
  size_t step_from(double time, int64_t origin_ns, size_t from) const;
  Range extremes(size_t first, size_t last) const;

  const StepSeries* series_ = nullptr;
  std::vector<std::vector<Range>> levels_;  // [k]: of 16^(k+1) steps
};

}  // namespace tidemark::view
