#include "analysis/insight/lives/workspaces.h"

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/insight/lives/workspace_stacks.h"

namespace tidemark {

namespace {

constexpr uint32_t kSoon = 4;  // events after which a library has all its workspaces

}  // namespace

Workspaces::Workspaces(const ProcessModel& process, const AllocationHistory& model,
                       const StackRoles& roles)
    : model_(model), roles_(roles), named_(workspace_stacks(process.names)) {
  count_results();
}

// A layer that keeps several blocks of a workspace's size, on one stream, keeps its results. What
// is alive when memory runs out stays, whatever it is.
void Workspaces::count_results() {
  const auto& kinds = model_.allocations.kinds();
  if (std::none_of(kinds.begin(), kinds.end(),
                   [](const AllocationKind& k) { return is_workspace_size(k.asked_bytes()); })) {
    return;
  }
  if (!model_.failures.empty()) {
    const uint32_t failed = model_.failures.back().event;
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (a.birth > failed) break;
      if (meets(a, failed) && is_workspace_size(a.asked_bytes())) ++results_of_the_size_[a.stack];
    }
  }
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> counts;  // by stack and stream
  for (size_t i = 0; i < model_.allocations.size(); ++i) {
    const Allocation& a = model_.allocations[i];
    if (a.seeded || !stays(a) || !is_workspace_size(a.asked_bytes())) continue;
    if (roles_.of(a.stack) != StackRole::kForward) continue;
    results_of_the_size_[a.stack] =
        std::max(results_of_the_size_[a.stack], ++counts[{a.stack, a.stream}]);
  }
}

// Each thread that multiplies has one for each of its streams: the first of the size that stays.
void Workspaces::note(size_t row) {
  const Allocation& a = model_.allocations[row];
  if (names(a)) births_.insert(a.birth);
  if (!stays(a) || names(a)) return;
  const bool backward = roles_.of(a.stack) == StackRole::kBackward;
  if (!backward && roles_.of(a.stack) != StackRole::kForward) return;
  // The one of cublasLt follows that of cuBLAS; in the backward pass, a gradient may.
  const bool follows =
      a.stack == last_.stack && a.stream == last_.stream && a.birth - last_.birth <= kSoon;
  if (a.asked_bytes() == kOfCublasLt && follows && (!backward || outlives_gradients(row))) {
    births_.insert(a.birth);
  }
  if (!is_workspace_size(a.asked_bytes())) return;
  const auto alike = results_of_the_size_.find(a.stack);
  if (alike != results_of_the_size_.end() && alike->second > 1) return;
  if (!taken_.emplace(a.stream, a.pool, backward).second) return;
  births_.insert(a.birth);
  last_ = a;
}

// Whether a block that stays is none of the gradients of its backward pass: most of these are
// freed.
bool Workspaces::outlives_gradients(size_t row) const {
  const AllocationColumns& all = model_.allocations;
  size_t end = row;
  while (end < all.size() && roles_.of(all.stack(end)) == StackRole::kBackward) ++end;
  if (end == all.size()) return false;
  size_t freed = 0;
  size_t kept = 0;
  for (size_t i = row + 1; i < end; ++i) {
    if (all.release(i) > all.birth(end)) ++(all.release(i) == kNever ? kept : freed);
  }
  return freed > kept;
}

}  // namespace tidemark
