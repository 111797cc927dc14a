// A straight line through clock differences, whatever a few of them say.
//
// A point is one collective seen by two ranks: when it ended by the rank's clock, and how far the
// reference's clock was ahead then. Ends differ by the microseconds that a collective's last step
// takes, and now and then by milliseconds (a busy host, a shared card); so the slope is first taken
// as a median over pairs of points half the recording apart (after Theil and Sen), far points are
// left out by their median distance, and least squares does the rest.
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

inline constexpr size_t kFewestPoints = 3;  // fewer say nothing about their own error

// The points come in any order. `first_ns` and `last_ns` are where the line will be used: what the
// slope may be off by counts there, in residual_ns. The residual is the distance that 95 of 100
// points stay below, far ones included, plus that. At least kFewestPoints points.
Alignment fit_clock(std::vector<ClockPoint> points, int64_t first_ns, int64_t last_ns);

}  // namespace tidemark
