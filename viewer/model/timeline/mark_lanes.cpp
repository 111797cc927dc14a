#include "viewer/model/timeline/mark_lanes.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tidemark::view {

namespace {

using Key = std::tuple<uint32_t, uint32_t, uint64_t, uint8_t>;  // name, thread, correlation, kind

Key key_of(const Mark& m) {
  // A range with a correlation may end on another thread, and its end may have no name.
  if (m.correlation != 0) return {0, 0, m.correlation, static_cast<uint8_t>(m.kind)};
  return {m.name, m.thread, m.correlation, static_cast<uint8_t>(m.kind)};
}

std::vector<MarkRange> pair_up(const std::vector<Mark>& marks, int64_t end_ns,
                               uint64_t& unmatched_ends) {
  std::vector<MarkRange> ranges;
  std::map<Key, std::vector<size_t>> open;
  for (const Mark& m : marks) {
    if (m.kind == MarkKind::kNotRecorded) continue;  // drawn where the kernels would be
    switch (m.phase) {
      case MarkPhase::kBegin:
        open[key_of(m)].push_back(ranges.size());
        ranges.push_back({m.time_ns, std::max(end_ns, m.time_ns), m.name, m.kind, true});
        break;
      case MarkPhase::kEnd: {
        std::vector<size_t>& begun = open[key_of(m)];
        if (begun.empty()) {
          ++unmatched_ends;
          break;
        }
        MarkRange& range = ranges[begun.back()];
        begun.pop_back();
        range.end_ns = std::max(m.time_ns, range.begin_ns);
        range.open = false;
        break;
      }
      case MarkPhase::kInstant:
        ranges.push_back({m.time_ns, m.time_ns, m.name, m.kind, false});
        break;
      case MarkPhase::kNone:
        break;
    }
  }
  return ranges;
}

}  // namespace

MarkLanes MarkLanes::of(const ProcessModel& process, int64_t end_ns) {
  MarkLanes lanes;
  std::vector<MarkRange> ranges = pair_up(process.marks, end_ns, lanes.unmatched_ends);
  // The longer of two that begin together is the outer one.
  std::stable_sort(ranges.begin(), ranges.end(), [](const MarkRange& a, const MarkRange& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  for (const MarkRange& range : ranges) {
    const auto row = std::find_if(lanes.rows.begin(), lanes.rows.end(), [&](const auto& r) {
      return r.back().end_ns <= range.begin_ns && r.back().begin_ns < range.begin_ns;
    });
    if (row != lanes.rows.end()) {
      row->push_back(range);
    } else if (lanes.rows.size() < kMaxRows) {
      lanes.rows.push_back({range});
    } else {
      ++lanes.left_out;
    }
  }
  return lanes;
}

}  // namespace tidemark::view
