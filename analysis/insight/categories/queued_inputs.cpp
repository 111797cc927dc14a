#include "analysis/insight/categories/queued_inputs.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace tidemark {

namespace {

constexpr size_t kLeastSteps = 8;  // in which blocks are freed
constexpr size_t kLeastAhead = 6;  // a queue of a few batches hides the copies

bool may_load(StackRole role) {
  return role == StackRole::kUser || role == StackRole::kData || role == StackRole::kLoading;
}

struct Life {
  uint32_t row = 0;
  size_t made = 0;  // steps
  size_t freed = 0;
};

struct OfStack {
  std::vector<Life> waiting;  // outlive the step they were made in; in the order of birth
  size_t others = 0;
  size_t left = 0;  // of those that outlive it, never freed
};

std::unordered_map<uint32_t, OfStack> lives_by_stack(const AllocationHistory& model,
                                                     const StackRoles& roles, const Steps& steps) {
  const AllocationColumns& all = model.allocations;
  std::unordered_map<uint32_t, OfStack> stacks;
  size_t step = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.seeded(i) || all.stack(i) == 0 || all.block_bytes(i) <= kSmallBytes) continue;
    if (!may_load(roles.of(all.stack(i)))) continue;
    while (step + 1 < steps.boundaries.size() && steps.boundaries[step + 1] <= all.birth(i)) ++step;
    OfStack& of = stacks[all.stack(i)];
    const uint32_t release = all.release(i);
    const bool waits = step + 1 < steps.boundaries.size() && release > steps.boundaries[step + 1];
    if (!waits) {
      ++of.others;
    } else if (release == kNever) {
      ++of.left;
    } else {
      of.waiting.push_back({static_cast<uint32_t>(i), step, steps.before_event(release)});
    }
  }
  return stacks;
}

bool are_first_in_first_out(const std::vector<Life>& lives) {
  size_t earlier = 0;  // than the one before
  for (size_t i = 1; i < lives.size(); ++i)
    earlier += lives[i].freed < lives[i - 1].freed ? 1U : 0U;
  return earlier <= lives.size() / 10;
}

size_t median_ahead(const std::vector<Life>& lives) {
  std::vector<size_t> ahead;
  for (const Life& life : lives) ahead.push_back(life.freed - life.made);
  const auto middle = ahead.begin() + static_cast<std::ptrdiff_t>(ahead.size() / 2);
  std::nth_element(ahead.begin(), middle, ahead.end());
  return *middle;
}

// Whether one step made far more than a step gives up.
bool was_filled(const std::vector<Life>& lives) {
  constexpr size_t kTimes = 4;
  std::map<size_t, size_t> made;
  std::map<size_t, size_t> freed;
  for (const Life& life : lives) {
    ++made[life.made];
    ++freed[life.freed];
  }
  if (freed.size() < kLeastSteps) return false;
  const auto most = std::max_element(
      made.begin(), made.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->second * freed.size() >= kTimes * lives.size();
}

bool is_queue(const OfStack& of) {
  const size_t waiting = of.waiting.size();
  if (waiting < kLeastSteps || waiting < of.left || waiting < of.others) return false;
  return was_filled(of.waiting) && are_first_in_first_out(of.waiting) &&
         median_ahead(of.waiting) >= kLeastAhead;
}

}  // namespace

std::vector<QueuedLine> lines_queued_ahead(const AllocationHistory& model, const StackRoles& roles,
                                           const Steps& steps) {
  std::vector<QueuedLine> lines;
  if (steps.count() < kLeastSteps) return lines;
  const uint32_t peak = model.allocated_peak.event;
  for (const auto& [stack, of] : lives_by_stack(model, roles, steps)) {
    if (!is_queue(of)) continue;
    QueuedLine line;
    line.stack = stack;
    for (const Life& life : of.waiting) {
      line.rows.push_back(life.row);
      line.steps_ahead = std::max(line.steps_ahead, life.freed - life.made);
      if (!model.allocations[life.row].alive_at(peak)) continue;
      ++line.at_peak;
      line.peak_bytes += model.allocations.block_bytes(life.row);
    }
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end(), [](const QueuedLine& a, const QueuedLine& b) {
    return a.peak_bytes != b.peak_bytes ? a.peak_bytes > b.peak_bytes : a.stack < b.stack;
  });
  return lines;
}

}  // namespace tidemark
