#include "analysis/insight/categories/categories.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "analysis/insight/categories/kept_graphs.h"
#include "analysis/insight/categories/moved_gradients.h"
#include "analysis/insight/categories/older_blocks.h"
#include "analysis/insight/categories/pass_graphs.h"
#include "analysis/insight/categories/queued_inputs.h"
#include "analysis/insight/categories/second_order.h"
#include "analysis/insight/categories/served_graphs.h"
#include "analysis/insight/categories/serving_cache.h"
#include "analysis/insight/categories/weight_copies.h"
#include "analysis/insight/lives/block_ends.h"
#include "analysis/insight/lives/block_life.h"
#include "analysis/insight/lives/line_rounds.h"
#include "analysis/insight/lives/next_phases.h"
#include "analysis/insight/lives/stacks_through.h"
#include "analysis/insight/lives/workspaces.h"
#include "analysis/load/number_width.h"
#include "analysis/names/module_stacks.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

// A layer's working tensors are freed after a few more allocations; a block that outlives this many
// was kept for a reason.
constexpr uint32_t kKeptBirths = 12;

bool is_fsdp(std::string_view /*function*/, std::string_view file) {
  return file.find("/fsdp/") != file.npos;
}

// A class of the program itself, also by a function that its constructor defines: recordings name
// functions in full, snapshots do not.
bool is_constructor(std::string_view function, std::string_view file) {
  return file.find("torch/") == file.npos &&
         (function == "__init__" || function.ends_with(".__init__") ||
          function.find(".__init__.<locals>.") != function.npos);
}

bool copies_parameter(std::string_view function, std::string_view file) {
  return file.ends_with("torch/nn/parameter.py") && function.ends_with("__deepcopy__");
}

// An operation whose result is no data, as native frames name it.
bool computes(std::string_view function) {
  constexpr std::string_view kOperation = "at::_ops::";
  const size_t at = function.find(kOperation);
  if (at == function.npos) return false;
  const std::string_view name = function.substr(at + kOperation.size());
  for (const std::string_view one :
       {"matmul::", "bmm::", "mm::", "addmm::", "baddbmm::", "linear::", "einsum::", "softmax::",
        "_softmax::", "exp::", "scaled_dot_product_attention::"}) {
    if (name.starts_with(one)) return true;
  }
  return false;
}

// Surveys all allocations, then decides about each of them, from the last to the first.
class Categorizer {
 public:
  Categorizer(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
              const Steps& steps)
      : process_(process),
        model_(model),
        roles_(roles),
        steps_(steps),
        phases_(process, model, roles, in_module_),
        ends_(process, roles, steps),
        workspaces_(process, model, roles),
        cache_(process, model, roles, steps),
        copies_(process.names, model),
        second_order_(process.names, model, roles),
        moved_gradients_(moved_gradients(process.names, model, roles)),
        of_fsdp_(stacks_through(process.names, is_fsdp)),
        of_constructor_(stacks_through(process.names, is_constructor)),
        of_copied_parameter_(stacks_through(process.names, copies_parameter)),
        of_loss_(stacks_with(process.names,
                             [&](const Frame& f) {
                               return process.names.string(f.file).ends_with(
                                   "torch/nn/modules/loss.py");
                             })),
        computes_(stacks_with(process.names,
                              [&](const Frame& f) {
                                return f.kind == FrameKind::kNative &&
                                       computes(process.names.string(f.function));
                              })),
        passes_(model, roles, in_module_, copies_, workspaces_, parameter_sizes_) {}

