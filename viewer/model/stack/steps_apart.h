// Since which step one rank needs more than another. Ranks of a job run the same steps, so this
// needs no common clock.
#pragma once

#include <optional>
#include <string>

#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

struct StepsApart {
  uint32_t first = 0;  // a step of both
  uint64_t bytes = 0;  // their peaks in it
  uint64_t other_bytes = 0;
};

// The first step from which on every peak of `lane` is at least a tenth above that of `other`, up
// to the step of its own peak. None: there is none, or they do not have the same steps.
std::optional<StepsApart> steps_apart(const Model& model, const Lane& lane, const Lane& other);

// "since when" in one sentence, where the times of the ranks cannot be compared.
std::string since_which_step(const Model& model, const Lane& lane, const Lane& other);

}  // namespace tidemark::view
