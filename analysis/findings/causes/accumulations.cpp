#include "analysis/findings/causes/accumulations.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "analysis/findings/scalar_size.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

constexpr size_t kLeastKept = 3;  // blocks of a pass that are kept for the backward pass

// The state of a recurrence is at least this part of what a step keeps.
constexpr uint64_t kOfState = 100;

class Search {
 public:
  Search(const DeviceEvidence& d, const BackwardPass& backward)
      : d_(d), all_(d.model->allocations), backward_(backward) {
    const BirthRange rows = births_within(*d_.model, backward_.forward_first, backward_.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const StackRole role = d_.roles->of(all_.stack(i));
      if (all_.seeded(i) || (role != StackRole::kForward && role != StackRole::kUser)) continue;
      births_.push_back(i);
    }
  }

  Accumulation run() {
    Accumulation best;
    for (const uint32_t stack : losses_at_the_end()) {
      Accumulation a{split_at(stack), stack};
      if (better(a, best) && are_passes(a.passes) && go_backward_in_order(a.passes)) {
        best = std::move(a);
      }
    }
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
      Accumulation a{split_at(stack), stack};
      const bool are_fed =
          std::all_of(a.passes.begin(), a.passes.end(), [](const ForwardPass& p) { return p.fed; });
      if ((are_fed || !fed) && better(a, best) && are_passes(a.passes)) best = std::move(a);
    }
    return best;
  }

 private:
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
      for (const uint32_t stack : p.stacks)
        common += static_cast<size_t>(last.stacks.contains(stack));
      const bool alike = 10 * common >= 7 * std::max(p.stacks.size(), last.stacks.size());
      if (p.kept.size() < kLeastKept || p.bytes < most / 4 || !alike) return false;
    }
    return true;
  }

  // A pipeline's micro-batches go backward in the order of their forward passes; a sum of losses in
  // the opposite one.
  static bool go_backward_in_order(const std::vector<ForwardPass>& passes) {
    return passes.front().mean_release > passes.back().mean_release;
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

bool names_loss(const Dictionary& names, const Frame& frame) {
  const std::string_view function = names.string(frame.function);
  return function.find("loss") != function.npos ||
         function.find("cross_entropy") != function.npos ||
         function.find("kl_div") != function.npos ||
         names.string(frame.file).ends_with("nn/modules/loss.py");
}

}  // namespace

Accumulation accumulation_before(const DeviceEvidence& d, const BackwardPass& backward) {
  return Search(d, backward).run();
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

}  // namespace tidemark
