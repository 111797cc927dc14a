#include "analysis/findings/causes/accumulations.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "analysis/findings/scalar_size.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

constexpr size_t kLeastKept = 3;  // blocks of a pass that are kept for the backward pass

constexpr uint32_t kAnyLine = kNever;  // instead of a loss's stack

// A pass over an image of a quarter of the largest one's edge keeps this part.
constexpr uint64_t kSmallest = 16;

// The state of a recurrence is at least this part of what a step keeps.
constexpr uint64_t kOfState = 100;
constexpr uint64_t kHardlyAny = 10;

// Of functions, this part of a usual block: many rounds of a recurrence may come before a loss.
constexpr uint64_t kOfBlock = 4;

bool names_loss(const Dictionary& names, const Frame& frame) {
  const std::string_view function = names.string(frame.function);
  return function.find("loss") != function.npos ||
         function.find("cross_entropy") != function.npos ||
         function.find("kl_div") != function.npos ||
         names.string(frame.file).ends_with("nn/modules/loss.py");
}

class Search {
 public:
  Search(const DeviceEvidence& d, const BackwardPass& backward)
      : d_(d), all_(d.model->allocations), backward_(backward) {
    const BirthRange rows = births_within(*d_.model, backward_.forward_first, backward_.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      if (all_.seeded(i) || !is_of_pass(d_.roles->of(all_.stack(i)))) continue;
      births_.push_back(i);
    }
    of_functions_ = is_kept_by_functions();
  }

  Accumulation run() {
    Accumulation best;
    for (const uint32_t stack : losses_at_the_end()) {
      Accumulation a{split_at(stack), stack, of_functions_};
      if (better(a, best) && are_passes(a.passes) && go_backward_in_order(a.passes)) {
        best = std::move(a);
      }
    }
    // Functions compute many scalars that are no losses.
    if (best.passes.empty() && !of_functions_) best = with_losses_of_several_lines();
    return are_independent(best.passes) ? best : Accumulation{};
  }

  // `losses`: by stack. `fed`: only passes with inputs of their own, which the steps of a
  // recurrence do not have.
  Accumulation run_until_failure(const std::vector<bool>& losses, bool fed) {
    std::set<uint32_t> stacks;
    for (const size_t i : births_) {
      if (is_scalar(i) && losses[all_.stack(i)]) stacks.insert(all_.stack(i));
    }
    Accumulation best;
    for (const uint32_t stack : stacks) {
      Accumulation a{split_at(stack), stack, of_functions_};
      const bool are_fed =
          std::all_of(a.passes.begin(), a.passes.end(), [](const ForwardPass& p) { return p.fed; });
      if ((are_fed || !fed) && better(a, best) && are_passes(a.passes)) best = std::move(a);
    }
    return best;
  }

 private:
  // A pass may have gradients computed that are part of its graph.
  static bool is_of_pass(StackRole role) {
    return role == StackRole::kForward || role == StackRole::kUser || role == StackRole::kBackward;
  }

  // Of two lines with as many losses, the one that adds them says more than the one that computes
  // them.
  bool better(const Accumulation& a, const Accumulation& b) const {
    if (a.passes.size() != b.passes.size()) return a.passes.size() > b.passes.size();
    return d_.roles->of(a.stack) == StackRole::kUser && d_.roles->of(b.stack) != StackRole::kUser;
  }
  // What the backward pass frees, or would have freed had memory not run out before.
  bool waits(const Allocation& a) const {
    return backward_.consumes(a) || (backward_.end == kNever && a.release >= backward_.first);
  }
  bool is_scalar(size_t i) const { return is_scalar_size(all_.asked_bytes(i)); }
  // Of functions, only what is kept tells where a pass begins: a sum has buffers of its own.
  bool is_layer(size_t i) const {
    if (is_scalar(i)) return false;
    const StackRole role = d_.roles->of(all_.stack(i));
    return role == StackRole::kForward ||
           (of_functions_ && role == StackRole::kUser && waits(all_[i]));
  }
  // Whether what waits was computed outside modules, and not loaded.
  bool is_kept_by_functions() const {
    uint64_t of_modules = 0;
    uint64_t of_functions = 0;
    for (const size_t i : births_) {
      if (!waits(all_[i]) || d_.categories.of[i] == Category::kInput) continue;
      const StackRole role = d_.roles->of(all_.stack(i));
      if (role == StackRole::kForward) of_modules += all_.block_bytes(i);
      if (role == StackRole::kUser) of_functions += all_.block_bytes(i);
    }
    return of_functions > kHardlyAny * of_modules;
  }

