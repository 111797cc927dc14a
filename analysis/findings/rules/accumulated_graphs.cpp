// Several forward passes keep their activations until one backward pass over the sum of their
// losses.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "analysis/findings/rules.h"
#include "analysis/findings/scalar_size.h"
#include "analysis/history/rehearsal.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kLeastKept = 3;  // blocks of a pass that are kept for the backward pass

// The state of a recurrence is at least this part of what a step keeps.
constexpr uint64_t kOfState = 100;

// A forward pass that ends with a loss.
struct ForwardPass {
  std::vector<size_t> kept;  // rows, alive when the backward pass begins
  std::set<uint32_t> stacks;
  uint64_t bytes = 0;
  uint64_t mean_release = 0;
  uint32_t first_release = kNever;  // events
  uint32_t end = 0;
};

// The forward passes whose activations one backward pass frees; one, in most programs.
struct Accumulation {
  std::vector<ForwardPass> passes;
  uint32_t stack = 0;  // of the line that computes or adds the losses
};

class Search {
 public:
  Search(const DeviceEvidence& d, const BackwardPass& backward)
      : d_(d), all_(d.model->allocations), backward_(backward) {}

  Accumulation run() {
    const BirthRange rows = births_within(*d_.model, backward_.forward_first, backward_.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const StackRole role = d_.roles->of(all_.stack(i));
      if (all_.seeded(i) || (role != StackRole::kForward && role != StackRole::kUser)) continue;
      births_.push_back(i);
    }
    Accumulation best;
    for (const uint32_t stack : losses_at_the_end()) {
      Accumulation a{split_at(stack), stack};
      if (better(a, best) && are_passes(a.passes)) best = std::move(a);
    }
    return are_independent(best.passes) ? best : Accumulation{};
  }

 private:
  // Of two lines with as many losses, the one that adds them says more than the one that computes
  // them.
  bool better(const Accumulation& a, const Accumulation& b) const {
    if (a.passes.size() != b.passes.size()) return a.passes.size() > b.passes.size();
    return d_.roles->of(a.stack) == StackRole::kUser && d_.roles->of(b.stack) != StackRole::kUser;
  }
  bool is_scalar(size_t i) const { return is_scalar_size(all_.asked_bytes(i)); }
  bool is_layer(size_t i) const {
    return d_.roles->of(all_.stack(i)) == StackRole::kForward && !is_scalar(i);
  }

  // Stacks of the scalars after the last layer: the loss, and sums of losses.
  std::set<uint32_t> losses_at_the_end() const {
    std::set<uint32_t> stacks;
    for (auto i = births_.rbegin(); i != births_.rend() && !is_layer(*i); ++i) {
      if (is_scalar(*i) && all_.stack(*i) != 0) stacks.insert(all_.stack(*i));
    }
    return stacks;
  }

  // The births up to each loss; several losses with no layer between them are one.
  std::vector<ForwardPass> split_at(uint32_t loss) const {
    std::vector<ForwardPass> passes;
    bool open = false;
    for (const size_t i : births_) {
      if (!open && is_layer(i)) {
        passes.emplace_back();
        open = true;
      }
      if (passes.empty()) continue;
      ForwardPass& p = passes.back();
      const Allocation a = all_[i];
      if (backward_.consumes(a) && !is_scalar(i)) {
        p.kept.push_back(i);
        p.stacks.insert(a.stack);
        p.bytes += a.block_bytes;
        p.mean_release += a.release;
        p.first_release = std::min(p.first_release, a.release);
      }
      if (a.stack == loss && is_scalar(i)) {
        p.end = a.birth;
        open = false;
      }
    }
    if (open) passes.pop_back();
    for (ForwardPass& p : passes) p.mean_release /= std::max<size_t>(p.kept.size(), 1);
    return passes;
  }

  // Whether the parts repeat one another. Several heads on one body do not: only the first part
  // holds the body. A pipeline's micro-batches go backward in the order of their forward passes; a
  // sum of losses in the opposite one.
  static bool are_passes(const std::vector<ForwardPass>& passes) {
    if (passes.size() < 2) return false;
    const ForwardPass& last = passes.back();
    const uint64_t most =
        std::max_element(passes.begin(), passes.end(), [](const auto& a, const auto& b) {
          return a.bytes < b.bytes;
        })->bytes;
    for (const ForwardPass& p : passes) {
      size_t common = 0;
      for (const uint32_t stack : p.stacks)
        common += static_cast<size_t>(last.stacks.contains(stack));
      const bool alike = 10 * common >= 7 * std::max(p.stacks.size(), last.stacks.size());
      if (p.kept.size() < kLeastKept || p.bytes < most / 4 || !alike) return false;
    }
    return passes.front().mean_release > last.mean_release;
  }

