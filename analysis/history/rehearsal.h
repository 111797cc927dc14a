// What the peak would have been if some allocations had been smaller, or alive at other times.
//
// Every saving in a report is computed this way: the recorded history is replayed with the change
// that the advice suggests, and the two peaks are subtracted. A history that began late begins with
// what the step before has left, of which nothing is known: what remains there does not count, once
// most of it is gone.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

class Rehearsal {
 public:
  explicit Rehearsal(const AllocationHistory& model);

  // Leaves out this share (0 to 1) of an allocation from an event on, by default its birth.
  void leave_out(const Allocation& allocation, double share = 1);
  void leave_out_from(const Allocation& allocation, uint32_t event, double share = 1);
  // Counts an allocation from an event before its birth on.
  void hold_from(const Allocation& allocation, uint32_t event);

  // The remaining peak of allocated bytes.
  uint64_t peak_bytes() const;
  // The recorded peak minus the remaining one.
  uint64_t saved_bytes() const;

 private:
  uint32_t first_counted() const;

  const AllocationHistory& model_;
  std::vector<uint64_t> left_out_;  // change at each event
};

}  // namespace tidemark
