// Gradients of parameters that no optimizer steps, and the activations kept to compute them: a
// teacher, or a part that is meant to be frozen, run with gradients.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/passes.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kLeastClearings = 3;  // in as many steps
constexpr size_t kUses = 6;  // allocations that follow while a layer's result is needed
constexpr uint64_t kWorthSaying = uint64_t{8} << 20;

// An allocation by its place in a pass: the same in every pass.
using Place = std::pair<uint32_t, uint32_t>;  // stack, number among those of the stack

struct Found {
  std::vector<size_t> gradients;  // rows
  uint64_t gradient_bytes = 0;
  uint64_t activation_bytes = 0;  // of the pass that has most
  uint32_t stack = 0;             // of most activations
};

class Search {
 public:
  explicit Search(const DeviceEvidence& d)
      : d_(d),
        all_(d.model->allocations),
        passes_(find_backward_passes(d.process->names, *d.model, *d.roles)) {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (d_.categories.of[i] == Category::kParameter) sizes_.insert(all_.requested_bytes(i));
    }
  }

  // Optimizers free or zero the gradients that they step. Where they free them, one that is still
  // there after several such clearings, and at the end, belongs to none.
  Found run() {
    Found found;
    const std::vector<uint32_t> clearings = find_clearings();
    if (clearings.size() < kLeastClearings) return found;
    for (const BackwardPass& pass : passes_) {
      visit_gradients(pass, [&](size_t i) {
        const auto later = std::upper_bound(clearings.begin(), clearings.end(), all_.birth(i));
        const auto survived = static_cast<size_t>(clearings.end() - later);
        if (survived < kLeastClearings || !stays(i) || all_.category(i) == Category::kGradient) return;
        if (found.gradients.empty()) first_ = &pass;
        found.gradients.push_back(i);
        found.gradient_bytes += all_.block_bytes(i);
      });
    }
    unused_.insert(found.gradients.begin(), found.gradients.end());
    return found;
  }

  // Leaves out what would not be computed, and counts the activations.
  void rehearse(Found& found, Rehearsal& without) {
    for (const size_t i : found.gradients) without.leave_out(all_[i]);
    const std::map<Place, bool> places = places_of(*first_);
    std::unordered_map<uint32_t, uint64_t> by_stack;
    for (const BackwardPass& pass : passes_) {
      uint64_t bytes = 0;
      const std::map<uint32_t, bool> releases =
          visit_consumed(pass, [&](size_t i, const Place& place) {
            const auto known = places.find(place);
            if (known == places.end()) return std::optional<bool>();
            if (!known->second) return std::optional<bool>(false);
            without.leave_out_from(all_[i], end_of_use(i));
            bytes += all_.block_bytes(i);
            by_stack[all_.stack(i)] += all_.block_bytes(i);
            return std::optional<bool>(true);
          });
      found.activation_bytes = std::max(found.activation_bytes, bytes);
      leave_out_work(pass, releases, without);
    }
    uint64_t most = 0;
    for (const auto& [stack, bytes] : by_stack) {
      if (bytes < most || (bytes == most && stack > found.stack)) continue;
      most = bytes;
      found.stack = stack;
    }
    if (most == 0) found.stack = all_.stack(found.gradients.front());
  }

 private:
  bool stays(size_t i) const {
    return all_.release(i) == kNever || all_.release(i) > all_.birth(all_.size() - 1);
  }

  // What a backward pass leaves, in the sizes of parameters.
  template <typename Visit>
  void visit_gradients(const BackwardPass& pass, Visit&& visit) const {
    const BirthRange rows = births_within(*d_.model, pass.first, pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      if (all_.release(i) <= pass.last || d_.roles->of(all_.stack(i)) != StackRole::kBackward) {
        continue;
      }
      if (sizes_.contains(all_.requested_bytes(i))) visit(i);
    }
  }

  // The ends of steps in which gradients were freed.
  std::vector<uint32_t> find_clearings() const {
    std::set<uint32_t> ends;
    for (const BackwardPass& pass : passes_) {
      visit_gradients(pass, [&](size_t i) {
        if (!stays(i)) ends.insert(d_.steps.end_of_step(all_.release(i)));
      });
    }
    ends.erase(kNever);
    return {ends.begin(), ends.end()};
  }

  // Calls visit(row, place) for every block that the backward pass frees. Returns whether they are
  // for unused gradients, as far as it knows, by the events at which they are freed.
  template <typename Visit>
  std::map<uint32_t, bool> visit_consumed(const BackwardPass& pass, Visit&& visit) const {
    std::map<uint32_t, bool> releases;
    std::unordered_map<uint32_t, uint32_t> numbers;
    const BirthRange rows = births_within(*d_.model, pass.forward_first, pass.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      if (a.seeded || !pass.consumes(a)) continue;
      const std::optional<bool> unused = visit(i, Place{a.stack, numbers[a.stack]++});
      if (unused) releases[a.release] = *unused;
    }
    return releases;
  }

  // Which activations are for unused gradients: autograd frees what an operation saved right after
  // it has computed the gradient of that operation's parameters.
  std::map<Place, bool> places_of(const BackwardPass& pass) const {
    std::map<uint32_t, bool> gradients;  // birth -> whether unused
    visit_gradients(pass, [&](size_t i) { gradients[all_.birth(i)] = unused_.contains(i); });
    std::map<Place, bool> places;
    visit_consumed(pass, [&](size_t i, const Place& place) {
      auto next = gradients.upper_bound(all_.release(i));
      if (next != gradients.begin()) --next;
      return std::optional<bool>(places[place] = next->second);
    });
    return places;
  }

  // Without a graph, a layer's result is freed once the next operations have used it.
  uint32_t end_of_use(size_t i) const {
    const size_t end = i + kUses;
    return end < all_.size() ? all_.birth(end) : kNever;
  }

  // What the backward pass computes while it frees such activations.
  void leave_out_work(const BackwardPass& pass, const std::map<uint32_t, bool>& releases,
                      Rehearsal& without) const {
    if (releases.empty()) return;
    const BirthRange rows = births_within(*d_.model, pass.first, pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      auto next = releases.lower_bound(a.birth);
      if (next == releases.end()) --next;
      if (next->second && a.release <= pass.end) without.leave_out(a);
    }
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  std::vector<BackwardPass> passes_;
  std::unordered_set<uint64_t> sizes_;   // of parameters
  std::unordered_set<size_t> unused_;    // rows of gradients
  const BackwardPass* first_ = nullptr;  // in which they were allocated
};

}  // namespace

void find_unused_gradients(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || !d.categories.has_backward) continue;
    Search search(d);
    Found found = search.run();
    if (found.gradients.empty()) continue;
    Rehearsal without(*d.model);
    search.rehearse(found, without);
    const uint64_t saved = without.saved_bytes();
    if (saved < kWorthSaying || saved < d.peak_bytes() / 50) continue;
    Finding f = d.finding(
        "unused_gradients", saved >= d.peak_bytes() / 20 ? kWarning : kInfo,
        fmt::format("{} of gradients that no optimizer step uses are computed, and {} of "
                    "activations are kept for them",
                    size_text(found.gradient_bytes), size_text(found.activation_bytes)));
    f.evidence = {{"gradient_bytes", found.gradient_bytes},
                  {"gradients", found.gradients.size()},
                  {"activation_bytes", found.activation_bytes},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(found.stack);
    f.advice.push_back({"no_grad",
                        fmt::format("run the part that is not trained under torch.no_grad(), or "
                                    "call requires_grad_(False) on its parameters: saves {}",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
