// Whether a level grows from step to step, in any shape: with every step, by stairs, or beginning
// late. The same for a recording and for a program that runs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tidemark {

struct LevelGrowth {
  uint32_t first_step = 0;  // the first that is higher than before
  double bytes_per_step = 0;
};

// `lows`: the lowest level in each step. Nothing if it does not grow steadily up to the last one,
// or if there are too few steps to tell.
std::optional<LevelGrowth> find_growth(const std::vector<uint64_t>& lows);

}  // namespace tidemark