  Categories run(bool use_recorded) {
    const size_t count = model_.allocations.size();
    out_.of.resize(count);
    out_.confidence.resize(count);
    survey();
    out_.has_optimizer |= phases_.has_optimizer_marks();
    model_.release_pages();
    for (size_t i = count; i-- > 0;) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      phases_.advance_to(a);
      kept_without_backward_ = false;
      is_cleared_gradient_ = false;
      Guess guess = guess_of_row(i, a);
      if (use_recorded && a.category != Category::kUnknown) guess = {a.category, 10};
      out_.of[i] = guess.category;
      out_.confidence[i] = guess.confidence;
      if (kept_without_backward_ && !copies_.holds(i, parameter_sizes_)) {
        out_.kept_without_backward.push_back(static_cast<uint32_t>(i));
      }
      if (is_cleared_gradient_ && guess.confidence != 10) {
        cleared_gradients_.push_back(static_cast<uint32_t>(i));
      }
      if (guess.category == Category::kKvCache) known_.cache_sizes.insert(a.asked_bytes());
      if (guess.category == Category::kGradient && !is_older(a) &&
          (model_.seeded_blocks != 0 || !known_.set_up.empty())) {
        note_gradient(a, static_cast<uint32_t>(i));
      }
      phases_.pass(a);
    }
    take_cleared_gradients();
    follow_earlier_caches();
    known_.workspace_bytes = workspaces_.bytes();
    known_.may_have_states = out_.has_optimizer || has_layers_;
    known_.only_optimizes = out_.has_optimizer && !out_.has_backward && forward_births_ == 0;
    sort_older_blocks(process_, model_, roles_, steps_, known_, use_recorded, out_);
    out_.older_may_be_states =
        !out_.has_backward && !out_.has_optimizer && !out_.kept_without_backward.empty();
    take_older_graph();
    std::reverse(out_.kept_without_backward.begin(), out_.kept_without_backward.end());
    std::reverse(out_.weight_copies.begin(), out_.weight_copies.end());
    if (out_.has_backward) {
      keep_only_graphs(model_, passes_.has_small() ? kSmallGraph : kGraph, out_);
    }
    return std::move(out_);
  }

 private:
  void note_gradient(const Allocation& a, uint32_t i) {
    KnownSizes::Gradients& of_size = known_.gradients[a.asked_bytes()];
    of_size.all.push_back(i);
    if (meets(a, phases_.next_other)) of_size.held.push_back(i);
    if (is_of_fsdp(a)) known_.flat_gradients.push_back(i);
  }

  bool is_of_layer(uint32_t stack) const {
    return stack < in_module_.size() && in_module_[stack] && !of_loss_[stack];
  }

  bool is_of_fsdp(const Allocation& a) const {
    return a.stack < of_fsdp_.size() && of_fsdp_[a.stack];
  }

  void survey() {
    survey_failure();
    survey_first_pass();
    survey_inputs();
    std::unordered_set<uint64_t> made_sizes;  // of parameters that the history allocates
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      const StackRole role = roles_.of(a.stack);
      out_.has_backward |= role == StackRole::kBackward && !a.seeded;
      has_layers_ = has_layers_ || role == StackRole::kModuleSetUp || is_of_layer(a.stack);
      out_.has_optimizer |= role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
      if (!a.seeded) ends_.note(a);
      const bool made = role == StackRole::kModuleSetUp || a.category == Category::kParameter;
      if (made) made_sizes.insert(a.asked_bytes());
      if (made || (is_older(a) && stays(a))) {
        parameter_sizes_.insert(a.asked_bytes());
        weight_bytes_[a.asked_bytes()] += a.asked_bytes();
      }
      if (is_set_up(a)) known_.set_up.push_back(static_cast<uint32_t>(i));
      workspaces_.note(i);
      if (a.seeded) continue;
      const bool kept = stays(a) && a.block_bytes > kSmallBytes && role == StackRole::kUser;
      if (kept) known_.kept_sizes.insert(a.asked_bytes());
      if (is_of_fsdp(a)) known_.gathered_sizes.insert(a.asked_bytes());
      if (role == StackRole::kForward) {
        ++forward_births_;
        if (a.block_bytes > kSmallBytes) known_.result_sizes.insert(a.asked_bytes());
      }
      if (role == StackRole::kUser) rounds_[a.stack].add(a, forward_births_);
      if (passes_.add(static_cast<uint32_t>(i))) cache_.add_pass(a.birth);
    }
    passes_.end();
    survey_copies();
    keeps_graphs_ = ends_.keep_graphs(in_module_);
    if (!out_.has_backward) {
      cache_.survey(made_sizes, workspaces_.births(), known_.kept_sizes);
      ServedGraphs graphs = served_graphs(model_, roles_, in_module_, no_results());
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

  // Without native frames, copies of weights show if most weights have one: other blocks are of
  // half a weight's size by chance.
  void survey_copies() {
    out_.copies_are_named = copies_.are_named();
    copies_weights_ = out_.copies_are_named;
    if (copies_weights_ || width_of_products(process_.compute) == NumberWidth::k32) return;
    copies_.find_crowded(weight_bytes_, parameter_sizes_);
    std::unordered_set<uint64_t> copied;
    uint64_t copies_bytes = 0;  // in all passes
    const AllocationColumns& all = model_.allocations;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all.seeded(i) || !may_be_copy(i)) continue;
      copied.insert(2 * all.asked_bytes(i));
      copies_bytes += all.asked_bytes(i);
    }
    uint64_t bytes = 0;
    uint64_t copied_bytes = 0;
    for (const auto& [size, of_size] : weight_bytes_) {
      bytes += of_size;
      if (copied.contains(size)) copied_bytes += of_size;
    }
    constexpr uint64_t kMostSets = 4;  // weights, gradients, and the two states of Adam
    copies_weights_ = copied_bytes > bytes / 5 * 3 && 2 * copies_bytes >= copied_bytes / kMostSets;
  }

  bool may_be_copy(size_t row) const {
    return roles_.of(model_.allocations.stack(row)) == StackRole::kForward &&
           copies_.holds(row, parameter_sizes_) && !workspaces_.contain(model_.allocations[row]);
  }

  // By the events of their births: workspaces, and copies of weights.
  std::unordered_set<uint32_t> no_results() const {
    std::unordered_set<uint32_t> births = workspaces_.births();
    const AllocationColumns& all = model_.allocations;
    for (size_t i = 0; i < all.size() && copies_weights_; ++i) {
      if (!all.seeded(i) && is_weight_copy(i)) births.insert(all.birth(i));
    }
    return births;
  }

  bool is_weight_copy(size_t row) const {
    if (!copies_weights_) return false;
    return out_.copies_are_named ? copies_.holds(row, parameter_sizes_) : may_be_copy(row);
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

  void survey_failure() {
    if (model_.failures.empty()) return;
    for (const FailedAllocation& failure : model_.failures) {
      out_.has_backward |= roles_.of(failure.stack) == StackRole::kBackward;
    }
    const uint32_t failed = model_.failures.back().event;
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (a.birth > failed) break;
      if (!meets(a, failed)) continue;
      LeftAtFailure& left = failed_with_[a.stack];
      if (left.blocks++ != 0 && left.last + 1 != i) ++left.apart;
      left.last = i;
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
      if (role == StackRole::kForward) passed |= phases_.is_of_model(stack);
      if (role == StackRole::kUser && !passed) before_passes_.insert(stack);
    }
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

  // Part of the graph of a gradient, which a later backward pass uses, or which stays with the
  // graph that it was computed from: then each step leaves such a block.
  bool is_second_order(const Allocation& a) {
    if (workspaces_.contain(a) || is_of_fsdp(a)) return false;
    if (second_order_.hold(a)) return true;
    return keeps_graphs_ && meets(a, phases_.next_other) &&
           ends_.is_left_in_each_step(a, phases_.next_failure);
  }

  bool is_workspace(const Allocation& a) {
    constexpr uint64_t kMost = uint64_t{512} << 20;  // no library takes more for itself
    if (workspaces_.contain(a)) return true;
    if (a.block_bytes > kMost || steps_.count() < 2 || !ends_.outlives_step(a)) return false;
    if (roles_.of(a.stack) == StackRole::kBackward) {
      return !parameter_sizes_.empty() && !parameter_sizes_.contains(a.asked_bytes());
    }
    return ends_.is_single_or_fixed_set(a.stack);
  }

  bool is_repeated_at_failure(uint32_t stack) const {
    constexpr uint32_t kLayers = 3;
    const auto alive = failed_with_.find(stack);
    return alive != failed_with_.end() && alive->second.blocks >= kLayers;
  }

  // Of an optimizer's step that ran out of memory. It makes the states of one parameter after those
  // of another; temporaries of many at once follow each other.
  bool is_state_at_failure(const Allocation& a) const {
    if (!meets(a, phases_.next_failure) || !is_repeated_at_failure(a.stack)) return false;
    const LeftAtFailure& left = failed_with_.at(a.stack);
    return 2 * left.apart > left.blocks;
  }

  // In a program that has no backward pass, and keeps no graphs either: a cache, or results. What
  // was kept when memory ran out may have waited for the first backward pass, unless the program
  // has done several steps without one.
  bool is_result_kept(const Allocation& a) {
    if (out_.has_backward) return false;
    if (meets(a, phases_.next_failure)) return steps_.count() >= 3 && ends_.outlives_step(a);
    return cache_.outlives_passes(a);
  }

  bool is_kv_cache(const Allocation& a) const {
    return !out_.has_backward && cache_.holds(a, phases_.pass_end, is_kept_long(a));
  }

  // Of a block that lives as keys and values do, in a model that may have none: a constant input of
  // several passes, or what a layer saves.
  Guess kv_cache(const Allocation& a, Category otherwise) const {
    const bool is_cache =
        cache_.has_attention() || cache_.is_named(a, phases_.pass_end, is_kept_long(a));
    return is_cache ? Guess{Category::kKvCache, 6} : Guess{otherwise, 5};
  }

  // Allocations during its lifetime: they are in the order of birth, and each has about three
  // events.
  bool is_kept_long(const Allocation& a) const {
    return a.release == kNever || a.release - a.birth > 3 * kKeptBirths;
  }

  Guess guess_of_row(size_t row, const Allocation& a) {
    if (is_older(a)) return {};
    if (!is_weight_copy(row)) return guess_of(a);
    out_.weight_copies.push_back(static_cast<uint32_t>(row));
    return out_.copies_are_named ? Guess{Category::kTemporary, 9} : Guess{Category::kTemporary, 5};
  }

  Guess guess_of(const Allocation& a) {
    if (workspaces_.names(a)) return {Category::kWorkspace, 9};
    switch (roles_.of(a.stack)) {
      case StackRole::kForward:
        return forward(a);
      case StackRole::kBackward:
        return backward(a);
      case StackRole::kOptimizerInit:
        return {Category::kOptimizerState, 9};
      case StackRole::kOptimizer:
        return meets(a, phases_.next_forward) || (a.release == kNever && model_.failures.empty())
                   ? Guess{Category::kOptimizerState, 8}
               : is_state_at_failure(a) ? Guess{Category::kOptimizerState, 6}
                                        : Guess{Category::kTemporary, 8};
      case StackRole::kModuleSetUp:
        return set_up(a);
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
    if (served_graphs_.contains(a.stack) && (meets(a, phases_.pass_end) || is_kept_long(a))) {
      kept_without_backward_ = true;
      return {Category::kActivation, 7};
    }
    if (is_kv_cache(a)) return kv_cache(a, Category::kActivation);
    const bool in_graph =
        out_.has_backward && (passes_.is_unused(phases_.pass_end) || passes_.is_small(a.stack));
    // Some variable may keep a validation's graph until the next one, or an error ends it.
    const bool validates = in_graph && passes_.validates_at(a.stack);
    if (meets(a, phases_.next_backward) && !validates) {
      return !keeps_graphs_ && ends_.is_listed(a, in_module_) ? Guess{}
                                                              : Guess{Category::kActivation, 9};
    }
    // A pass that memory ran out in is like those before it.
    if (!out_.has_backward && passes_.let_go() && meets(a, phases_.next_failure) &&
        !is_result_kept(a)) {
      return {Category::kTemporary, 6};
    }
    // The last layers before an error are like those before them, although it frees them soon.
    const bool cut_off = meets(a, phases_.next_failure) && is_repeated_at_failure(a.stack);
    if (!is_kept_long(a) && !cut_off && !(in_graph && meets(a, phases_.pass_end))) {
      return {Category::kTemporary, 7};
    }
    if (is_result_kept(a)) return {};
    // A forward pass that ended with an error could not run its backward pass.
    const bool ended = a.release != kNever && !meets(a, phases_.next_failure);
    kept_without_backward_ =
        out_.has_backward && (ended || validates) && meets(a, phases_.pass_end);
    // Nothing waits for a backward pass in a program that has none: it is a result of a layer that
    // a later one needs, or of the model.
    if (ended && !out_.has_backward) return {Category::kTemporary, 5};
    const bool in_result = !out_.has_backward && !meets(a, phases_.next_failure);
    if (in_result && passes_.has_no_graph(phases_.pass_end)) return {};
    return {Category::kActivation, 5};
  }

  Guess backward(const Allocation& a) {
    if (is_second_order(a)) return {Category::kActivation, 7};
    if (is_workspace(a)) return {Category::kWorkspace, 6};
    // Alive when the optimizer begins, although the first event after its mark may free it.
    const bool optimized = phases_.next_optimizer <= a.release;
    // One that creates its states in the first step may allocate nothing in later ones.
    const bool comes = phases_.next_optimizer <= steps_.end_of_step(a.birth);
    if (phases_.next_optimizer != kNever && (optimized || comes)) {
      if (optimized) return {Category::kGradient, 9};
      is_cleared_gradient_ = may_be_cleared_gradient(a);
      return {Category::kTemporary, 8};
    }
    if (meets(a, phases_.next_failure) || (stays(a) && phases_.next_other == kNever)) {
      // Nothing shows what would have become of it.
      const bool fits = parameter_sizes_.empty() || parameter_sizes_.contains(a.asked_bytes());
      return {fits ? Category::kGradient : Category::kTemporary, 5};
    }
    if (meets(a, phases_.next_other)) return {Category::kGradient, 6};
    // An optimizer that allocates nothing is not seen: gradients may be freed before anything else,
    // but after what the last operation has used.
    return outlives_pass(a) ? Guess{Category::kGradient, 5} : Guess{Category::kTemporary, 6};
  }

  // Of a block of a backward pass.
  bool outlives_pass(const Allocation& a) const {
    return meets(a, phases_.backward_end) && a.release - phases_.backward_end > kLastFrees;
  }

  // The program may clear its gradients before the optimizer begins.
  bool may_be_cleared_gradient(const Allocation& a) const {
    return outlives_pass(a) && !is_of_fsdp(a) && parameter_sizes_.contains(a.asked_bytes());
  }

  // If most parameters have such a block, and none has a gradient that an optimizer uses: those
  // that are added to it are freed before as well. Rows are visited from the last to the first.
  void take_cleared_gradients() {
    constexpr Confidence kUsed = 9;
    const AllocationColumns& all = model_.allocations;
    std::unordered_set<uint64_t> sizes;
    for (const uint32_t i : cleared_gradients_) sizes.insert(all.asked_bytes(i));
    for (size_t i = 0; i < out_.of.size() && !sizes.empty(); ++i) {
      const bool used = out_.of[i] == Category::kGradient && out_.confidence[i] >= kUsed;
      if (used && parameter_sizes_.contains(all.asked_bytes(i))) return;
    }
    uint64_t bytes = 0;
    uint64_t with_gradient = 0;
    for (const uint64_t size : parameter_sizes_) {
      bytes += size;
      if (sizes.contains(size)) with_gradient += size;
    }
    if (with_gradient <= bytes / 2) return;
    for (const uint32_t i : cleared_gradients_) {
      out_.of[i] = Category::kGradient;
      out_.confidence[i] = 6;
      known_.gradients[all.asked_bytes(i)].all.push_back(i);
    }
  }

  Guess set_up(const Allocation& a) const {
    if (!is_kept_long(a) && !meets(a, phases_.next_forward)) return {Category::kTemporary, 6};
    const auto gradient = moved_gradients_.find(a.stack);
    if (gradient != moved_gradients_.end()) return {Category::kGradient, gradient->second};
    return {Category::kParameter, 8};
  }

  // What is read from a file is the model, unless the model has such a block already, perhaps in
  // another precision, or a batch that the next one replaces.
  Guess loading(const Allocation& a) {
    const uint64_t bytes = a.asked_bytes();
    if (!stays(a) || !ends_.outlives_step(a) || parameter_sizes_.contains(bytes) ||
        parameter_sizes_.contains(bytes / 2) || parameter_sizes_.contains(bytes * 2)) {
      return user(a);
    }
    return {Category::kParameter, 6};
  }

  // The program's own lines: allocations that feed a forward pass are input, those after it are
  // loss. What a program that does not train computes between passes is no input of the next one.
  Guess user(const Allocation& a) {
    if (is_kv_cache(a)) return kv_cache(a, has_layers_ ? Category::kInput : Category::kUnknown);
    if (queued_.contains(a.stack)) return {Category::kInput, 6};
    if (is_copied_model(a)) return {Category::kParameter, 7};
    if (!out_.has_backward && cache_.holds_weights(a)) return {Category::kParameter, 5};
    if ((!known_.set_up.empty() && is_set_up(a)) || cache_.copies_model(a)) return {};
    if (!out_.has_backward && cache_.may_be_data(a)) return {};
    const bool feeds = meets(a, phases_.next_pass) && phases_.next_pass < phases_.next_backward &&
                       (out_.has_backward || before_passes_.contains(a.stack));
    const bool listed =
        !meets(a, phases_.next_backward) && (rounds_[a.stack].are_kept() || cache_.collects(a));
    // Batches that are sorted by their lengths also grow, but are made before a pass.
    if (ends_.is_collection(a.stack) && !(feeds && before_passes_.contains(a.stack))) return {};
    if (is_computed(a)) return {Category::kActivation, 7};
    if (feeds && !listed && !ends_.outlives_step(a)) return {Category::kInput, 7};
    if (meets(a, phases_.next_backward) && !ends_.outlives_step(a))
      return {Category::kActivation, 7};
    // How long it would have lived is not known if an error ended it.
    if (!is_kept_long(a) && !meets(a, phases_.next_failure)) return {Category::kTemporary, 7};
    return {};
  }

  // In a program of functions, without modules but a loss: a result of an operation, or what the
  // backward pass frees. A loop variable holds an input until the next one replaces it.
  bool is_computed(const Allocation& a) {
    if (has_layers_ || !meets(a, phases_.next_backward) || ends_.outlives_step(a)) {
      return false;
    }
    const bool used = a.release <= phases_.backward_end + kLastFrees;
    return used || (a.stack < computes_.size() && computes_[a.stack]);
  }

  const ProcessModel& process_;
  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Steps& steps_;
  const std::vector<bool> in_module_ = module_stacks(process_.names);
  NextPhases phases_;
  BlockEnds ends_;
  Workspaces workspaces_;
  ServingCache cache_;
  WeightCopies copies_;
  const SecondOrderGraphs second_order_;
  const std::unordered_map<uint32_t, Confidence> moved_gradients_;  // by stack
  const std::vector<bool> of_fsdp_;                                 // by stack
  const std::vector<bool> of_constructor_;                          // by stack
  const std::vector<bool> of_copied_parameter_;
  const std::vector<bool> of_loss_;
  const std::vector<bool> computes_;  // by stack: an operation of attention or a product
  std::unordered_set<uint64_t> parameter_sizes_;
  std::unordered_map<uint64_t, uint64_t> weight_bytes_;  // by size, with states of the same sizes
  bool copies_weights_ = false;                          // autocast does
  PassGraphs passes_;
  KnownSizes known_;
  Categories out_;
  std::unordered_map<uint32_t, LineRounds> rounds_;  // of the program's own lines
  std::unordered_set<uint32_t> before_passes_;       // stacks
  uint64_t forward_births_ = 0;                      // allocations of forward passes, in the survey
  std::unordered_set<uint32_t> queued_;              // stacks of batches that are loaded far ahead
  std::unordered_set<uint32_t> served_graphs_;       // stacks, in a program without a backward pass
  std::vector<uint32_t> older_graph_;                // rows, of the pass before the history
  uint32_t first_pass_ = kNever;
  uint32_t first_backward_ = kNever;
  // Blocks of a stack that are alive at the last error.
  struct LeftAtFailure {
    uint32_t blocks = 0;
    uint32_t apart = 0;  // those that do not follow the one before at once
    uint32_t last = 0;   // row
  };
  std::unordered_map<uint32_t, LeftAtFailure> failed_with_;  // by stack
  std::vector<uint32_t> cleared_gradients_;                  // rows of what may be some
  bool kept_without_backward_ = false;
  bool is_cleared_gradient_ = false;
  bool has_layers_ = false;  // modules, but for losses
  bool keeps_graphs_ = false;
};

}  // namespace

Categories categorize(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, const Steps& steps, bool use_recorded) {
  return Categorizer(process, model, roles, steps).run(use_recorded);
}

}  // namespace tidemark
