#include "analysis/insight/lives/block_ends.h"

#include <algorithm>

namespace tidemark {

// The end of the step after its own: a loop variable lives into the next step. Most questions are
// about the same step as the one before.
uint32_t BlockEnds::end_of_next_step(const Allocation& a) {
  if (a.birth < step_begin_ || a.birth >= step_end_) {
    const std::vector<uint32_t>& boundaries = steps_.boundaries;
    const auto end = std::upper_bound(boundaries.begin(), boundaries.end(), a.birth);
    step_begin_ = end == boundaries.begin() ? 0 : *(end - 1);
    step_end_ = end == boundaries.end() ? kNever : *end;
    next_end_ = step_end_ == kNever ? kNever : steps_.end_of_step(step_end_);
  }
  return next_end_;
}

void BlockEnds::note(const Allocation& a) {
  Ends& ends = ends_[index_of(a.stack)];
  const uint32_t next = end_of_next_step(a);
  ++ends.all;
  ends.larger += a.asked_bytes() > ends.last_bytes ? 1U : 0U;
  ends.last_bytes = a.asked_bytes();
  ends.stayed += stays(a) ? 1U : 0U;
  ends.last_birth = a.birth;
  const bool survives = outlives_step(a);
  ends.seen += next != kNever ? 1U : 0U;
  ends.survived += survives ? 1U : 0U;
  ends.seen_bytes += next != kNever ? a.block_bytes : 0;
  ends.survived_bytes += survives ? a.block_bytes : 0;
  if (next == kNever || a.release <= next || roles_.of(a.stack) != StackRole::kBackward) return;
  LeftBlocks& left = left_by_backward_[{a.stack, a.asked_bytes()}];
  left.steps += left.last_end != next ? 1U : 0U;
  left.last_end = next;
}

bool BlockEnds::outlives_step(const Allocation& a) {
  if (steps_.count() < 2) return a.release == kNever;
  const uint32_t next = end_of_next_step(a);
  if (next != kNever) return a.release > next;
  const Ends& ends = ends_[index_of(a.stack)];
  return ends.survived >= 2 && ends.survived * 2 > ends.seen;
}

bool BlockEnds::is_single_or_fixed_set(uint32_t stack) const {
  constexpr uint32_t kLeastSteps = 4;
  const Ends& ends = ends_[index_of(stack)];
  if (ends.survived == 1) return true;
  return ends.stayed == ends.all && steps_.count() >= kLeastSteps &&
         ends.last_birth < steps_.boundaries[steps_.count() / 2];
}

bool BlockEnds::is_listed(const Allocation& a, const std::vector<bool>& in_module) {
  if (steps_.count() == 0 || a.stack >= in_module.size()) return false;
  const Ends& ends = ends_[index_of(a.stack)];
  const bool most = 2 * ends.survived_bytes > ends.seen_bytes;
  return ends.survived >= 2 && (most || !in_module[a.stack]) && outlives_step(a);
}

// Batches are also shorter than the one before.
bool BlockEnds::is_collection(uint32_t stack) const {
  constexpr uint32_t kLeastBlocks = 8;
  const Ends& ends = ends_[index_of(stack)];
  return ends.all >= kLeastBlocks && ends.larger >= ends.all - ends.all / 8;
}

bool BlockEnds::keep_graphs(const std::vector<bool>& in_module) const {
  constexpr size_t kListed = 2;
  constexpr size_t kOfGraph = 4;  // one line in so many
  if (steps_.count() == 0) return false;
  size_t lines = 0;
  size_t kept = 0;
  for (size_t stack = 0; stack < std::min(in_module.size(), ends_.size() - 1); ++stack) {
    if (!in_module[stack] || ends_[stack].seen < 2) continue;
    ++lines;
    kept += ends_[stack].survived >= 2 ? 1U : 0U;
  }
  return kept > kListed || kOfGraph * kept > lines;
}

bool BlockEnds::is_left_in_each_step(const Allocation& a, uint32_t failure) {
  constexpr uint32_t kLeastSteps = 4;
  const auto left = left_by_backward_.find({a.stack, a.asked_bytes()});
  if (left == left_by_backward_.end()) return false;
  const uint32_t steps = left->second.steps;
  if (steps < kLeastSteps || 2 * steps < steps_.count()) return false;
  const uint32_t next = end_of_next_step(a);
  if (next != kNever) return a.release > next;
  return stays(a) || meets(a, failure);
}

}  // namespace tidemark
