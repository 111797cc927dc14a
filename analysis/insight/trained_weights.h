// Which weights are trained, where the recorder knows whose gradients and optimizer state there
// are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/load/trace_model.h"

namespace tidemark {

struct TrainedWeights {
  std::vector<uint32_t> rows;  // allocations: those with a gradient or optimizer state, by birth
  uint64_t bytes = 0;
  uint64_t all_bytes = 0;  // of all weights

  // Whether it is known at all.
  bool known() const { return bytes != 0; }
};

// Of what is allocated after an event. `categories` by allocation.
TrainedWeights trained_weights(const ProcessModel& process, const AllocationHistory& model,
                               uint32_t event, std::span<const Category> categories);

}  // namespace tidemark
