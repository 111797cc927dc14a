// Spans of time in a row, none of which overlaps another: what to draw of them in a number of
// pixels, so that none is lost however many share a pixel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "viewer/model/timeline/columns.h"

namespace tidemark::view {

// One span wide enough to see, or all narrow ones of a pixel together.
struct SpanCell {
  float begin_px = 0;
  float end_px = 0;
  uint32_t first = 0;  // in the row
  uint32_t count = 0;
  double busy = 1;  // share of the cell that they cover
};

class SpanRow {
 public:
  // Begins must not decrease. False: the span overlaps the last one and belongs in another row.
  bool add(int64_t begin_ns, int64_t end_ns, uint32_t item);

  uint32_t size() const { return static_cast<uint32_t>(begin_.size()); }
  int64_t begin_ns(uint32_t i) const { return begin_[i]; }
  int64_t end_ns(uint32_t i) const { return end_[i]; }
  // What the caller passed to add(): a name, an index.
  uint32_t item(uint32_t i) const { return item_[i]; }
  uint64_t busy_ns() const { return busy_; }
  // Time covered by the spans [first, last).
  uint64_t busy_ns(uint32_t first, uint32_t last) const;
  // The first span that ends after the time, or is an instant at the time.
  uint32_t first_ending_after(int64_t time_ns) const;
  // The first span that begins at or after the time.
  uint32_t first_beginning_at(int64_t time_ns) const;

  // From left to right, at most about two per pixel. Every span that overlaps the window is in one.
  std::vector<SpanCell> cells(const TimeWindow& window, uint32_t columns) const;

  size_t memory_bytes() const;

 private:
  static constexpr uint32_t kBusyStep = 16;

  std::vector<int64_t> begin_;
  std::vector<int64_t> end_;
  std::vector<uint32_t> item_;
  std::vector<uint64_t> busy_before_;  // of every kBusyStep-th span: time covered before it
  uint64_t busy_ = 0;
};

// Distributes spans, which come in order of their begins, over as few rows as possible.
class SpanStacker {
 public:
  explicit SpanStacker(size_t most_rows) : most_(most_rows) {}

  // False: all rows are taken.
  bool add(int64_t begin_ns, int64_t end_ns, uint32_t item);
  std::vector<SpanRow> take() { return std::move(rows_); }

 private:
  size_t most_;
  std::vector<SpanRow> rows_;
};

}  // namespace tidemark::view
