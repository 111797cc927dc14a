// Gradients that no optimizer uses, and the activations kept to compute them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

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

// An allocation by its place in a pass: the same in every pass.
using Place = std::pair<uint32_t, uint32_t>;  // stack, number among those of the stack

// The run without the gradients and without all that is done for them.
class Without {
 public:
  Without(const DeviceEvidence& d, const std::vector<BackwardPass>& passes, const GradientUse& use)
      : all_(d.model->allocations), model_(*d.model), rehearsal_(*d.model) {
    for (const size_t i : use.unused) {
      rehearsal_.leave_out(all_[i]);
      gradient_bytes_ += all_.block_bytes(i);
    }
    const std::map<Place, bool> places = places_of(use);
    for (const BackwardPass& pass : passes) leave_out(pass, places);
    std::unordered_map<uint32_t, uint64_t> by_stack;
    for (const auto& [stack, share] : shares_) by_stack[stack] = share.own;
    // Layers that are computed again in the backward pass leave only what one passes to the next,
    // in lines that other models share.
    stack_ = own_line(d.process->names, shares_, largest_stack(by_stack));
  }

  uint64_t saved_bytes() const { return rehearsal_.saved_bytes(); }
  uint64_t gradient_bytes() const { return gradient_bytes_; }
  // Of the pass that has most.
  uint64_t activation_bytes() const { return activation_bytes_; }
  // The line of most activations; 0: there are none.
  uint32_t stack() const { return stack_; }

 private:
  // Calls visit(row, place) for every block that the backward pass frees. Returns whether they are
  // for unused gradients, as far as it knows, by the events at which they are freed.
  template <typename Visit>
  std::map<uint32_t, bool> visit_consumed(const BackwardPass& pass, Visit&& visit) const {
    std::map<uint32_t, bool> releases;
    std::unordered_map<uint32_t, uint32_t> numbers;
    const BirthRange rows = births_within(model_, pass.forward_first, pass.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      if (a.seeded || !pass.consumes(a)) continue;
      const std::optional<bool> unused = visit(i, Place{a.stack, numbers[a.stack]++});
      if (unused && a.release <= pass.last) releases[a.release] = *unused;
    }
    return releases;
  }

  // Which activations are for unused gradients: autograd frees what an operation saved right after
  // it has computed the gradient of that operation's parameters.
  std::map<Place, bool> places_of(const GradientUse& use) const {
    std::map<Place, bool> places;
    visit_consumed(use.pass, [&](size_t i, const Place& place) {
      auto next = use.births.upper_bound(all_.release(i));
      if (next != use.births.begin()) --next;
      return std::optional<bool>(places[place] = next->second);
    });
    return places;
  }

  void leave_out(const BackwardPass& pass, const std::map<Place, bool>& places) {
    uint64_t bytes = 0;
    const auto releases = visit_consumed(pass, [&](size_t i, const Place& place) {
      const auto known = places.find(place);
      if (known == places.end()) return std::optional<bool>();
      LineShare& share = shares_[all_.stack(i)];
      (known->second ? share.own : share.others) += all_.block_bytes(i);
      if (known->second) {
        rehearsal_.leave_out_from(all_[i], end_of_use(model_, i));
        bytes += all_.block_bytes(i);
      }
      return std::optional<bool>(known->second);
    });
    activation_bytes_ = std::max(activation_bytes_, bytes);
    leave_out_work(pass, releases);
  }

  // What the backward pass computes while it frees such activations.
  void leave_out_work(const BackwardPass& pass, const std::map<uint32_t, bool>& releases) {
    if (releases.empty()) return;
    const BirthRange rows = births_within(model_, pass.first, pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      auto next = releases.lower_bound(a.birth);
      if (next == releases.end()) --next;
      if (next->second && a.release <= pass.end) rehearsal_.leave_out(a);
    }
  }

  const AllocationColumns& all_;
  const AllocationHistory& model_;
  Rehearsal rehearsal_;
  uint64_t gradient_bytes_ = 0;
  uint64_t activation_bytes_ = 0;
  std::unordered_map<uint32_t, LineShare> shares_;  // activations by stack
  uint32_t stack_ = 0;
};

}  // namespace

void find_unused_gradients(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    const GradientUse& use = d.gradient_use;
    if (use.unused.empty()) continue;
    const Without without(d, d.backward_passes, use);
    const uint64_t saved = without.saved_bytes();
    if (saved < kWorthSaying || saved < d.peak_bytes() / 50) continue;
    Finding f = d.finding(
        "unused_gradients", saved >= d.peak_bytes() / 20 ? kWarning : kInfo,
        fmt::format(
            "{} of gradients that no optimizer uses are computed, and {} of activations are "
            "kept for them",
            size_text(without.gradient_bytes()), size_text(without.activation_bytes())));
    f.evidence = {{"gradient_bytes", without.gradient_bytes()},
                  {"gradients", use.unused.size()},
                  {"activation_bytes", without.activation_bytes()},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(without.stack());
    f.advice.push_back(
        {"no_grad",
         fmt::format("run the part that is not trained under torch.no_grad(), or "
                     "call requires_grad_(False) on its parameters: saves at least {}",
                     size_text(saved)),
         saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
