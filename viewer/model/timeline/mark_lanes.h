// Annotations of one process as rows of ranges that do not overlap.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/load/trace_model.h"

namespace tidemark::view {

struct MarkRange {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // equals begin_ns for an instant
  uint32_t name = 0;   // string
  MarkKind kind = MarkKind::kNone;
  bool open = false;  // its end was not recorded; drawn to the end of the trace
};

struct MarkLanes {
  // Outer ranges in the first row, what they contain below; each row in order of time.
  std::vector<std::vector<MarkRange>> rows;
  uint64_t unmatched_ends = 0;
  uint64_t left_out = 0;  // nested deeper than kMaxRows

  static constexpr size_t kMaxRows = 64;

  static MarkLanes of(const ProcessModel& process, int64_t end_ns);
};

}  // namespace tidemark::view
