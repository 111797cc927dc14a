// Growth of a program whose steps are not known, or of one that serves: its requests take turns,
// and no step of it has to be as low as the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Blocks of a stack that nobody freed.
struct LeftByStack {
  uint32_t stack = 0;
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  uint32_t oldest = 0;  // of these allocations
};

struct TimeGrowth {
  uint64_t risen_bytes = 0;   // of the level below which memory never fell again, at least
  uint64_t gained_bytes = 0;  // by growth alone, up to the end
  // What grew, largest first, if it can be told from the blocks of running requests.
  std::vector<LeftByStack> left;
  uint64_t saved_bytes = 0;  // of the peak, without it

  uint64_t left_bytes() const;
  uint64_t left_blocks() const;
};

// Nothing unless that level rises throughout the recording, and by an amount that matters. What
// loads the model and sets it up is left out.
std::optional<TimeGrowth> growth_over_time(const DeviceEvidence& d);

// The finding `creep` for it.
Finding creep_over_time(const DeviceEvidence& d, const TimeGrowth& growth);

}  // namespace tidemark
