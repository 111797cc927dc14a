// An ordinary step of a program, the one that is least like it, and how they differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/steps/steps.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

struct StepPair {
  uint32_t ordinary = 0;
  uint32_t unlike = 0;

  friend bool operator==(const StepPair&, const StepPair&) = default;
};

// Compares the highest and lowest level of each step and what it keeps. The first step is unlike
// all others and chosen only where there are two; one that was not finished, only if it is higher
// than all others. None: fewer than two steps.
std::optional<StepPair> steps_to_compare(const AllocationHistory& memory,
                                         const MinMaxPyramid& curves, const Steps& steps);

// The event of the step after which most is allocated; none: the step has no event.
std::optional<uint32_t> peak_of_step(const AllocationHistory& memory, const Steps& steps,
                                     uint32_t step);

// What to write above the two: "step 1, an ordinary one" and "step 3, least like the others:
// +488.2 MiB at its peak, in validation".
struct StepTitles {
  std::string ordinary;
  std::string unlike;
};
StepTitles step_titles(const Model& model, const Lane& lane, const StepPair& pair);

}  // namespace tidemark::view
