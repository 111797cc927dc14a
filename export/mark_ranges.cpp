#include "export/mark_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tidemark {

namespace {

// A long stretch without kernels is marked in parts.
void join_parts(std::vector<MarkRange>& ranges) {
  size_t last = SIZE_MAX;
  size_t kept = 0;
  for (const MarkRange& range : ranges) {
    const bool unrecorded =
        range.mark.kind == MarkKind::kNotRecorded && range.mark.phase == MarkPhase::kBegin;
    if (unrecorded && last != SIZE_MAX && ranges[last].end_ns == range.mark.time_ns &&
        ranges[last].mark.name == range.mark.name) {
      ranges[last].end_ns = range.end_ns;
      continue;
    }
    if (unrecorded) last = kept;
    ranges[kept++] = range;
  }
  ranges.resize(kept);
}

}  // namespace

std::vector<MarkRange> mark_ranges(std::span<const Mark> marks) {
  using Key = std::tuple<MarkKind, uint32_t, uint64_t, uint32_t, uint32_t, int64_t>;
  const auto key_of = [](const Mark& m) {
    // Such a range may end on another thread, and its end may have no name.
    if (m.correlation != 0) return Key{m.kind, 0, m.correlation, 0, 0, 0};
    return Key{m.kind, m.thread, m.correlation, m.name, m.domain, m.device};
  };
  std::vector<Mark> in_order(marks.begin(), marks.end());
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Mark& a, const Mark& b) { return a.time_ns < b.time_ns; });
  std::vector<MarkRange> ranges;
  std::map<Key, std::vector<size_t>> open;
  for (const Mark& mark : in_order) {
    if (mark.phase == MarkPhase::kInstant) {
      ranges.push_back({mark, mark.time_ns});
    } else if (mark.phase == MarkPhase::kBegin) {
      open[key_of(mark)].push_back(ranges.size());
      ranges.push_back({mark, INT64_MAX});
    } else if (mark.phase == MarkPhase::kEnd) {
      const auto begun = open.find(key_of(mark));
      if (begun == open.end()) continue;
      ranges[begun->second.back()].end_ns = mark.time_ns;
      begun->second.pop_back();
      if (begun->second.empty()) open.erase(begun);
    }
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](const MarkRange& a, const MarkRange& b) {
    return a.mark.time_ns != b.mark.time_ns ? a.mark.time_ns < b.mark.time_ns : a.end_ns > b.end_ns;
  });
  join_parts(ranges);
  return ranges;
}

std::string mark_text(const Mark& mark, std::string_view name) {
  const bool numbered = mark.kind == MarkKind::kIteration && mark.phase == MarkPhase::kInstant &&
                        mark.correlation != 0;
  return numbered ? fmt::format("{} {}", name, mark.correlation - 1) : std::string(name);
}

std::string_view mark_kind_name(MarkKind kind) {
  switch (kind) {
    case MarkKind::kNvtx:
      return "nvtx";
    case MarkKind::kAnnotation:
      return "annotation";
    case MarkKind::kOptimizerStep:
      return "optimizer_step";
    case MarkKind::kIteration:
      return "iteration";
    case MarkKind::kCompiledRegion:
      return "compiled_region";
    case MarkKind::kUser:
      return "user";
    case MarkKind::kNotRecorded:
      return "not_recorded";
    case MarkKind::kNone:
      break;
  }
  return "mark";
}

}  // namespace tidemark
