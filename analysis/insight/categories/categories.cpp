#include "analysis/insight/categories/categories.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "analysis/insight/categories/block_life.h"
#include "analysis/insight/categories/kept_graphs.h"
#include "analysis/insight/categories/line_rounds.h"
#include "analysis/insight/categories/older_blocks.h"
#include "analysis/insight/categories/queued_inputs.h"
#include "analysis/insight/categories/second_order.h"
#include "analysis/insight/categories/served_graphs.h"
#include "analysis/insight/categories/serving_cache.h"
#include "analysis/insight/categories/stacks_through.h"
#include "analysis/insight/categories/weight_copies.h"
#include "analysis/insight/categories/workspace_stacks.h"
#include "analysis/insight/training_lines.h"
#include "analysis/names/module_stacks.h"

namespace tidemark {

namespace {

// A layer's working tensors are freed after a few more allocations; a block that outlives this many
// was kept for a reason.
constexpr uint32_t kKeptBirths = 12;
// Events in which two blocks are freed.
constexpr uint32_t kLastFrees = 4;
// Events after which a library has all its workspaces, or a variable its new value.
constexpr uint32_t kSoon = 4;

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

bool is_fsdp(std::string_view /*function*/, std::string_view file) {
  return file.find("/fsdp/") != file.npos;
}

// A class of the program itself: recordings name functions in full, snapshots do not.
bool is_constructor(std::string_view function, std::string_view file) {
  return file.find("torch/") == file.npos &&
         (function == "__init__" || function.ends_with(".__init__"));
}

bool copies_parameter(std::string_view function, std::string_view file) {
  return file.ends_with("torch/nn/parameter.py") && function.ends_with("__deepcopy__");
}

// Visits the allocations from the last to the first and knows, at each, when the next phase of each
// kind begins.
class Categorizer {
 public:
  Categorizer(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
              const Steps& steps)
      : process_(process),
        model_(model),
        roles_(roles),
        steps_(steps),
        lines_(model, roles),
        cache_(process, model, roles, steps),
        copies_(process.names, model),
        second_order_(process.names, model, roles),
        of_fsdp_(stacks_through(process.names, is_fsdp)),
        of_constructor_(stacks_through(process.names, is_constructor)),
        of_copied_parameter_(stacks_through(process.names, copies_parameter)),
        of_workspace_(workspace_stacks(process.names)),
        marks_(optimizer_events(process, model)),
        ends_(process.names.stack_count() + 1) {}

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
      Guess guess = is_older(a) ? Guess{} : guess_of(a);
      if (use_recorded && a.category != Category::kUnknown) guess = {a.category, 10};
      out_.of[i] = guess.category;
      out_.confidence[i] = guess.confidence;
      if (kept_without_backward_ && !copies_.holds(i, parameter_sizes_)) {
        out_.kept_without_backward.push_back(static_cast<uint32_t>(i));
      }
      if (guess.category == Category::kKvCache) known_.cache_sizes.insert(a.asked_bytes());
      if (guess.category == Category::kGradient && !a.seeded &&
          (model_.seeded_blocks != 0 || !known_.set_up.empty())) {
        note_gradient(a, static_cast<uint32_t>(i));
      }
      note(a);
    }
    follow_earlier_caches();
    sort_older_blocks(process_, model_, roles_, steps_, known_, use_recorded, out_);
    take_older_graph();
    std::reverse(out_.kept_without_backward.begin(), out_.kept_without_backward.end());
    if (out_.has_backward) {
      keep_only_graphs(model_, small_graphs_.empty() ? kGraph : kSmallGraph, out_);
    }
    return std::move(out_);
  }

 private:
  struct Ends {
    uint32_t seen = 0;  // blocks whose step and the next one end in the history
    uint32_t survived = 0;
    uint32_t all = 0;
    uint32_t stayed = 0;
    uint32_t last_birth = 0;
    uint32_t larger = 0;  // than the block before
    uint64_t last_bytes = 0;
  };

  // Blocks of one kind that outlive the step after their own.
  struct LeftBlocks {
    uint32_t steps = 0;  // that left some
    uint32_t last_end = 0;
  };

