#include "analysis/stacked/category_curves.h"

#include <algorithm>

#include "analysis/stacked/column_samples.h"
#include "analysis/stacked/group_totals.h"

namespace tidemark {

namespace {

BlockGroups groups_of(const std::vector<Category>& of) {
  const BlockGroups categories = category_groups();
  BlockGroups groups;
  groups.count = categories.count;
  groups.of_block.reserve(of.size());
  for (const Category c : of) {
    groups.of_block.push_back(categories.of_category[static_cast<size_t>(c)]);
  }
  return groups;
}

// Up to `count` columns of equal length; those in which nothing changes are joined. One more, of
// the last nanosecond, has what is held at the end where that is not what the column before shows.
std::vector<CategoryCurve::Column> columns_of(const AllocationHistory& memory,
                                              const BlockGroups& groups, int64_t begin_ns,
                                              int64_t end_ns, size_t count) {
  std::vector<int64_t> times;
  std::vector<uint32_t> edges;
  const int64_t span = end_ns - begin_ns + 1;
  count = std::clamp<size_t>(count, 1, static_cast<size_t>(span));
  for (size_t i = 0; i <= count; ++i) {
    times.push_back(begin_ns +
                    static_cast<int64_t>(static_cast<double>(span) *
                                         (static_cast<double>(i) / static_cast<double>(count))));
    edges.push_back(
        memory.first_event_not([&](int64_t time_ns) { return time_ns < times.back(); }));
  }
  const uint32_t final_event = edges.back() - 1;
  const ColumnSamples samples = highest_in_columns(memory, Curve::kAllocated, std::move(edges));
  const GroupTotals totals(memory, groups);
  GroupTotals::Reader reader(totals);
  std::vector<CategoryCurve::Column> out;
  const auto add = [&](uint32_t event, int64_t first_ns, int64_t past_ns) {
    reader.move_to(event);
    CategoryCurve::Column column{first_ns, past_ns, std::max(memory.time_ns[event], first_ns), {}};
    for (uint32_t g = 0; g < groups.count; ++g) column.bytes[g] = reader.bytes(g);
    out.push_back(column);
  };
  for (size_t i = 0; i < count; ++i) {
    if (samples.events[i] == kNoSample) continue;
    if (i > 0 && samples.events[i] == samples.events[i - 1]) {
      out.back().end_ns = times[i + 1];
      continue;
    }
    add(samples.events[i], times[i], times[i + 1]);
  }
  if (samples.events.back() != final_event && !out.empty()) {
    const int64_t final_ns = std::max(end_ns, out.back().begin_ns + 1);
    out.back().end_ns = final_ns;
    add(final_event, final_ns, final_ns + 1);
  }
  return out;
}

void add_curve(const ProcessModel& process, const AllocationHistory& memory,
               const BlockGroups& groups, int64_t begin_ns, int64_t end_ns, size_t columns,
               std::vector<CategoryCurve>& curves) {
  if (memory.event_count() == 0 || columns == 0) return;
  const uint32_t unknown = groups.count - 1;
  bool known = false;
  for (uint32_t b = 0; b < memory.allocations.size() && !known; ++b) {
    known = groups.of(memory, b) != unknown;
  }
  const int64_t first = std::max(begin_ns, memory.time_ns.front());
  const int64_t last = std::min(end_ns, memory.time_ns.back());
  if (!known || first > last) return;
  curves.push_back({&process, memory.device, columns_of(memory, groups, first, last, columns)});
}

}  // namespace

std::vector<CategoryCurve> category_curves(const Groundwork& groundwork, int64_t begin_ns,
                                           int64_t end_ns, size_t columns) {
  std::vector<CategoryCurve> curves;
  for (const DeviceEvidence& d : groundwork.devices) {
    if (d.model == nullptr || d.categories.of.empty()) continue;
    add_curve(*d.process, *d.model, groups_of(d.categories.of), begin_ns, end_ns, columns, curves);
  }
  return curves;
}

std::vector<CategoryCurve> category_curves(const TraceModel& trace, int64_t begin_ns,
                                           int64_t end_ns, size_t columns) {
  std::vector<CategoryCurve> curves;
  for (const ProcessModel& process : trace.processes) {
    for (const AllocationHistory& memory : process.framework) {
      add_curve(process, memory, category_groups(), begin_ns, end_ns, columns, curves);
    }
  }
  return curves;
}

}  // namespace tidemark
