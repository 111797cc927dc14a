// The instant that each column of a picture shows: the one at which its curve is highest, so that
// no peak is missed.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/minmax_pyramid.h"

namespace tidemark {

inline constexpr uint32_t kNoSample = UINT32_MAX;

struct ColumnSamples {
  // Events of column i are [edges[i], edges[i + 1]).
  std::vector<uint32_t> edges;
  // The event after which the curve is highest, of the column's own and the one before them. None
  // for columns before the first event. Ascending.
  std::vector<uint32_t> events;
  std::vector<uint64_t> bytes;  // the curve after it

  uint32_t count() const { return static_cast<uint32_t>(events.size()); }
};

// `edges` ascend and are at most event_count().
ColumnSamples highest_in_columns(const AllocationHistory& memory, Curve curve,
                                 std::vector<uint32_t> edges);

}  // namespace tidemark
