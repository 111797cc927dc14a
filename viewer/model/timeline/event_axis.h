// An axis on which every event of a device is as wide as any other, so that a short job is not
// squeezed into a few pixels of a long recording. A position is a number of events; it lies between
// two where the time does. Events of the same time share a position, and the state before the
// history is at 0.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark::view {

class EventAxis {
 public:
  // Times are in ns since `start_ns`. The memory must have events, and outlive the axis.
  EventAxis(const AllocationHistory& memory, int64_t start_ns)
      : memory_(&memory), start_ns_(start_ns) {}

  double position(double time) const;
  double time(double position) const;
  // The times of the borders between columns of equal width.
  std::vector<double> edges(double begin, double end, uint32_t columns) const;

  const AllocationHistory* memory() const { return memory_; }

 private:
  double since_start(uint32_t event) const {
    return static_cast<double>(memory_->time_ns[event] - start_ns_);
  }

  const AllocationHistory* memory_;
  int64_t start_ns_;
};

}  // namespace tidemark::view
