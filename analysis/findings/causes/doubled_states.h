// States of two optimizers for the same parameters: both were given all of them, or an old one is
// still referred to.
//
// One of PyTorch's optimizers makes all states of a parameter at once, one after the other. What it
// or another one makes later in the sizes of parameters that all have states is a second set.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct DoubledStates {
  uint64_t bytes = 0;        // of the older set, while the newer one was alive
  uint64_t saved_bytes = 0;  // at the peak without it
  uint32_t stack = 0;        // of the newer set
};

// When memory ran out, or else at the peak; nothing if there are none that matter.
std::optional<DoubledStates> states_of_two_optimizers(const DeviceEvidence& d);

}  // namespace tidemark