  // The large blocks of a forward pass, and those of them that outlive it.
  struct Outliving {
    uint64_t all = 0;
    uint64_t bytes = 0;
    uint64_t kept = 0;
    uint64_t kept_bytes = 0;
    std::unordered_set<uint32_t> kept_stacks;

    void add(const Allocation& a, bool outlives) {
      ++all;
      bytes += a.block_bytes;
      if (!outlives) return;
      ++kept;
      kept_bytes += a.block_bytes;
      if (kept_stacks.size() < 2) kept_stacks.insert(a.stack);
    }
    // Layers in a loop have one line for several of them.
    bool are_most() const {
      return all >= 3 && 2 * kept >= all && 2 * kept_bytes >= bytes &&
             (kept_stacks.size() >= 2 || kept >= 3);
    }
  };

  void advance_to(const Allocation& a) {
    while (!marks_.empty() && marks_.back() > a.birth) {
      next_optimizer_ = std::min(next_optimizer_, marks_.back());
      marks_.pop_back();
    }
    while (failures_ != 0 && model_.failures[failures_ - 1].event >= a.birth) {
      next_failure_ = model_.failures[--failures_].event;
    }
    kept_without_backward_ = false;
    const StackRole role = roles_.of(a.stack);
    if (role == role_before_) return;
    if (role == StackRole::kForward) pass_end_ = a.birth;
    if (role == StackRole::kBackward) backward_end_ = a.birth;
  }

  // Records a visited allocation as the next of its kind for those before it.
  void note(const Allocation& a) {
    switch (roles_.of(a.stack)) {
      case StackRole::kForward:
        next_forward_ = a.birth;
        if (is_of_model(a.stack)) next_pass_ = a.birth;
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
    role_before_ = roles_.of(a.stack);
  }

  void note_gradient(const Allocation& a, uint32_t i) {
    KnownSizes::Gradients& of_size = known_.gradients[a.asked_bytes()];
    of_size.all.push_back(i);
    if (meets(a, next_other_)) of_size.held.push_back(i);
    if (is_of_fsdp(a)) known_.flat_gradients.push_back(i);
  }

  bool is_of_fsdp(const Allocation& a) const {
    return a.stack < of_fsdp_.size() && of_fsdp_[a.stack];
  }

  void survey() {
    survey_failure();
    survey_first_pass();
    survey_results();
    survey_inputs();
    std::unordered_set<uint64_t> made_sizes;  // of parameters that the history allocates
    bool in_pass = false;
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      const StackRole role = roles_.of(a.stack);
      out_.has_backward |= role == StackRole::kBackward && !a.seeded;
      out_.has_optimizer |= role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
      if (!a.seeded) note_end(a);
      const bool made = role == StackRole::kModuleSetUp || a.category == Category::kParameter;
      if (made) made_sizes.insert(a.asked_bytes());
      if (made || (is_older(a) && stays(a))) parameter_sizes_.insert(a.asked_bytes());
      if (is_set_up(a)) known_.set_up.push_back(static_cast<uint32_t>(i));
      if (a.seeded) continue;
      const bool kept = stays(a) && a.block_bytes > kSmallBytes && role == StackRole::kUser;
      if (kept) known_.kept_sizes.insert(a.asked_bytes());
      if (is_of_fsdp(a)) known_.gathered_sizes.insert(a.asked_bytes());
      note_workspace(i);
      if (role == StackRole::kForward) ++forward_births_;
      if (role == StackRole::kUser) rounds_[a.stack].add(a, forward_births_);
      if (role == StackRole::kForward && !in_pass) cache_.add_pass(a.birth);
      if (role == StackRole::kBackward) note_pass(a.birth, kNever);
      if (role == StackRole::kForward && !in_pass) note_pass(kNever, a.birth);
      in_pass = role == StackRole::kForward;
      if (in_pass) pass_.push_back(static_cast<uint32_t>(i));
    }
    note_pass(kNever, kNever);
    keeps_graphs_ = steps_.count() != 0 && keeps_graphs();
    if (!out_.has_backward) {
      cache_.survey(made_sizes, workspaces_, known_.kept_sizes);
      ServedGraphs graphs = served_graphs(model_, roles_, in_module_, workspaces_);
      served_graphs_ = std::move(graphs.stacks);
      older_graph_ = std::move(graphs.older);
      out_.graphs_end_with_pass = !graphs.outlive_passes;
    }
    if (out_.has_backward) {
      for (const QueuedLine& line : lines_queued_ahead(model_, roles_, steps_)) {
        queued_.insert(line.stack);
      }
    }
    keep_models();
  }