  // Stacks of the scalars after the last layer: the loss, and sums of losses.
  std::set<uint32_t> losses_at_the_end() const {
    std::set<uint32_t> stacks;
    for (auto i = births_.rbegin(); i != births_.rend() && !is_layer(*i); ++i) {
      if (is_scalar(*i) && all_.stack(*i) != 0) stacks.insert(all_.stack(*i));
    }
    return stacks;
  }

  // Each pass may have its loss from a line of its own: the scalars before the next pass.
  Accumulation with_losses_of_several_lines() const {
    Accumulation a{split_at(kAnyLine), 0};
    if (!are_passes(a.passes) || !go_backward_in_order(a.passes) || are_joined(a.passes)) return {};
    const auto last = std::find_if(births_.rbegin(), births_.rend(),
                                   [&](size_t i) { return is_scalar(i) && all_.stack(i) != 0; });
    if (last == births_.rend()) return {};
    a.stack = all_.stack(*last);
    return a;
  }

  // Whether something other than a sum is computed from the losses, or from results of both passes:
  // a sum saves nothing for the backward pass. The last scalar is what backward() is called on.
  bool are_joined(const std::vector<ForwardPass>& passes) const {
    std::vector<size_t> saved(passes.size());
    size_t k = 0;
    bool last_is_saved = false;
    for (const size_t i : births_) {
      while (k + 1 < passes.size() && all_.birth(i) > passes[k].end) ++k;
      if (is_layer(i)) saved[k] = 0;
      saved[k] += static_cast<size_t>(waits(all_[i]));
      if (is_scalar(i)) last_is_saved = waits(all_[i]);
    }
    saved.back() -= static_cast<size_t>(last_is_saved);
    return saved.back() > *std::max_element(saved.begin(), saved.end() - 1);
  }

  // Of scalars: models compute others, such as the statistics of a norm with few channels.
  bool is_loss(uint32_t stack) const {
    const Dictionary& names = d_.process->names;
    if (d_.roles->caller_of(stack) == 0) return true;
    for (uint32_t at = stack; at != 0; at = names.stack(at).parent) {
      if (names_loss(names, names.frame(names.stack(at).frame))) return true;
    }
    return false;
  }

  // What an operation is called by inside the model, whichever line calls the model.
  uint64_t operation(uint32_t stack) const {
    const Dictionary& names = d_.process->names;
    const uint32_t caller = d_.roles->caller_of(stack);
    if (caller == 0) return stack;
    uint64_t key = 0;
    for (uint32_t at = stack; at != 0 && at != caller; at = names.stack(at).parent) {
      key = (key + names.stack(at).frame + 1) * 0x9E3779B97F4A7C15;
    }
    return key;
  }

  // The births up to each loss; several losses with no layer between them are one.
  std::vector<ForwardPass> split_at(uint32_t loss) const {
    std::vector<ForwardPass> passes;
    bool open = false;
    bool fed = false;
    for (const size_t i : births_) {
      fed = fed || (d_.roles->of(all_.stack(i)) == StackRole::kUser && !is_scalar(i));
      if (!open && is_layer(i)) {
        passes.emplace_back();
        passes.back().fed = std::exchange(fed, false);
        open = true;
      }
      if (passes.empty()) continue;
      ForwardPass& p = passes.back();
      const Allocation a = all_[i];
      if (waits(a) && !is_scalar(i)) {
        p.kept.push_back(i);
        p.operations.insert(operation(a.stack));
        p.bytes += a.block_bytes;
        p.mean_release += a.release;
        p.first_release = std::min(p.first_release, a.release);
      }
      if (is_scalar(i) && (loss == kAnyLine ? is_loss(a.stack) : a.stack == loss)) {
        p.end = a.birth;
        open = false;
      }
    }
    if (open) passes.pop_back();
    for (ForwardPass& p : passes) p.mean_release /= std::max<size_t>(p.kept.size(), 1);
    return passes;
  }

  // Whether the parts repeat one another. Several heads on one body do not: only the first part
  // holds the body.
  static bool are_passes(const std::vector<ForwardPass>& passes) {
    if (passes.size() < 2) return false;
    const ForwardPass& last = passes.back();
    const uint64_t most =
        std::max_element(passes.begin(), passes.end(), [](const auto& a, const auto& b) {
          return a.bytes < b.bytes;
        })->bytes;
    for (const ForwardPass& p : passes) {
      size_t common = 0;
      for (const uint64_t operation : p.operations)
        common += static_cast<size_t>(last.operations.contains(operation));
      const bool alike = 10 * common >= 7 * std::max(p.operations.size(), last.operations.size());
      if (p.kept.size() < kLeastKept || p.bytes < most / kSmallest || !alike) return false;
    }
    return true;
  }

