// Gradients that no optimizer uses, and the activations kept to compute them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/own_line.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/passes/end_of_use.h"
#include "analysis/passes/gradient_use.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{8} << 20;
// A bias, or the scale of a norm, is smaller. A norm needs its input also without that gradient.
constexpr uint64_t kSmallParameter = uint64_t{64} << 10;

// An allocation by its place in a pass: the same in every pass.
using Place = std::pair<uint32_t, uint32_t>;  // stack, number among those of the stack

// What an activation is for. A part of the model between parameters that are trained passes the
// gradient on: without gradients of its own parameters, it saves fewer of its inputs.
enum class Need : uint8_t { kUsed, kInput, kPart };

// Where in a backward pass unused gradients are computed. A part of the model whose gradients come
// after the last used one has nothing to pass on, nor has a second model whose backward pass comes
// before that of the first. What is freed after that one, before the first used gradient, may be of
// another call of the second model, which adds to its gradients and passes one on to what is
// trained, as the features of a prediction do in a loss on features.
class Parts {
 public:
  Parts(const DeviceEvidence& d, const GradientUse& use) : use_(use) {
    for (const auto& [event, unused] : use.births) {
      if (unused) continue;
      first_used_ = std::min(first_used_, event);
      last_used_ = event;
    }
    std::vector<Life> lives;  // of what else the pass computes
    const BirthRange rows = births_within(*d.model, use.pass.first, use.pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = d.model->allocations[i];
      const auto gradient = use.births.find(a.birth);
      if (gradient != use.births.end()) {
        if (a.block_bytes >= kSmallParameter || !gradient->second) with_input_.insert(*gradient);
      } else if (a.block_bytes > kSmallBytes && d.roles->of(a.stack) == StackRole::kBackward) {
        others_.insert(a.birth);
        if (a.release <= use.pass.end) lives.push_back({a.birth, a.release});
      }
    }
    begins_apart_ = is_apart(lives);
  }

  // Whether some part passes gradients on to parameters that are trained.
  bool any_passes_on() const {
    return std::any_of(use_.births.begin(), use_.births.end(),
                       [&](const auto& g) { return g.second && passes_on(g.first); });
  }

  // `releases`: of activations, with their places.
  std::map<Place, Need> needs(const std::multimap<uint32_t, Place>& releases) const {
    std::map<Place, Need> found;
    uint32_t seen = 0;
    bool owed = false;  // the input of an operation with a used gradient was not freed after it
    for (const auto& [release, place] : releases) {
      auto gradient = use_.births.upper_bound(release);
      if (gradient != use_.births.begin()) --gradient;
      for (auto g = with_input_.upper_bound(seen); g != with_input_.end() && g->first < release;
           ++g) {
        owed = owed || !g->second;
        seen = g->first;
      }
      const bool is_input = seen != 0 && is_same_operation(seen, release);
      const bool of_other_call = begins_apart_ && end_of_second_ < release && gradient->second &&
                                 gradient->first < first_used_;
      Need& need = found[place] = gradient->second && !of_other_call ? Need::kPart : Need::kUsed;
      if (gradient->second && passes_on(gradient->first)) {
        need = is_input && with_input_.at(seen) ? Need::kInput : Need::kUsed;
      }
      if (is_input && owed) need = Need::kUsed;
      if (is_input) owed = false;
    }
    return found;
  }

 private:
  struct Life {
    uint32_t birth = 0;
    uint32_t release = 0;
  };

  bool passes_on(uint32_t gradient) const {
    return gradient < last_used_ && !(begins_apart_ && gradient < first_used_);
  }
  // Whether nothing of what is computed between the unused gradients before the first used one is
  // there when the next operation begins.
  bool is_apart(const std::vector<Life>& lives) {
    const auto used = use_.births.lower_bound(first_used_);
    const uint32_t first = use_.births.begin()->first;
    if (used == use_.births.begin() || std::prev(used)->first == first) return false;
    const uint32_t last = std::prev(used)->first;
    const auto next = others_.upper_bound(last);
    if (next == others_.end()) return false;
    end_of_second_ = *next;
    return std::none_of(lives.begin(), lives.end(), [&](const Life& l) {
      return first < l.birth && l.birth < last && *next < l.release;
    });
  }
  // Whether nothing else is computed between the two events.
  bool is_same_operation(uint32_t gradient, uint32_t release) const {
    const auto next = others_.upper_bound(gradient);
    return next == others_.end() || *next > release;
  }

  const GradientUse& use_;
  std::map<uint32_t, bool> with_input_;  // gradients that need an input, as in GradientUse
  std::set<uint32_t> others_;            // births of what else the pass computes
  uint32_t first_used_ = kNever;
  uint32_t last_used_ = 0;
  uint32_t end_of_second_ = kNever;  // the first event after a second model's backward pass
  bool begins_apart_ = false;        // with a second model
};

// The run without the gradients and without all that is done for them.
class Without {
 public:
  Without(const DeviceEvidence& d, const Parts& parts, const GradientUse& use)
      : all_(d.model->allocations), model_(*d.model), rehearsal_(*d.model) {
    for (const size_t i : use.unused) {
      rehearsal_.leave_out(all_[i]);
      gradient_bytes_ += all_.block_bytes(i);
      gradient_sizes_.insert(all_.asked_bytes(i));
    }
    const std::map<Place, Need> places = places_of(parts, use);
    for (const BackwardPass& pass : d.backward_passes) leave_out(pass, places);
    std::unordered_map<uint32_t, uint64_t> by_stack;
    for (const auto& [stack, share] : shares_) by_stack[stack] = share.own;
    // Layers that are computed again in the backward pass leave only what one passes to the next,
    // in lines that other models share.
    const std::optional<uint32_t> own =
        own_line(d.process->names, shares_, largest_stack(by_stack));
    stack_ = own.value_or(largest_stack(by_stack));
    is_shared_ = !own && stack_ != 0;
  }