  // The steps of a recurrence depend on one another: when the backward pass has come to one of
  // them, it still holds the gradient of the state that the step passed on.
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
      const BirthRange rows = births_within(*d_.model, before, last_release);
      bool passes_on = false;
      for (size_t i = rows.begin; i < rows.end; ++i) {
        passes_on = passes_on || (all_.release(i) > when && all_.release(i) <= backward_.last &&
                                  all_.block_bytes(i) > passes[k].bytes / kOfState);
      }
      dependent += static_cast<size_t>(passes_on);
    }
    return 2 * dependent < passes.size();
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const BackwardPass& backward_;
  std::vector<size_t> births_;
};

// One backward pass after each forward pass: only one pass's activations are alive at a time, but
// from the second on, the gradients as well. Those of the step before go before the first of them.
void rehearse(const DeviceEvidence& d, const BackwardPass& backward, const Accumulation& found,
              Rehearsal& changed) {
  const AllocationColumns& all = d.model->allocations;
  const uint32_t first_backward = found.passes.front().end + 1;
  for (size_t k = 0; k + 1 < found.passes.size(); ++k) {
    for (const size_t i : found.passes[k].kept) {
      changed.leave_out_from(all[i], found.passes[k].end + 1);
    }
  }
  const BirthRange rows = births_within(*d.model, backward.first, backward.last + 1);
  for (size_t i = rows.begin; i < rows.end; ++i) {
    if (all.release(i) > backward.last && d.roles->of(all.stack(i)) == StackRole::kBackward) {
      changed.hold_from(all[i], first_backward);
    }
  }
  for (size_t i = 0; i < rows.begin && all.birth(i) < first_backward; ++i) {
    const bool goes = all.release(i) > first_backward && all.release(i) <= backward.first;
    if (goes && d.categories.of[i] == Category::kGradient) {
      changed.leave_out_from(all[i], first_backward);
    }
  }
}

}  // namespace

void find_accumulated_graphs(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || !d.categories.has_backward) continue;
    std::optional<Rehearsal> changed;  // only where needed: it takes memory for every event
    Accumulation most;
    uint64_t bytes = 0;
    for (const BackwardPass& backward : d.backward_passes) {
      Accumulation found = Search(d, backward).run();
      if (found.passes.empty()) continue;
      if (!changed) changed.emplace(*d.model);
      rehearse(d, backward, found, *changed);
      uint64_t kept = 0;
      for (const ForwardPass& p : found.passes) {
        for (const size_t i : p.kept) {  // inputs are among them
          if (d.categories.of[i] == Category::kActivation)
            kept += d.model->allocations.block_bytes(i);
        }
      }
      if (kept <= bytes) continue;
      bytes = kept;
      most = std::move(found);
    }
    uint64_t saved = changed ? changed->saved_bytes() : 0;
    // A step that failed on its way to the peak has no backward pass to look at: it does what those
    // before it did.
    const bool in_forward = d.ran_out() && !most.passes.empty() &&
                            d.model->failures.back().event > d.backward_passes.back().last;
    if (in_forward) saved = std::max(saved, bytes - bytes / most.passes.size());
    if (saved == 0 || saved < d.peak_bytes() / 20) continue;
    Finding f = d.finding("accumulated_graphs", in_forward ? kError : kWarning,
                          fmt::format("{} forward passes keep {} of activations until one backward "
                                      "pass over the sum of their losses",
                                      grouped(most.passes.size()), size_text(bytes)));
    f.evidence = {{"forward_passes", most.passes.size()},
                  {"activation_bytes", bytes},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(most.stack);
    f.advice.push_back(
        {"backward_per_pass",
         fmt::format(
             "call backward() on each loss as soon as it is computed: the gradients add up "
             "to the same, and the activations of one pass at a time are alive: saves about {}",
             size_text(saved)),
         saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
