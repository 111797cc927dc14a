// What each category of blocks holds over time, in as many columns as a picture needs. Every column
// shows its highest instant, at which the categories sum to what was allocated; the last one shows
// the end of the time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/findings/evidence.h"
#include "analysis/stacked/block_groups.h"

namespace tidemark {

struct CategoryCurve {
  struct Column {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int64_t time_ns = 0;                                  // of the instant
    std::array<uint64_t, kCategoryOrder.size()> bytes{};  // in that order
  };

  const ProcessModel* process = nullptr;
  int64_t device = 0;
  std::vector<Column> columns;
};

// One for each device of which categories are known, from its first event in the time to its last.
std::vector<CategoryCurve> category_curves(const Groundwork& groundwork, int64_t begin_ns,
                                           int64_t end_ns, size_t columns);
// The same, of a trace whose blocks already have their categories (take_categories()).
std::vector<CategoryCurve> category_curves(const TraceModel& trace, int64_t begin_ns,
                                           int64_t end_ns, size_t columns);

}  // namespace tidemark
