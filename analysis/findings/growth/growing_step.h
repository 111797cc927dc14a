// A step that needs more than the ones before it, as with growing images or batches: when it fails,
// only its beginning was recorded.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct GrowingStep {
  double times = 0;           // the sizes of the same requests in the step before
  uint64_t before_bytes = 0;  // most allocated in that step
  uint64_t needed_bytes = 0;  // of the one that failed, by the same measure
};

// Of the step in which the last request failed; none: its requests are not larger, or there is no
// step to compare it with.
std::optional<GrowingStep> growing_step(const DeviceEvidence& d);

// Whether that step needs more than the limit; in a program without a backward pass, the pass of
// the model in which the last request failed, compared with the largest before it.
bool outgrows_limit(const DeviceEvidence& d);

}  // namespace tidemark
