// A range of the trace: what an export covers, what the viewer measures or zooms to.
#pragma once

#include <cstdint>

namespace tidemark {

// Nanoseconds of the trace's clock, both ends included.
struct TimeRange {
  int64_t begin_ns = INT64_MIN;
  int64_t end_ns = INT64_MAX;

  bool whole() const { return begin_ns == INT64_MIN && end_ns == INT64_MAX; }
  bool contains(int64_t time_ns) const { return begin_ns <= time_ns && time_ns <= end_ns; }
  bool overlaps(int64_t from_ns, int64_t to_ns) const {
    return from_ns <= end_ns && begin_ns <= to_ns;
  }
};

}  // namespace tidemark