  // Events at which the model and a backward pass begin for the first time.
  void survey_first_pass() {
    const AllocationColumns& all = model_.allocations;
    for (size_t i = 0; i < all.size() && first_backward_ == kNever; ++i) {
      const StackRole role = roles_.of(all.stack(i));
      if (all.seeded(i)) continue;
      if (role == StackRole::kForward) first_pass_ = std::min(first_pass_, all.birth(i));
      if (role == StackRole::kBackward) first_backward_ = all.birth(i);
    }
  }

  // What is alive when memory runs out stays, whatever it is.
  void survey_failure() {
    if (model_.failures.empty()) return;
    const uint32_t failed = model_.failures.back().event;
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (a.birth > failed) break;
      if (!meets(a, failed)) continue;
      ++failed_with_[a.stack];
      if (is_workspace_size(a.asked_bytes())) ++results_like_workspaces_[a.stack];
    }
  }

  // Rows are visited from the last to the first: these come after all others.
  void take_older_graph() {
    for (size_t k = older_graph_.size(); k-- > 0;) {
      const uint32_t i = older_graph_[k];
      if (out_.confidence[i] == 10) continue;
      out_.of[i] = Category::kActivation;
      out_.confidence[i] = 5;
      out_.kept_without_backward.push_back(i);
    }
  }

  // How long the blocks of an unfinished request would have lived is not known: they are a cache if
  // those of earlier requests were.
  void follow_earlier_caches() {
    if (out_.has_backward || model_.failures.empty()) return;
    struct Line {
      uint32_t caches = 0;
      uint32_t others = 0;
    };
    std::unordered_map<uint32_t, Line> lines;  // by stack: of what was freed before the error
    const uint32_t failed = model_.failures.back().event;
    const AllocationColumns& all = model_.allocations;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all.seeded(i) || all.release(i) > failed || all.block_bytes(i) <= kSmallBytes) continue;
      Line& line = lines[all.stack(i)];
      ++(out_.of[i] == Category::kKvCache ? line.caches : line.others);
    }
    for (size_t i = 0; i < all.size() && all.birth(i) <= failed; ++i) {
      if (all.release(i) <= failed || out_.confidence[i] == 10) continue;
      const auto line = lines.find(all.stack(i));
      if (line == lines.end() || line->second.caches <= 3 * line->second.others) continue;
      out_.of[i] = Category::kKvCache;
      out_.confidence[i] = 5;
    }
  }

  // The program's lines that run before a pass of the model, at least once. The others only go on
  // with what passes have computed. Each step begins anew.
  void survey_inputs() {
    size_t step = 0;
    bool passed = false;
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      if (model_.allocations.seeded(i)) continue;
      const uint32_t birth = model_.allocations.birth(i);
      for (; step < steps_.boundaries.size() && steps_.boundaries[step] <= birth; ++step) {
        passed = false;
      }
      const uint32_t stack = model_.allocations.stack(i);
      const StackRole role = roles_.of(stack);
      if (role == StackRole::kForward) passed |= is_of_model(stack);
      if (role == StackRole::kUser && !passed) before_passes_.insert(stack);
    }
  }

  // Not of a function of torch.nn that the program calls itself, unless there are no modules.
  bool is_of_model(uint32_t stack) const {
    return !has_modules_ || (stack < in_module_.size() && in_module_[stack]);
  }

  // A layer that keeps several blocks of a workspace's size, on one stream, keeps its results.
  void survey_results() {
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> counts;  // by stack and stream
    const auto& kinds = model_.allocations.kinds();
    if (std::none_of(kinds.begin(), kinds.end(),
                     [](const AllocationKind& k) { return is_workspace_size(k.asked_bytes()); })) {
      return;
    }
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (a.seeded || !stays(a) || !is_workspace_size(a.asked_bytes())) continue;
      if (roles_.of(a.stack) != StackRole::kForward) continue;
      results_like_workspaces_[a.stack] =
          std::max(results_like_workspaces_[a.stack], ++counts[{a.stack, a.stream}]);
    }
  }

  // The forward pass before a backward pass, or before another forward pass. A graph that no
  // backward pass uses is alive as a whole when the pass ends. One of a few operations only shows
  // if the results of several, and most bytes, are still alive when the next pass begins.
  void note_pass(uint32_t backward, uint32_t next_pass) {
    if (pass_.empty()) return;
    const uint32_t end = model_.allocations.birth(pass_.back());
    int64_t blocks = 0;
    std::unordered_set<uint32_t> stacks;
    Outliving large;
    Outliving large_at_end;
    for (const uint32_t i : pass_) {
      const Allocation& a = model_.allocations[i];
      if (a.block_bytes > kSmallBytes && !workspaces_.contains(a.birth)) {
        large.add(a, meets(a, next_pass));
        large_at_end.add(a, meets(a, end));
      }
      const bool used = a.release > backward && !validates_at(a.stack);
      if (!meets(a, end) || used || copies_.holds(i, parameter_sizes_)) continue;
      ++blocks;
      if (stacks.size() < kGraph.stacks) stacks.insert(a.stack);
    }
    if (blocks >= kGraph.blocks && stacks.size() >= kGraph.stacks) unused_graphs_.insert(end);
    // Its result, and what the last operation works on.
    const bool keeps_little = large_at_end.kept <= 2 && large_at_end.all >= 8;
    if (keeps_little) without_graph_.insert(end);
    const uint32_t stack = model_.allocations.stack(pass_.front());
    if (validates_at(stack) && (large.are_most() || is_freed_backwards())) {
      small_graphs_.insert(roles_.caller_of(stack));
    }
    pass_.clear();
  }

  // Whether the surveyed pass is freed as a graph is.
  bool is_freed_backwards() const {
    std::vector<uint32_t> results = pass_;
    std::erase_if(results, [&](uint32_t i) {
      return workspaces_.contains(model_.allocations.birth(i)) ||
             copies_.holds(i, parameter_sizes_);
    });
    return !graph_freed_backwards(model_, results).empty();
  }

  // Whether a module allocates there for no backward pass, in a program that has some.
  bool validates_at(uint32_t stack) const {
    return trains_ && stack < in_module_.size() && in_module_[stack] &&
           !lines_.trains(roles_.caller_of(stack));
  }

  // A model has blocks of several sizes; a cache or a buffer has one or two.
  void keep_models() {
    std::unordered_set<uint64_t> sizes;
    for (const uint32_t i : known_.set_up) sizes.insert(model_.allocations.asked_bytes(i));
    if (sizes.size() < 3) known_.set_up.clear();
  }

  // Made by a constructor of the program and kept: a parameter of a module of its own, or a state
  // of its own optimizer, which may be replaced by the first step, but not before its backward
  // pass.
  bool is_set_up(const Allocation& a) const {
    const bool made = a.stack < of_constructor_.size() && of_constructor_[a.stack] &&
                      roles_.of(a.stack) == StackRole::kUser;
    return made && (stays(a) || (a.birth < first_pass_ && meets(a, first_backward_)));
  }

  // copy.deepcopy() of a model before the first step, as of a reference model. Later ones may be
  // kept as checkpoints.
  bool is_copied_model(const Allocation& a) const {
    if (a.stack >= of_copied_parameter_.size() || !of_copied_parameter_[a.stack]) return false;
    return is_kept_long(a) && (steps_.count() == 0 || a.birth < steps_.boundaries[1]);
  }

  // Its own stack says so.
  bool names_workspace(const Allocation& a) const {
    return a.stack < of_workspace_.size() && of_workspace_[a.stack];
  }

  // Each thread that multiplies has one for each of its streams: the first of the size that stays.
  void note_workspace(size_t row) {
    const Allocation& a = model_.allocations[row];
    if (names_workspace(a)) workspaces_.insert(a.birth);
    if (!stays(a) || names_workspace(a)) return;
    const bool backward = roles_.of(a.stack) == StackRole::kBackward;
    if (!backward && roles_.of(a.stack) != StackRole::kForward) return;
    // The one of cublasLt follows that of cuBLAS; in the backward pass, a gradient may.
    const bool follows = a.stack == last_workspace_.stack && a.stream == last_workspace_.stream &&
                         a.birth - last_workspace_.birth <= kSoon;
    if (a.asked_bytes() == kOfCublasLt && follows && (!backward || outlives_gradients(row))) {
      workspaces_.insert(a.birth);
    }
    if (!is_workspace_size(a.asked_bytes())) return;
    const auto alike = results_like_workspaces_.find(a.stack);
    if (alike != results_like_workspaces_.end() && alike->second > 1) return;
    if (!with_workspace_.emplace(a.stream, a.pool, backward).second) return;
    workspaces_.insert(a.birth);
    last_workspace_ = a;
  }

  // Whether a block that stays is none of the gradients of its backward pass: most of these are
  // freed.
  bool outlives_gradients(size_t row) const {
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

  // Part of the graph of a gradient, which a later backward pass uses, or which stays with the
  // graph that it was computed from: then each step leaves such a block.
  bool is_second_order(const Allocation& a) {
    constexpr uint32_t kLeastSteps = 4;
    if (workspaces_.contains(a.birth) || is_of_fsdp(a)) return false;
    if (second_order_.hold(a)) return true;
    if (!keeps_graphs_ || !meets(a, next_other_)) return false;
    const auto left = left_by_backward_.find({a.stack, a.asked_bytes()});
    if (left == left_by_backward_.end()) return false;
    const uint32_t steps = left->second.steps;
    if (steps < kLeastSteps || 2 * steps < steps_.count()) return false;
    const uint32_t next = end_of_next_step(a);
    return next != kNever ? a.release > next : stays(a) || meets(a, next_failure_);
  }

  // A library's workspace is allocated under the line that needs it first, and stays: one block of
  // a stack that recurs in every step. A retained graph leaves one more block in each step. So are
  // buffers that a line makes in the first steps, keeps, and takes in turn from then on.
  bool is_workspace(const Allocation& a) {
    if (workspaces_.contains(a.birth)) return true;
    if (steps_.count() < 2 || !outlives_step(a)) return false;
    if (roles_.of(a.stack) == StackRole::kBackward) {
      return !parameter_sizes_.empty() && !parameter_sizes_.contains(a.asked_bytes());
    }
    const Ends& ends = ends_of(a.stack);
    return ends.survived == 1 || is_fixed_set(ends);
  }

  bool is_fixed_set(const Ends& ends) const {
    constexpr uint32_t kLeastSteps = 4;
    return ends.stayed == ends.all && steps_.count() >= kLeastSteps &&
           ends.last_birth < steps_.boundaries[steps_.count() / 2];
  }

  // What is computed for a list or a cache of the program, step after step: by a function, or most
  // results of a line of a module. Where modules keep graphs, it is part of these.
  bool is_listed(const Allocation& a) {
    if (steps_.count() == 0 || keeps_graphs_ || a.stack >= in_module_.size()) return false;
    const Ends& ends = ends_of(a.stack);
    const bool most = 2 * ends.survived > ends.seen;
    return ends.survived >= 2 && (most || !in_module_[a.stack]) && outlives_step(a);
  }

  // Whether results of modules outlive their steps again and again: of more lines than the one or
  // two whose results a list has.
  bool keeps_graphs() const {
    constexpr size_t kListed = 2;
    constexpr size_t kOfGraph = 4;  // one line in so many
    size_t lines = 0;
    size_t kept = 0;
    for (size_t stack = 0; stack < std::min(in_module_.size(), ends_.size() - 1); ++stack) {
      if (!in_module_[stack] || ends_[stack].seen < 2) continue;
      ++lines;
      kept += ends_[stack].survived >= 2 ? 1U : 0U;
    }
    return kept > kListed || kOfGraph * kept > lines;
  }

  // A block that is replaced by a larger one each time holds what earlier steps left. Batches are
  // also shorter than the one before.
  static bool is_collection(const Ends& ends) {
    constexpr uint32_t kLeastBlocks = 8;
    return ends.all >= kLeastBlocks && ends.larger >= ends.all - ends.all / 8;
  }

  bool is_repeated_at_failure(uint32_t stack) const {
    constexpr uint32_t kLayers = 3;
    const auto alive = failed_with_.find(stack);
    return alive != failed_with_.end() && alive->second >= kLayers;
  }

  // In a program that has no backward pass, and keeps no graphs either: a cache, or results. What
  // was kept when memory ran out may have waited for the first backward pass, unless the program
  // has done several steps without one.
  bool is_result_kept(const Allocation& a) {
    if (out_.has_backward) return false;
    if (meets(a, next_failure_)) return steps_.count() >= 3 && outlives_step(a);
    return cache_.outlives_passes(a);
  }

  bool is_kv_cache(const Allocation& a) const {
    return !out_.has_backward && cache_.holds(a, pass_end_, is_kept_long(a));
  }

  // The end of the step after its own: a loop variable lives into the next step. Most questions are
  // about the same step as the one before.
  uint32_t end_of_next_step(const Allocation& a) {
    if (a.birth < step_begin_ || a.birth >= step_end_) {
      const std::vector<uint32_t>& boundaries = steps_.boundaries;
      const auto end = std::upper_bound(boundaries.begin(), boundaries.end(), a.birth);
      step_begin_ = end == boundaries.begin() ? 0 : *(end - 1);
      step_end_ = end == boundaries.end() ? kNever : *end;
      next_end_ = step_end_ == kNever ? kNever : steps_.end_of_step(step_end_);
    }
    return next_end_;
  }
  Ends& ends_of(uint32_t stack) { return ends_[std::min<size_t>(stack, ends_.size() - 1)]; }
  void note_end(const Allocation& a) {
    Ends& ends = ends_of(a.stack);
    const uint32_t next = end_of_next_step(a);
    ++ends.all;
    ends.larger += a.asked_bytes() > ends.last_bytes ? 1U : 0U;
    ends.last_bytes = a.asked_bytes();
    ends.stayed += stays(a) ? 1U : 0U;
    ends.last_birth = a.birth;
    ends.seen += next != kNever ? 1U : 0U;
    ends.survived += outlives_step(a) ? 1U : 0U;
    if (next == kNever || a.release <= next || roles_.of(a.stack) != StackRole::kBackward) return;
    LeftBlocks& left = left_by_backward_[{a.stack, a.asked_bytes()}];
    left.steps += left.last_end != next ? 1U : 0U;
    left.last_end = next;
  }
  // Still alive at the end of the following step. Where the history ends before that, as most
  // earlier blocks of the same line; to the end, where there is no second step.
  bool outlives_step(const Allocation& a) {
    if (steps_.count() < 2) return a.release == kNever;
    const uint32_t next = end_of_next_step(a);
    if (next != kNever) return a.release > next;
    const Ends& ends = ends_of(a.stack);
    return ends.survived >= 2 && ends.survived * 2 > ends.seen;
  }
  // Allocations during its lifetime: they are in the order of birth, and each has about three
  // events.
  bool is_kept_long(const Allocation& a) const {
    return a.release == kNever || a.release - a.birth > 3 * kKeptBirths;
  }

  Guess guess_of(const Allocation& a) {
    if (names_workspace(a)) return {Category::kWorkspace, 9};
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
      case StackRole::kLoading:
        return loading(a);
      case StackRole::kUser:
      case StackRole::kSaving:
        return user(a);
      case StackRole::kNone:
        break;
    }
    return {};
  }

  Guess forward(const Allocation& a) {
    if (is_workspace(a)) return {Category::kWorkspace, 6};
    // Passes may follow each other without an allocation in between: their ends are not known then.
    if (served_graphs_.contains(a.stack) && (meets(a, pass_end_) || is_kept_long(a))) {
      kept_without_backward_ = true;
      return {Category::kActivation, 7};
    }
    if (is_kv_cache(a)) return {Category::kKvCache, 6};
    const bool in_graph = out_.has_backward && (unused_graphs_.contains(pass_end_) ||
                                                small_graphs_.contains(roles_.caller_of(a.stack)));
    // Some variable may keep a validation's graph until the next one, or an error ends it.
    const bool validates = in_graph && validates_at(a.stack);
    if (meets(a, next_backward_) && !validates) {
      return is_listed(a) ? Guess{} : Guess{Category::kActivation, 9};
    }
    // The last layers before an error are like those before them, although it frees them soon.
    const bool cut_off = meets(a, next_failure_) && is_repeated_at_failure(a.stack);
    if (!is_kept_long(a) && !cut_off && !(in_graph && meets(a, pass_end_))) {
      return {Category::kTemporary, 7};
    }
    if (is_result_kept(a)) return {};
    // A forward pass that ended with an error could not run its backward pass.
    const bool ended = a.release != kNever && !meets(a, next_failure_);
    kept_without_backward_ = out_.has_backward && (ended || validates) && meets(a, pass_end_);
    // Nothing waits for a backward pass in a program that has none: it is a result of a layer that
    // a later one needs, or of the model.
    if (ended && !out_.has_backward) return {Category::kTemporary, 5};
    const bool in_result = !out_.has_backward && !meets(a, next_failure_);
    if (in_result && without_graph_.contains(pass_end_)) return {};
    return {Category::kActivation, 5};
  }

  Guess backward(const Allocation& a) {
    if (is_second_order(a)) return {Category::kActivation, 7};
    if (is_workspace(a)) return {Category::kWorkspace, 6};
    // Alive when the optimizer begins, although the first event after its mark may free it.
    const bool optimized = next_optimizer_ <= a.release;
    // One that creates its states in the first step may allocate nothing in later ones.
    const bool comes = next_optimizer_ <= steps_.end_of_step(a.birth);
    if (next_optimizer_ != kNever && (optimized || comes)) {
      return optimized ? Guess{Category::kGradient, 9} : Guess{Category::kTemporary, 8};
    }
    if (meets(a, next_failure_) || (stays(a) && next_other_ == kNever)) {
      // Nothing shows what would have become of it.
      const bool fits = parameter_sizes_.empty() || parameter_sizes_.contains(a.asked_bytes());
      return {fits ? Category::kGradient : Category::kTemporary, 5};
    }
    if (meets(a, next_other_)) return {Category::kGradient, 6};
    // An optimizer that allocates nothing is not seen: gradients may be freed before anything else,
    // but after what the last operation has used.
    const bool kept = meets(a, backward_end_) && a.release - backward_end_ > kLastFrees;
    return kept ? Guess{Category::kGradient, 5} : Guess{Category::kTemporary, 6};
  }

  // What is read from a file is the model, unless the model has such a block already, perhaps in
  // another precision, or a batch that the next one replaces.
  Guess loading(const Allocation& a) {
    const uint64_t bytes = a.asked_bytes();
    if (!stays(a) || !outlives_step(a) || parameter_sizes_.contains(bytes) ||
        parameter_sizes_.contains(bytes / 2) || parameter_sizes_.contains(bytes * 2)) {
      return user(a);
    }
    return {Category::kParameter, 6};
  }

  // The program's own lines: allocations that feed a forward pass are input, those after it are
  // loss. What a program that does not train computes between passes is no input of the next one.
  Guess user(const Allocation& a) {
    if (is_kv_cache(a)) return {Category::kKvCache, 6};
    if (queued_.contains(a.stack)) return {Category::kInput, 6};
    if (is_copied_model(a)) return {Category::kParameter, 7};
    if ((!known_.set_up.empty() && is_set_up(a)) || cache_.copies_model(a)) return {};
    if (!out_.has_backward && cache_.may_be_data(a)) return {};
    const bool feeds = meets(a, next_pass_) && next_pass_ < next_backward_ &&
                       (out_.has_backward || before_passes_.contains(a.stack));
    const bool listed =
        !meets(a, next_backward_) && (rounds_[a.stack].are_kept() || cache_.collects(a));
    if (is_collection(ends_of(a.stack))) return {};
    if (feeds && !listed && !outlives_step(a)) return {Category::kInput, 7};
    if (meets(a, next_backward_) && !outlives_step(a)) return {Category::kActivation, 7};
    // How long it would have lived is not known if an error ended it.
    if (!is_kept_long(a) && !meets(a, next_failure_)) return {Category::kTemporary, 7};
    return {};
  }

  const ProcessModel& process_;
  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Steps& steps_;
  const TrainingLines lines_;
  const bool trains_ = lines_.any();
  const std::vector<bool> in_module_ = module_stacks(process_.names);
  const bool has_modules_ =
      std::find(in_module_.begin(), in_module_.end(), true) != in_module_.end();
  ServingCache cache_;
  const WeightCopies copies_;
  const SecondOrderGraphs second_order_;
  const std::vector<bool> of_fsdp_;         // by stack
  const std::vector<bool> of_constructor_;  // by stack
  const std::vector<bool> of_copied_parameter_;
  const std::vector<bool> of_workspace_;  // by stack
  std::vector<uint32_t> marks_;
  KnownSizes known_;
  Categories out_;
  std::set<std::tuple<uint64_t, uint32_t, bool>> with_workspace_;  // stream, pool, in backward
  std::unordered_set<uint32_t> workspaces_;                        // events of their births
  Allocation last_workspace_;                                      // of cuBLAS
  std::unordered_map<uint32_t, LineRounds> rounds_;                // of the program's own lines
  std::unordered_set<uint32_t> before_passes_;                     // stacks
  // Of backward passes, by stack and size.
  std::map<std::pair<uint32_t, uint64_t>, LeftBlocks> left_by_backward_;
  std::vector<Ends> ends_;       // by stack; the last one: of stacks that are not known
  uint64_t forward_births_ = 0;  // allocations of forward passes, in the survey
  uint32_t step_begin_ = 0;      // of the step that end_of_next_step() looked at
  uint32_t step_end_ = 0;
  uint32_t next_end_ = kNever;
  std::unordered_set<uint64_t> parameter_sizes_;
  std::vector<uint32_t> pass_;                  // rows of the forward pass that is surveyed
  std::unordered_set<uint32_t> unused_graphs_;  // forward passes, by their ends
  std::unordered_set<uint32_t> without_graph_;  // those of which little is alive at the end
  std::unordered_set<uint32_t> small_graphs_;   // lines that call models of few operations
  std::unordered_set<uint32_t> queued_;         // stacks of batches that are loaded far ahead
  std::unordered_set<uint32_t> served_graphs_;  // stacks, in a program without a backward pass
  std::vector<uint32_t> older_graph_;           // rows, of the pass before the history
  uint32_t first_pass_ = kNever;
  uint32_t first_backward_ = kNever;
  uint32_t next_forward_ = kNever;
  uint32_t next_pass_ = kNever;  // of a model
  uint32_t next_backward_ = kNever;
  uint32_t next_optimizer_ = kNever;
  uint32_t next_other_ = kNever;
  uint32_t next_failure_ = kNever;
  size_t failures_ = model_.failures.size();  // those not yet visited
  // By stack: blocks alive at the last error, and those of them of a workspace's size.
  std::unordered_map<uint32_t, uint32_t> failed_with_;
  std::unordered_map<uint32_t, uint32_t> results_like_workspaces_;
  bool kept_without_backward_ = false;
  bool keeps_graphs_ = false;
  StackRole role_before_ = StackRole::kNone;  // of the allocation visited before
  uint32_t pass_end_ = kNever;                // the last allocation of the forward pass
  uint32_t backward_end_ = kNever;            // of the backward pass
};

}  // namespace

Categories categorize(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, const Steps& steps, bool use_recorded) {
  return Categorizer(process, model, roles, steps).run(use_recorded);
}

}  // namespace tidemark
