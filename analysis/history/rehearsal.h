// What the peak would have been if some allocations had been smaller, or gone earlier.
//
// Every saving that a report promises is one of these: the recorded history played again with the
// change that the advice makes, and the two peaks subtracted.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark {

class Rehearsal {
 public:
  explicit Rehearsal(const AllocationHistory& model);

  // Leaves out this share (0 to 1) of an allocation from an event on, its birth unless told.
  void leave_out(const Allocation& allocation, double share = 1);
  void leave_out_from(const Allocation& allocation, uint32_t event, double share = 1);

  // The greatest number of allocated bytes that remains.
  uint64_t peak_bytes() const;
  // The recorded peak less the one that remains.
  uint64_t saved_bytes() const;

 private:
  const AllocationHistory& model_;
  std::vector<int64_t> left_out_;  // change at each event
};

}  // namespace tidemark
