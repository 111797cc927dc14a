#include "analysis/insight/categories.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace tidemark {

namespace {

struct Guess {
  Category category = Category::kUnknown;
  Confidence confidence = 0;
};

// A layer's working tensors are freed after a few more allocations; a block that outlives this many
// was kept for a reason.
constexpr uint32_t kKeptBirths = 12;
// This many kept blocks at once are a graph; a program without gradients has a handful.
constexpr uint32_t kGraphBlocks = 8;
constexpr size_t kGraphStacks = 3;

// Events at which an optimizer began a step, from marks; in order.
std::vector<uint32_t> optimizer_events(const ProcessModel& process,
                                       const AllocationHistory& model) {
  std::vector<uint32_t> events;
  for (const Mark& mark : process.marks) {
    const bool is_step = mark.kind == MarkKind::kOptimizerStep ||
                         process.names.string(mark.name).starts_with("Optimizer.step");
    if (!is_step || mark.phase == MarkPhase::kEnd) continue;
    uint32_t event = 0;
    if (model.event_at(mark.time_ns, event)) events.push_back(event + 1);
  }
  std::sort(events.begin(), events.end());
  return events;
}

// Visits the allocations from the last to the first and knows, at each, when the next phase of each
// kind begins.
class Categorizer {
 public:
  Categorizer(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
              const Steps& steps)
      : model_(model), roles_(roles), steps_(steps), marks_(optimizer_events(process, model)) {}

  Categories run(bool use_recorded) {
    const size_t count = model_.allocations.size();
    out_.of.resize(count);
    out_.confidence.resize(count);
    survey();
    out_.has_optimizer |= !marks_.empty();
    model_.release_pages();
    for (size_t i = count; i-- > 0;) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      advance_to(a);
      Guess guess = a.seeded && a.stack == 0 ? older_than_history(a) : guess_of(a);
      if (use_recorded && a.category != Category::kUnknown) guess = {a.category, 10};
      out_.of[i] = guess.category;
      out_.confidence[i] = guess.confidence;
      if (kept_without_backward_) out_.kept_without_backward.push_back(static_cast<uint32_t>(i));
      note(a);
    }
    std::reverse(out_.kept_without_backward.begin(), out_.kept_without_backward.end());
    keep_only_graphs();
    return std::move(out_);
  }

 private:
  void advance_to(const Allocation& a) {
    while (!marks_.empty() && marks_.back() > a.birth) {
      next_optimizer_ = std::min(next_optimizer_, marks_.back());
      marks_.pop_back();
    }
    while (failures_ != 0 && model_.failures[failures_ - 1].event >= a.birth) {
      next_failure_ = model_.failures[--failures_].event;
    }
    kept_without_backward_ = false;
  }

  // Records a visited allocation as the next of its kind for those before it.
  void note(const Allocation& a) {
    switch (roles_.of(a.stack)) {
      case StackRole::kForward:
        next_forward_ = a.birth;
        break;
      case StackRole::kBackward:
        next_backward_ = a.birth;
        break;
      case StackRole::kOptimizer:
      case StackRole::kOptimizerInit:
        next_optimizer_ = a.birth;
        break;
      default:
        break;
    }
    if (roles_.of(a.stack) != StackRole::kBackward) next_other_ = a.birth;
  }

