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

  // Call for all rows but those from before the history, in order.
  void note(size_t row);

  bool contain(const Allocation& a) const { return births_.contains(a.birth); }
  // Its own stack says so.
  bool names(const Allocation& a) const { return a.stack < named_.size() && named_[a.stack]; }
  const std::unordered_set<uint32_t>& births() const { return births_; }  // events

 private:
  void count_results();
  bool outlives_gradients(size_t row) const;

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const std::vector<bool> named_;  // by stack
  // By stack: blocks of a workspace's size that stay, or are alive at the last error.
  std::unordered_map<uint32_t, uint32_t> results_of_the_size_;
  std::set<std::tuple<uint64_t, uint32_t, bool>> taken_;  // stream, pool, in backward
  std::unordered_set<uint32_t> births_;
  Allocation last_;  // of cuBLAS
};

}  // namespace tidemark
