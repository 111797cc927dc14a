// The peak is in the optimizer step: the first one allocates its states, every one its temporaries.
// Or two optimizers have states for the same parameters.
#include <fmt/format.h>

#include <unordered_map>
#include <vector>

#include "analysis/findings/advice.h"
#include "analysis/findings/causes/doubled_states.h"
#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/growth/growth.h"
#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/peak.h"
#include "analysis/passes/first_step.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

void describe(Finding& f, const DeviceEvidence& d) {
  f.evidence = {{"parameter_bytes", d.at_peak(Category::kParameter)},
                {"gradient_bytes", d.at_peak(Category::kGradient)},
                {"optimizer_state_bytes", d.at_peak(Category::kOptimizerState)},
                {"allocated_peak_bytes", d.peak_bytes()}};
  add(f.advice, fuse_optimizer(d));
  add(f.advice, shard_states(d));
  if (d.ran_out() || d.is_tight()) add(f.advice, smaller_states(d));
}

bool find_doubled(const DeviceEvidence& d, std::vector<Finding>& out) {
  if (grows(d)) return false;
  const std::optional<DoubledStates> doubled = states_of_two_optimizers(d);
  if (!doubled) return false;
  Finding f = d.finding("optimizer_state_spike", d.ran_out() ? kError : kWarning,
                        fmt::format("two optimizers have states for the same parameters: {} of the "
                                    "older ones were there beside the newer ones",
                                    size_text(doubled->bytes)));
  f.evidence = {{"doubled_state_bytes", doubled->bytes},
                {"optimizer_state_bytes", d.at_peak(Category::kOptimizerState)},
                {"allocated_peak_bytes", d.peak_bytes()}};
  f.frames = d.process->names.stack_text(doubled->stack);
  f.advice.push_back(
      {"one_optimizer",
       fmt::format("give each parameter to one optimizer, and drop an old one with "
                   "everything that refers to it: saves {}{}",
                   d.ends_at_failure() ? "at least " : "", size_text(doubled->saved_bytes)),
       doubled->saved_bytes});
  out.push_back(std::move(f));
  return true;
}

// A recording that ends with the first step has no forward pass beside the optimizer's states.
bool find_first_step(const DeviceEvidence& d, std::vector<Finding>& out) {
  const AllocationColumns& all = d.model->allocations;
  const std::vector<uint32_t> states =
      states_of_only_step(*d.model, d.categories, d.backward_passes);
  for (size_t i = states.empty() ? all.size() : states.front(); i < all.size(); ++i) {
    if (d.roles->of(all.stack(i)) == StackRole::kForward) return false;
  }
  Rehearsal next(*d.model);
  uint64_t bytes = 0;
  std::unordered_map<uint32_t, uint64_t> by_stack;
  for (const uint32_t i : states) {
    next.hold_from(all[i], 0);
    bytes += all.block_bytes(i);
    by_stack[all.stack(i)] += all.block_bytes(i);
  }
  const uint64_t needed = next.peak_bytes();
  if (needed <= d.peak_bytes() + d.peak_bytes() / 20) return false;
  const bool fits = !d.limit.is_known() || needed <= d.limit.bytes;
  Finding f = d.finding(
      "optimizer_state_spike", fits ? kInfo : kWarning,
      fmt::format("only the first step is recorded, which made {} of optimizer state after its "
                  "backward pass: the next one has them from the start, and needs about {} "
                  "allocated instead of {}",
                  size_text(bytes), size_text(needed), size_text(d.peak_bytes())));
  f.evidence = {{"optimizer_state_bytes", bytes},
                {"next_step_bytes", needed},
                {"allocated_peak_bytes", d.peak_bytes()}};
  f.frames = d.process->names.stack_text(largest_stack(by_stack));
  f.advice.push_back({"record_steps", "record two steps or more to see what a step needs", 0});
  out.push_back(std::move(f));
  return true;
}

}  // namespace

void find_optimizer_state_spike(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.model->event_count() == 0) continue;
    if (find_doubled(d, out) || d.has_room() || find_first_step(d, out)) continue;
    const uint64_t states = d.at_peak(Category::kOptimizerState);
    if (d.ran_out()) {
      if (!fails_in_optimizer(d) || fails_for_what_was_left(d)) continue;
      Finding f = d.finding("optimizer_state_spike", kError,
                            fmt::format("out of memory inside the optimizer step, with {} of "
                                        "optimizer state allocated",
                                        size_text(states)));
      describe(f, d);
      f.frames = d.process->names.stack_text(d.model->failures.back().stack);
      out.push_back(std::move(f));
      continue;
    }
    const std::optional<Allocation> last = pushed_by(*d.model, d.model->allocated_peak.event);
    if (!last || !in_optimizer(d.roles->of(last->stack))) continue;
    Finding f = d.finding("optimizer_state_spike", d.is_tight() ? kWarning : kInfo,
                          fmt::format("the peak is inside the optimizer step: {} of optimizer "
                                      "state, and temporaries",
                                      size_text(states)));
    describe(f, d);
    // States that are there anyway are no spike: without temporaries to save, it is no hint.
    if (f.advice.empty() && f.severity == kInfo) continue;
    f.frames = d.process->names.stack_text(last->stack);
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
