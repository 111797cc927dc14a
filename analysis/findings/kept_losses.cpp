#include "analysis/findings/kept_losses.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "analysis/findings/scalar_size.h"
#include "analysis/history/allocator_rules.h"
#include "analysis/names/module_stacks.h"

namespace tidemark {

namespace {

class Search {
 public:
  explicit Search(const DeviceEvidence& d) : d_(d), all_(d.model->allocations) {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (stays(i)) stacks_.insert(all_.stack(i));
    }
  }

  bool run() {
    for (size_t i = 0; i < all_.size(); ++i) {
      const StackRole role = d_.roles->of(all_.stack(i));
      const bool forward = role == StackRole::kForward;
      if (stays(i)) {
        open_ = true;
        loss_ = false;
        caller_ = d_.roles->caller_of(all_.stack(i));
      } else if (role == StackRole::kBackward) {
        loss_ = open_;  // of which there is a backward pass
        close();
      } else if (forward && is_of_other_pass(all_.stack(i)) && is_consumed(i)) {
        close();  // another forward pass, which has a backward pass
      } else if (open_ && (forward || role == StackRole::kUser) && is_scalar(i)) {
        loss_ = true;
      }
    }
    close();
    return 2 * losses_ >= passes_;
  }

 private:
  bool is_scalar(size_t i) const { return is_scalar_size(all_.asked_bytes(i)); }
  bool stays(size_t i) const {
    if (all_.seeded(i) || all_.block_bytes(i) <= kSmallBytes) return false;
    const uint32_t end = d_.steps.end_of_step(all_.birth(i));
    return end != kNever && all_.release(i) > end &&
           d_.roles->of(all_.stack(i)) == StackRole::kForward;
  }
  // Of the same operations, or of a module that another line calls.
  bool is_of_other_pass(uint32_t stack) const {
    return stacks_.contains(stack) || (in_module_[stack] && d_.roles->caller_of(stack) != caller_);
  }
  bool is_consumed(size_t i) const {
    const auto next = std::upper_bound(
        d_.backward_passes.begin(), d_.backward_passes.end(), all_.birth(i),
        [](uint32_t birth, const BackwardPass& pass) { return birth < pass.first; });
    return next != d_.backward_passes.end() && next->consumes(all_[i]);
  }
  void close() {
    passes_ += static_cast<size_t>(open_);
    losses_ += static_cast<size_t>(open_ && loss_);
    open_ = loss_ = false;
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const std::vector<bool> in_module_ = module_stacks(d_.process->names);
  std::unordered_set<uint32_t> stacks_;  // of what stays
  uint32_t caller_ = 0;                  // of the pass that stays
  size_t passes_ = 0;
  size_t losses_ = 0;
  bool open_ = false;  // within a pass that stays
  bool loss_ = false;  // a scalar was computed after it
};

}  // namespace

bool kept_graphs_have_losses(const DeviceEvidence& d) {
  return Search(d).run();
}

}  // namespace tidemark
