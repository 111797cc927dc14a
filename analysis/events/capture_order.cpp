#include "analysis/events/capture_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tidemark {

namespace {

// Longer than any round of the writer, and short enough to hold in memory: a second of the busiest
// job is some hundred thousand rows.
constexpr int64_t kHeldNs = 2'000'000'000;
constexpr size_t kMaxHeld = 1 << 21;

constexpr auto earlier = [](const FrameworkEvent& a, const FrameworkEvent& b) {
  return a.time_ns < b.time_ns;
};

}  // namespace

CaptureOrder::CaptureOrder(std::vector<FrameworkEvent> segments, Sink sink)
    : segments_(std::move(segments)), sink_(std::move(sink)) {}

void CaptureOrder::add(std::span<const FrameworkEvent> rows, int64_t next_ns) {
  if (first_ == held_.size() && std::is_sorted(rows.begin(), rows.end(), earlier)) {
    const auto later = std::partition_point(
        rows.begin(), rows.end(), [&](const FrameworkEvent& e) { return e.time_ns <= next_ns; });
    const auto passed = static_cast<size_t>(later - rows.begin());
    pass_on(rows.first(passed));
    rows = rows.subspan(passed);
  }
  if (rows.empty()) return;
  if (first_ > held_.size() / 2) {
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  const auto middle = held_.insert(held_.end(), rows.begin(), rows.end());
  if (!std::is_sorted(middle, held_.end(), earlier)) {
    std::stable_sort(middle, held_.end(), earlier);
  }
  // Only rows that overlap in time are merged.
  const auto overlap = std::upper_bound(held_.begin() + static_cast<std::ptrdiff_t>(first_), middle,
                                        *middle, earlier);
  std::inplace_merge(overlap, middle, held_.end(), earlier);
  int64_t until = std::max(next_ns, std::max(held_.back().time_ns, INT64_MIN + kHeldNs) - kHeldNs);
  if (held_.size() - first_ > kMaxHeld) {
    until = std::max(until, held_[held_.size() - kMaxHeld].time_ns);
  }
  pass_on_until(until);
}

void CaptureOrder::pass_on_until(int64_t time_ns) {
  const size_t begin = first_;
  while (first_ < held_.size() && held_[first_].time_ns <= time_ns) ++first_;
  pass_on(std::span(held_).subspan(begin, first_ - begin));
}

void CaptureOrder::pass_on(std::span<const FrameworkEvent> rows) {
  for (size_t i = 0; i < rows.size() && rows[i].time_ns < passed_ns_; ++i) ++too_late_;
  if (!rows.empty()) passed_ns_ = std::max(passed_ns_, rows.back().time_ns);
  while (!rows.empty()) {
    auto end = rows.end();
    if (next_segment_ < segments_.size()) {
      end = std::lower_bound(rows.begin(), end, segments_[next_segment_], earlier);
    }
    if (end == rows.begin()) {
      sink_({&segments_[next_segment_++], 1});
      continue;
    }
    const auto before = static_cast<size_t>(end - rows.begin());
    sink_(rows.first(before));
    rows = rows.subspan(before);
  }
}

void CaptureOrder::finish() {
  pass_on_until(INT64_MAX);
  if (next_segment_ < segments_.size()) sink_(std::span(segments_).subspan(next_segment_));
  next_segment_ = segments_.size();
}

}  // namespace tidemark
