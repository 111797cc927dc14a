#include "analysis/insight/training_lines.h"

#include <algorithm>
#include <vector>

namespace tidemark {

namespace {

// Forward passes under one line of the program, until those of another line begin.
struct Visit {
  uint64_t bytes = 0;
  uint64_t kept_bytes = 0;  // still alive when the next backward pass began
  uint64_t used_bytes = 0;  // of those, freed before the end of its step
  uint32_t births = 0;

  // A stored loss also outlives its pass, but is tiny.
  bool keeps() const { return kept_bytes > bytes / 100; }
  bool is_used() const { return used_bytes > bytes / 100; }
};

}  // namespace

// Visits the allocations from the last to the first, so that the next backward pass is known. What
// lies between it and a pass that feeds it, as the computing of a loss, also trains.
TrainingLines::TrainingLines(const AllocationHistory& model, const StackRoles& roles,
                             const Steps& steps) {
  uint32_t next_backward = kNever;
  uint32_t step_end = kNever;  // of that backward pass
  uint32_t current = 0;
  bool others_used = false;       // memory of a later visit is, in that backward pass
  std::vector<uint32_t> between;  // lines
  Visit visit;
  const auto leave = [&] {
    if (visit.births == 0) return;
    ++lines_[current].visits;
    between.push_back(current);
    if (visit.is_used() || (visit.keeps() && !others_used)) {
      for (const uint32_t line : between) ++lines_[line].feeding;
      between.clear();
    }
    others_used |= visit.is_used();
    visit = {};
  };
  for (size_t i = model.allocations.size(); i-- > 0;) {
    model.passed(i);
    const Allocation& a = model.allocations[i];
    if (a.seeded) continue;
    const StackRole role = roles.of(a.stack);
    if (role == StackRole::kBackward) {
      leave();
      between.clear();
      others_used = false;
      next_backward = a.birth;
      step_end = steps.end_of_step(a.birth);
    }
    if (role != StackRole::kForward) continue;
    if (const uint32_t caller = roles.caller_of(a.stack); caller != current) {
      leave();
      current = caller;
    }
    ++visit.births;
    visit.bytes += a.block_bytes;
    if (next_backward == kNever || a.release <= next_backward) continue;
    visit.kept_bytes += a.block_bytes;
    if (a.release <= step_end && a.release != kNever) visit.used_bytes += a.block_bytes;
  }
  leave();
}

bool TrainingLines::any() const {
  return std::any_of(lines_.begin(), lines_.end(),
                     [](const auto& entry) { return entry.second.trains(); });
}

bool TrainingLines::trains(uint32_t caller) const {
  const auto line = lines_.find(caller);
  return line != lines_.end() && line->second.trains();
}

}  // namespace tidemark