  // A library's workspace is allocated under the line that needs it first, and stays: one block of
  // a stack that recurs in every step. A retained graph leaves one more block in each step.
  void survey() {
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      const StackRole role = roles_.of(a.stack);
      out_.has_backward |= role == StackRole::kBackward && !a.seeded;
      out_.has_optimizer |= role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
      if (!a.seeded && outlives_step(a)) ++survivors_[a.stack];
      const bool parameter = a.category == Category::kParameter;
      if (role == StackRole::kModuleSetUp || parameter) parameter_sizes_.insert(a.requested_bytes);
    }
  }

  bool is_workspace(const Allocation& a) {
    if (steps_.count() < 2 || !outlives_step(a)) return false;
    if (roles_.of(a.stack) == StackRole::kBackward) {
      return !parameter_sizes_.empty() && !parameter_sizes_.contains(a.requested_bytes);
    }
    return survivors_[a.stack] == 1;
  }

  static bool meets(const Allocation& a, uint32_t event) {
    return event != kNever && event < a.release;
  }
  // Still alive at the end of the following step: a loop variable lives into the next step.
  bool outlives_step(const Allocation& a) const {
    if (steps_.count() == 0) return a.release == kNever;
    const uint32_t end = steps_.end_of_step(a.birth);
    const uint32_t next = end == kNever ? kNever : steps_.end_of_step(end);
    return next != kNever && a.release > next;
  }
  // Allocations during its lifetime: they are in the order of birth, and each has about three
  // events.
  bool is_kept_long(const Allocation& a) const {
    return a.release == kNever || a.release - a.birth > 3 * kKeptBirths;
  }

  // What was there before and stays to the end is most likely the model.
  Guess older_than_history(const Allocation& a) const {
    return a.release == kNever && model_.recorded_events != 0 ? Guess{Category::kParameter, 5}
                                                              : Guess{};
  }

  Guess guess_of(const Allocation& a) {
    switch (roles_.of(a.stack)) {
      case StackRole::kForward:
        return forward(a);
      case StackRole::kBackward:
        return backward(a);
      case StackRole::kOptimizerInit:
        return {Category::kOptimizerState, 9};
      case StackRole::kOptimizer:
        return meets(a, next_forward_) || (a.release == kNever && model_.failures.empty())
                   ? Guess{Category::kOptimizerState, 8}
                   : Guess{Category::kTemporary, 8};
      case StackRole::kModuleSetUp:
        return is_kept_long(a) || meets(a, next_forward_) ? Guess{Category::kParameter, 8}
                                                          : Guess{Category::kTemporary, 6};
      case StackRole::kData:
        return {Category::kInput, 8};
      case StackRole::kCommunication:
        return {Category::kCommunication, 7};
      case StackRole::kUser:
      case StackRole::kSaving:
        return user(a);
      case StackRole::kNone:
        break;
    }
    return {};
  }

  Guess forward(const Allocation& a) {
    if (is_workspace(a)) return {Category::kUnknown, 0};
    if (meets(a, next_backward_)) return {Category::kActivation, 9};
    if (!is_kept_long(a)) return {Category::kTemporary, 7};
    // A forward pass that ended with an error could not run its backward pass.
    kept_without_backward_ = a.release != kNever && !meets(a, next_failure_);
    return {Category::kActivation, 5};
  }

  Guess backward(const Allocation& a) {
    if (is_workspace(a)) return {Category::kUnknown, 0};
    if (out_.has_optimizer) {
      return meets(a, next_optimizer_) ? Guess{Category::kGradient, 9}
                                       : Guess{Category::kTemporary, 8};
    }
    return meets(a, next_other_) ? Guess{Category::kGradient, 6} : Guess{Category::kTemporary, 6};
  }

  // The program's own lines: allocations that feed a forward pass are input, those after it are
  // loss.
  Guess user(const Allocation& a) const {
    const bool feeds = meets(a, next_forward_) && next_forward_ < next_backward_;
    if (feeds && !outlives_step(a)) return {Category::kInput, 7};
    if (meets(a, next_backward_) && !outlives_step(a)) return {Category::kActivation, 7};
    if (!is_kept_long(a)) return {Category::kTemporary, 5};
    return {};
  }

  // A graph is many blocks of several operations at once; a list of outputs is not one.
  void keep_only_graphs() {
    std::vector<uint32_t>& kept = out_.kept_without_backward;
    if (!out_.has_backward) kept.clear();
    std::vector<std::pair<uint32_t, int>> edges;
    for (const uint32_t i : kept) {
      edges.emplace_back(model_.allocations[i].birth, 1);
      edges.emplace_back(model_.allocations[i].release, -1);
    }
    std::sort(edges.begin(), edges.end());
    int64_t alive = 0;
    int64_t most = 0;
    uint32_t when = 0;
    for (const auto& [event, step] : edges) {
      alive += step;
      if (alive > most) when = event;
      most = std::max(most, alive);
    }
    std::unordered_set<uint32_t> stacks;
    for (const uint32_t i : kept) {
      if (model_.allocations[i].alive_at(when)) stacks.insert(model_.allocations[i].stack);
    }
    if (most < kGraphBlocks || stacks.size() < kGraphStacks) {
      kept.clear();
      return;
    }
    // The last layers' blocks are short-lived but belong to the same graph.
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (out_.of[i] != Category::kTemporary || !stacks.contains(a.stack)) continue;
      kept.push_back(i);
      out_.of[i] = Category::kActivation;
      out_.confidence[i] = 5;
    }
    std::sort(kept.begin(), kept.end());
  }

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Steps& steps_;
  std::vector<uint32_t> marks_;
  Categories out_;
  std::unordered_map<uint32_t, uint32_t> survivors_;  // stack -> blocks that outlived their step
  std::unordered_set<uint64_t> parameter_sizes_;
  uint32_t next_forward_ = kNever;
  uint32_t next_backward_ = kNever;
  uint32_t next_optimizer_ = kNever;
  uint32_t next_other_ = kNever;
  uint32_t next_failure_ = kNever;
  size_t failures_ = model_.failures.size();  // those not yet visited
  bool kept_without_backward_ = false;
};

}  // namespace

Categories categorize(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, const Steps& steps, bool use_recorded) {
  return Categorizer(process, model, roles, steps).run(use_recorded);
}

void infer_categories(TraceModel& trace) {
  for (ProcessModel& process : trace.processes) {
    if (process.framework.empty()) continue;
    const StackRoles roles(process);
    for (AllocationHistory& model : process.framework) {
      const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
      for (size_t i = 0; i < found.of.size(); ++i) model.allocations.set_category(i, found.of[i]);
    }
  }
}

}  // namespace tidemark
