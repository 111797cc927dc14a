// Driver memory allocated on one device over time, by owner and by kind: the results of
// driver_state_at() at any instant without a pass over all allocations, and curves to draw.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/history/driver_model.h"

namespace tidemark {

// A value that changes in steps. Times ascend; each value holds from its time on.
struct StepSeries {
  std::vector<int64_t> time_ns;
  std::vector<uint64_t> value;

  // 0 before the first step.
  uint64_t at(int64_t time) const;
  // From one time to another, both included.
  uint64_t lowest(int64_t from, int64_t to) const;
  bool empty() const { return time_ns.empty(); }
};

struct StepChange {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};
StepSeries sum_of_changes(std::vector<StepChange> changes);

class DriverHistory {
 public:
  DriverHistory(const DriverModel& model, int64_t device);

  DriverState state_at(int64_t time_ns) const;

  const StepSeries& card() const { return card_; }
  // Live contexts, by their number.
  const StepSeries& contexts() const { return contexts_; }
  // Bytes on the card of each owner (a string).
  const std::map<uint32_t, StepSeries>& owners() const { return owners_; }

 private:
  StepSeries card_;
  StepSeries contexts_;
  StepSeries code_;
  std::map<uint32_t, StepSeries> owners_;
  std::array<StepSeries, kMemoryKinds> kinds_;
};

}  // namespace tidemark
