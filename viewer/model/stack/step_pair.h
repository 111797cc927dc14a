// An ordinary step of a program, and the one that is least like it.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/steps/steps.h"

namespace tidemark::view {

struct StepPair {
  uint32_t ordinary = 0;
  uint32_t unlike = 0;

  friend bool operator==(const StepPair&, const StepPair&) = default;
};

// Compares the highest and lowest level of each step and what it keeps. The first step is unlike
// all others and chosen only where there are two. None: fewer than two steps.
std::optional<StepPair> steps_to_compare(const AllocationHistory& memory,
                                         const MinMaxPyramid& curves, const Steps& steps);

}  // namespace tidemark::view
