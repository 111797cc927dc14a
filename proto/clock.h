// Converts times from the clock of one process to the clock that the processes of a job share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "proto/rows.h"

namespace tidemark {

// raw + offset_ns + (raw - reference_ns) * drift_ppb / 1e9. Forged values wrap around; none is
// undefined behaviour.
inline int64_t aligned_ns(const Alignment& clock, int64_t raw_ns) {
  constexpr double kLargest = 4e18;
  const auto since = static_cast<int64_t>(static_cast<uint64_t>(raw_ns) -
                                          static_cast<uint64_t>(clock.reference_ns));
  const double drift = static_cast<double>(since) * (static_cast<double>(clock.drift_ppb) * 1e-9);
  const auto correction = static_cast<int64_t>(std::clamp(drift, -kLargest, kLargest));
  return static_cast<int64_t>(static_cast<uint64_t>(raw_ns) +
                              static_cast<uint64_t>(clock.offset_ns) +
                              static_cast<uint64_t>(correction));
}

// Converts the times of a table's rows. Durations are not converted: a drift of 50 ppm changes a
// second by 50 µs. Samples of the clock itself stay raw.
template <typename Row>
void align_rows(const Alignment& clock, std::span<Row> rows) {
  for (Row& row : rows) {
    if constexpr (requires { row.time_ns; }) row.time_ns = aligned_ns(clock, row.time_ns);
    if constexpr (requires { row.start_ns; }) row.start_ns = aligned_ns(clock, row.start_ns);
    if constexpr (requires { row.gpu_start_ns; }) {
      if (row.gpu_start_ns != 0) row.gpu_start_ns = aligned_ns(clock, row.gpu_start_ns);
    }
  }
}

}  // namespace tidemark
