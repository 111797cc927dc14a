#include "analysis/insight/lives/workspaces.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "analysis/names/stacks_with.h"
#include "analysis/names/workspace_names.h"

namespace tidemark {

namespace {

constexpr uint32_t kSoon = 4;  // events after which a library has all its workspaces

template <bool (*is_one)(std::string_view)>
std::vector<bool> stacks_in(const Dictionary& names) {
  return stacks_with(names, [&](const Frame& f) { return is_one(names.string(f.function)); });
}

}  // namespace

Workspaces::Workspaces(const ProcessModel& process, const AllocationHistory& model,
                       const StackRoles& roles)
    : model_(model),
      roles_(roles),
      named_(stacks_in<takes_workspace>(process.names)),
      of_tensor_(stacks_in<makes_tensor>(process.names)) {
  const auto& kinds = model_.allocations.kinds();
  if (std::none_of(kinds.begin(), kinds.end(),
                   [](const AllocationKind& k) { return is_workspace_size(k.asked_bytes()); })) {
    return;
  }
  count_blocks();
  count_results();
}

// The device has one of the two sizes, and few other blocks have the odd one.
void Workspaces::count_blocks() {
  for (size_t i = 0; i < model_.allocations.size(); ++i) {
    const Allocation& a = model_.allocations[i];
    if (!is_workspace_size(a.asked_bytes()) || !stays(a)) continue;
    const StackRole role = roles_.of(a.stack);
    OfTheSize& of_the_size = counts_[a.asked_bytes()];
    if (names(a)) continue;
    if (is_older(a)) {
      ++of_the_size.older;
    } else if (role == StackRole::kModuleSetUp) {
      ++of_the_size.parameters;
    } else if (role == StackRole::kBackward && fits(a)) {
      ++of_the_size.kept_by_backward;
    }
    const bool in_pass = role == StackRole::kForward || role == StackRole::kBackward;
    if (a.asked_bytes() == kOddWorkspace && (is_older(a) || (in_pass && fits(a)))) {
      bytes_ = kOddWorkspace;
    }
  }
}

// A layer that keeps several blocks of a workspace's size, on one stream, keeps its results. What
// is alive when memory runs out stays, whatever it is.
void Workspaces::count_results() {
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
    if (is_older(a) || !stays(a) || !is_workspace_size(a.asked_bytes())) continue;
    if (roles_.of(a.stack) != StackRole::kForward) continue;
    results_of_the_size_[a.stack] =
        std::max(results_of_the_size_[a.stack], ++counts[{a.stack, a.stream}]);
  }
}

bool Workspaces::fits(const Allocation& a) const {
  return is_workspace_size(a.asked_bytes()) && (bytes_ == 0 || a.asked_bytes() == bytes_) &&
         !(a.stack < of_tensor_.size() && of_tensor_[a.stack]);
}

// Each thread that multiplies has one for each of its streams: the first of the size that stays.
void Workspaces::note(size_t row) {
  const Allocation& a = model_.allocations[row];
  if (is_older(a)) return;
  const auto add = [&] {
    if (a.seeded) older_.insert(a.address);
    if (!a.seeded) births_.insert(a.birth);
  };
  if (names(a)) return add();
  if (!stays(a)) return;
  const bool backward = roles_.of(a.stack) == StackRole::kBackward;
  if (!backward && roles_.of(a.stack) != StackRole::kForward) return;
  // The one of cublasLt follows that of cuBLAS; in the backward pass, a gradient may.
  const bool follows = !a.seeded && a.stack == last_.stack && a.stream == last_.stream &&
                       a.birth - last_.birth <= kSoon;
  if (a.asked_bytes() == kOfCublasLt && follows && (!backward || outlives_gradients(row))) add();
  if (!fits(a) || (backward && may_be_gradient(a))) return;
  const auto alike = results_of_the_size_.find(a.stack);
  if (alike != results_of_the_size_.end() && alike->second > 1) return;
  if (!taken_.emplace(a.stream, a.pool, backward).second) return;
  add();
  taken_by_forward_ |= !backward;
  if (!a.seeded) last_ = a;
}

// As many blocks as there are parameters of the size stay, and the forward pass took no workspace:
// then the backward pass has none of this history either.
bool Workspaces::may_be_gradient(const Allocation& a) const {
  const auto found = counts_.find(a.asked_bytes());
  if (found == counts_.end() || taken_by_forward_) return false;
  const OfTheSize& n = found->second;
  return n.older != 0 ? n.kept_by_backward <= n.older : n.kept_by_backward == n.parameters;
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
