// Blocks that a program which does not train makes between two passes of its model and keeps
// through the next one: no result of an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/findings/evidence.h"
#include "analysis/findings/one_shape.h"

namespace tidemark {

// Blocks that lines of the program make between two whole passes of the model and keep through the
// next, several at a time: caches of its layers. A single one may be the last result, which is
// there until its variable is set again. The same if a request fails before the next pass: a pool
// that does not fit.
class CarriedBlocks {
 public:
  explicit CarriedBlocks(const DeviceEvidence& d);

  bool contains(size_t row) const { return row < carried_.size() && carried_[row]; }

 private:
  struct Pass {
    uint32_t first = 0;
    uint32_t last = 0;
    uint32_t births = 0;
  };

  void find_passes(const DeviceEvidence& d);
  void find_pool(const DeviceEvidence& d, const FailedAllocation& failure);
  bool has_results(const AllocationColumns& all, const FailedAllocation& failure) const;

  std::vector<Pass> passes_;   // by the events of their first and last allocation
  std::vector<bool> carried_;  // per row
};

}  // namespace tidemark