  uint64_t saved_bytes() const { return rehearsal_.saved_bytes(); }
  uint64_t gradient_bytes() const { return gradient_bytes_; }
  // Of the pass that has most.
  uint64_t activation_bytes() const { return activation_bytes_; }
  // The line of most activations; 0: there are none.
  uint32_t stack() const { return stack_; }
  // Whether it also computes what is trained.
  bool is_shared() const { return is_shared_; }

 private:
  // Calls visit(row, place) for every block that the backward pass frees.
  template <typename Visit>
  void visit_consumed(const BackwardPass& pass, Visit&& visit) const {
    std::unordered_map<uint32_t, uint32_t> numbers;
    const BirthRange rows = births_within(model_, pass.forward_first, pass.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      if (!a.seeded && pass.consumes(a)) visit(i, Place{a.stack, numbers[a.stack]++});
    }
  }

  // Which activations are for unused gradients: autograd frees what an operation saved right after
  // it has computed the gradient of that operation's parameters.
  std::map<Place, Need> places_of(const Parts& parts, const GradientUse& use) const {
    std::multimap<uint32_t, Place> releases;
    visit_consumed(use.pass,
                   [&](size_t i, const Place& place) { releases.emplace(all_.release(i), place); });
    return parts.needs(releases);
  }

  void leave_out(const BackwardPass& pass, const std::map<Place, Need>& places) {
    uint64_t bytes = 0;
    std::map<uint32_t, Need> releases;  // in the pass
    visit_consumed(pass, [&](size_t i, const Place& place) {
      const auto known = places.find(place);
      if (known == places.end()) return;
      const bool unused = known->second != Need::kUsed;
      LineShare& share = shares_[all_.stack(i)];
      (unused ? share.own : share.others) += all_.block_bytes(i);
      if (unused) {
        rehearsal_.leave_out_from(all_[i], end_of_use(model_, i));
        bytes += all_.block_bytes(i);
      }
      if (all_.release(i) <= pass.last) releases[all_.release(i)] = known->second;
    });
    activation_bytes_ = std::max(activation_bytes_, bytes);
    leave_out_work(pass, releases);
  }

  // What the backward pass computes while it frees such activations. What passes a gradient on
  // leaves out only the gradients of its parameters.
  void leave_out_work(const BackwardPass& pass, const std::map<uint32_t, Need>& releases) {
    if (releases.empty()) return;
    const BirthRange rows = births_within(model_, pass.first, pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      auto next = releases.lower_bound(a.birth);
      if (next == releases.end()) --next;
      const bool of_part =
          next->second == Need::kPart ||
          (next->second == Need::kInput && gradient_sizes_.contains(a.asked_bytes()));
      if (of_part && a.release <= pass.end) rehearsal_.leave_out(a);
    }
  }

  const AllocationColumns& all_;
  const AllocationHistory& model_;
  Rehearsal rehearsal_;
  uint64_t gradient_bytes_ = 0;
  std::unordered_set<uint64_t> gradient_sizes_;
  uint64_t activation_bytes_ = 0;
  std::unordered_map<uint32_t, LineShare> shares_;  // activations by stack
  uint32_t stack_ = 0;
  bool is_shared_ = false;
};

// A part that passes gradients on must not run under no_grad(): what is before it would no longer
// be trained, without any error.
std::string_view advice_on(const Parts& parts, const Without& without) {
  if (parts.any_passes_on()) {
    return "call requires_grad_(False) on the parameters that are not trained";
  }
  if (without.is_shared()) {
    return "call requires_grad_(False) on the parameters that are not trained (torch.no_grad() "
           "only around calls whose inputs need no gradient: the same lines pass gradients on to "
           "what is trained)";
  }
  return "run the part that is not trained under torch.no_grad(), or call requires_grad_(False) on "
         "its parameters";
}

}  // namespace

void find_unused_gradients(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    const GradientUse& use = d.gradient_use;
    if (use.unused.empty() || use.births.empty()) continue;
    const Parts parts(d, use);
    const Without without(d, parts, use);
    const uint64_t saved = without.saved_bytes();
    if (saved < kWorthSaying || saved < d.peak_bytes() / 50) continue;
    Finding f = d.finding(
        "unused_gradients", use.certain && saved >= d.peak_bytes() / 20 ? kWarning : kInfo,
        fmt::format("{} of gradients {} are computed, and {} of activations are kept for them",
                    size_text(without.gradient_bytes()),
                    use.certain ? "that no optimizer uses" : "that are never freed, as others are,",
                    size_text(without.activation_bytes())));
    f.evidence = {{"gradient_bytes", without.gradient_bytes()},
                  {"gradients", use.unused.size()},
                  {"activation_bytes", without.activation_bytes()},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(without.stack());
    f.advice.push_back(
        {"no_grad",
         fmt::format("{}{}: saves at least {}",
                     use.certain ? "" : "if no optimizer uses them (none has states that tell), ",
                     advice_on(parts, without), size_text(saved)),
         saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
