#include "viewer/model/timeline/span_row.h"

#include <algorithm>
#include <cmath>

namespace tidemark::view {

namespace {

constexpr double kWidePx = 2;  // from here on a span is drawn by itself

}  // namespace

bool SpanRow::add(int64_t begin_ns, int64_t end_ns, uint32_t item) {
  end_ns = std::max(begin_ns, end_ns);
  // An instant may be where another span ends, but not where one begins.
  if (!begin_.empty() && (begin_ns < end_.back() || begin_ns <= begin_.back())) return false;
  if (begin_.size() % kBusyStep == 0) busy_before_.push_back(busy_);
  begin_.push_back(begin_ns);
  end_.push_back(end_ns);
  item_.push_back(item);
  busy_ += static_cast<uint64_t>(end_ns - begin_ns);
  return true;
}

uint64_t SpanRow::busy_ns(uint32_t first, uint32_t last) const {
  const auto before = [&](uint32_t i) {
    if (i >= size()) return busy_;
    uint64_t sum = busy_before_[i / kBusyStep];
    for (uint32_t k = i / kBusyStep * kBusyStep; k < i; ++k) {
      sum += static_cast<uint64_t>(end_[k] - begin_[k]);
    }
    return sum;
  };
  return before(last) - before(first);
}

uint32_t SpanRow::first_ending_after(int64_t time_ns) const {
  const auto it = std::upper_bound(end_.begin(), end_.end(), time_ns);
  auto i = static_cast<uint32_t>(it - end_.begin());
  while (i > 0 && end_[i - 1] == time_ns && begin_[i - 1] == time_ns) --i;
  return i;
}

uint32_t SpanRow::first_beginning_at(int64_t time_ns) const {
  const auto it = std::lower_bound(begin_.begin(), begin_.end(), time_ns);
  return static_cast<uint32_t>(it - begin_.begin());
}

std::vector<SpanCell> SpanRow::cells(const TimeWindow& window, uint32_t columns) const {
  std::vector<SpanCell> cells;
  if (columns == 0 || !(window.end > window.begin)) return cells;
  const double width = (window.end - window.begin) / columns;  // ns per pixel
  const auto px = [&](int64_t time) {
    return (static_cast<double>(time - window.origin_ns) - window.begin) / width;
  };
  const auto time_of = [&](double at_px) {
    return window.origin_ns + static_cast<int64_t>(std::ceil(window.begin + at_px * width));
  };
  const double right = columns;
  for (uint32_t i = first_ending_after(time_of(0)); i < size() && px(begin_[i]) < right;) {
    const double x0 = px(begin_[i]);
    const double x1 = px(end_[i]);
    if (x1 - x0 >= kWidePx) {
      cells.push_back({static_cast<float>(std::max(x0, -4.0)),
                       static_cast<float>(std::min(x1, right + 4)), i, 1, 1});
      ++i;
      continue;
    }
    // All that begin in this pixel. Only the last of them can be wide, since they do not overlap.
    const double column = std::floor(x0);
    uint32_t next = std::max(i + 1, first_beginning_at(time_of(column + 1)));
    if (next > i + 1 && px(end_[next - 1]) - px(begin_[next - 1]) >= kWidePx) --next;
    const double end = std::max(column + 1, px(end_[next - 1]));
    const double busy = static_cast<double>(busy_ns(i, next)) / ((end - column) * width);
    cells.push_back(
        {static_cast<float>(column), static_cast<float>(end), i, next - i, std::min(busy, 1.0)});
    i = next;
  }
  return cells;
}

size_t SpanRow::memory_bytes() const {
  return (begin_.capacity() + end_.capacity() + busy_before_.capacity()) * sizeof(int64_t) +
         item_.capacity() * sizeof(uint32_t);
}

bool SpanStacker::add(int64_t begin_ns, int64_t end_ns, uint32_t item) {
  for (SpanRow& row : rows_) {
    if (row.add(begin_ns, end_ns, item)) return true;
  }
  if (rows_.size() == most_) return false;
  rows_.emplace_back();
  return rows_.back().add(begin_ns, end_ns, item);
}

}  // namespace tidemark::view
