// Workspaces of libraries that multiply matrices. PyTorch takes one for each handle and stream, the
// first time it is needed, and keeps it: recognized by their native frames, or by their size.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/insight/lives/block_life.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

class Workspaces {
 public:
  // Looks at all allocations.
  Workspaces(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles);

  // Call for all rows in order.
  void note(size_t row);

  bool contain(const Allocation& a) const {
    return a.seeded ? older_.contains(a.address) : births_.contains(a.birth);
  }
  // Its own stack says so.
  bool names(const Allocation& a) const { return a.stack < named_.size() && named_[a.stack]; }
  // Those of the history, by the events of their births.
  const std::unordered_set<uint32_t>& births() const { return births_; }
  // Of those of cuBLAS on this device; 0 if either of its usual sizes may be it.
  uint64_t bytes() const { return bytes_; }

 private:
  // Blocks of a workspace's size that may be the work of a backward pass.
  struct OfTheSize {
    uint32_t parameters = 0;
    uint32_t older = 0;             // without a stack
    uint32_t kept_by_backward = 0;  // to the end
  };

  void count_blocks();
  void count_results();
  bool fits(const Allocation& a) const;
  bool may_be_gradient(const Allocation& a) const;
  bool outlives_gradients(size_t row) const;

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const std::vector<bool> named_;      // by stack
  const std::vector<bool> of_tensor_;  // by stack
  uint64_t bytes_ = 0;
  std::unordered_map<uint64_t, OfTheSize> counts_;  // by size
  // By stack: blocks of a workspace's size that stay, or are alive at the last error.
  std::unordered_map<uint32_t, uint32_t> results_of_the_size_;
  std::set<std::tuple<uint64_t, uint32_t, bool>> taken_;  // stream, pool, in backward
  bool taken_by_forward_ = false;
  std::unordered_set<uint32_t> births_;
  std::unordered_set<uint64_t> older_;  // addresses, of those whose stack only the end names
  Allocation last_;                     // of cuBLAS
};

}  // namespace tidemark