  // A pipeline's micro-batches go backward in the order of their forward passes; a sum of losses in
  // the opposite one.
  static bool go_backward_in_order(const std::vector<ForwardPass>& passes) {
    return passes.front().mean_release > passes.back().mean_release;
  }

  uint64_t least_state(const ForwardPass& p) const {
    const uint64_t of_pass = p.bytes / kOfState;
    return of_functions_ ? std::min(of_pass, p.bytes / p.kept.size() / kOfBlock) : of_pass;
  }

  // The steps of a recurrence depend on one another: when the backward pass has come to one of
  // them, it still holds the gradient of the state that the step passed on. Where a step adds to
  // the state, the gradient may be in one block from the last step to the first.
  bool are_independent(const std::vector<ForwardPass>& passes) const {
    size_t dependent = 0;
    for (size_t k = 0; k + 1 < passes.size(); ++k) {
      const uint32_t when = passes[k].first_release;
      const uint32_t before = passes[k + 1].first_release;
      if (before >= when) continue;
      // The next pass's backward may have begun: look at what the one before made until then.
      uint32_t last_release = before;
      for (const size_t i : passes[k + 1].kept) {
        if (all_.release(i) < when) last_release = std::max(last_release, all_.release(i));
      }
      const BirthRange rows = births_within(*d_.model, backward_.first, last_release);
      bool passes_on = false;
      for (size_t i = rows.begin; i < rows.end; ++i) {
        passes_on = passes_on || (all_.release(i) > when && all_.release(i) <= backward_.last &&
                                  all_.block_bytes(i) > least_state(passes[k]));
      }
      dependent += static_cast<size_t>(passes_on);
    }
    return 2 * dependent < passes.size();
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const BackwardPass& backward_;
  std::vector<size_t> births_;
  bool of_functions_ = false;
};

// Whether a backward pass frees hardly anything of the forward pass before it, as one that creates
// a graph of the gradients.
bool creates_graph(const DeviceEvidence& d, const BackwardPass& pass) {
  constexpr uint64_t kHardly = 100;
  const AllocationColumns& all = d.model->allocations;
  const BirthRange rows = births_within(*d.model, pass.forward_first, pass.first);
  uint64_t bytes = 0;
  uint64_t freed = 0;
  for (size_t i = rows.begin; i < rows.end; ++i) {
    if (d.roles->of(all.stack(i)) != StackRole::kForward || all.release(i) < pass.first) continue;
    bytes += all.block_bytes(i);
    if (pass.consumes(all[i])) freed += all.block_bytes(i);
  }
  return kHardly * freed < bytes;
}

}  // namespace

Accumulation accumulation_before(const DeviceEvidence& d, const BackwardPass& backward) {
  BackwardPass whole = backward;
  auto pass =
      std::lower_bound(d.backward_passes.begin(), d.backward_passes.end(), backward.first,
                       [](const BackwardPass& p, uint32_t first) { return p.first < first; });
  while (pass != d.backward_passes.begin() && creates_graph(d, *--pass) && d.steps.count() != 0 &&
         d.steps.end_of_step(pass->first) > backward.first) {
    whole.forward_first = pass->forward_first;
  }
  return Search(d, whole).run();
}

Accumulation accumulation_at_failure(const DeviceEvidence& d, const Accumulation& known) {
  if (!d.ran_out() || d.fails_in_validation()) return {};
  if (d.categories.has_backward && known.passes.empty()) return {};
  const uint32_t end = d.model->failures.back().event + 1;
  const uint32_t begin = d.backward_passes.empty() ? 0 : d.backward_passes.back().end;
  if (end <= begin) return {};
  const Dictionary& names = d.process->names;
  std::vector<bool> losses(names.stack_count() + 1);
  if (known.passes.empty()) {
    losses = stacks_with(names, [&](const Frame& frame) { return names_loss(names, frame); });
  } else {
    losses[known.stack] = true;
  }
  return Search(d, {begin, end, end, kNever}).run_until_failure(losses, known.passes.empty());
}

bool passes_wait_for_one_backward(const DeviceEvidence& d) {
  if (d.backward_passes.empty()) return !accumulation_at_failure(d, {}).passes.empty();
  const uint32_t peak = d.model->allocated_peak.event;
  auto pass =
      std::lower_bound(d.backward_passes.begin(), d.backward_passes.end(), peak,
                       [](const BackwardPass& p, uint32_t event) { return p.last < event; });
  if (pass == d.backward_passes.end()) --pass;  // memory ran out before the next one
  return !accumulation_before(d, *pass).passes.empty();
}

}  // namespace tidemark
