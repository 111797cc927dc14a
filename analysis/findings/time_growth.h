// Growth of a program whose steps are not known, or of one that serves: its requests take turns,
// and no step of it has to be as low as the one before.
#pragma once

#include <optional>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct TimeGrowth {
  uint64_t from_bytes = 0;    // the level below which memory never fell again, at first
  uint64_t to_bytes = 0;      // and at last
  uint64_t gained_bytes = 0;  // by growth alone, up to the end
  // The blocks of it, if they can be told from those of running requests.
  uint64_t left_bytes = 0;
  uint64_t left_blocks = 0;
  uint64_t saved_bytes = 0;  // of the peak, without it
};

// Nothing unless that level rises throughout the recording, and by an amount that matters. What
// loads the model and sets it up is left out.
std::optional<TimeGrowth> growth_over_time(const DeviceEvidence& d);

// The finding `creep` for it.
Finding creep_over_time(const DeviceEvidence& d, const TimeGrowth& growth);

}  // namespace tidemark
