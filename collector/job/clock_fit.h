// Fits a straight line through clock differences, robust against outliers.
//
// A point is one collective seen by two ranks: when it ended on the rank's clock, and how far the
// reference's clock was ahead then. Ends differ by the microseconds that the last step of a
// collective takes, and occasionally by milliseconds (a busy host, a shared card). So the slope is
// first estimated as a median over pairs of points half the recording apart (after Theil and Sen),
// then outliers are removed by their median distance, and least squares fits the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

struct ClockPoint {
  int64_t rank_ns = 0;   // on the clock to be aligned
  int64_t ahead_ns = 0;  // the reference's clock minus this one
};

inline constexpr size_t kFewestPoints = 3;  // fewer do not allow an error estimate

// Takes at least kFewestPoints points, in any order. The line will be used from `first_ns` to
// `last_ns`. residual_ns is the distance that 95 % of the points stay below, outliers included,
// plus the effect of the error of the slope at those two times.
Alignment fit_clock(std::vector<ClockPoint> points, int64_t first_ns, int64_t last_ns);

}  // namespace tidemark
