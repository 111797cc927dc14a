// Weights that are trained beside low-rank adapters, which are meant to be trained instead of them.
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/adapted_layers.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{8} << 20;

// What training the weights takes.
struct Cost {
  uint64_t state_bytes = 0;  // of the optimizer, at the peak
  uint64_t saved_bytes = 0;  // without it and the gradients
};

Cost cost_of(const DeviceEvidence& d, const AdaptedLayers& adapted) {
  const AllocationColumns& all = d.model->allocations;
  // No adapter is as large.
  std::unordered_set<uint64_t> sizes;
  for (const uint32_t row : adapted.weights) sizes.insert(all.asked_bytes(row));
  Cost cost;
  Rehearsal frozen(*d.model);
  for (size_t i = 0; i < all.size(); ++i) {
    const Category category = d.categories.of[i];
    if (category != Category::kGradient && category != Category::kOptimizerState) continue;
    if (!sizes.contains(all.asked_bytes(i))) continue;
    frozen.leave_out(all[i]);
    if (category == Category::kOptimizerState && all.alive_at(i, d.model->allocated_peak.event)) {
      cost.state_bytes += all.block_bytes(i);
    }
  }
  cost.saved_bytes = frozen.saved_bytes();
  return cost;
}

// Where most of them were made.
uint32_t line_of(const DeviceEvidence& d, const AdaptedLayers& adapted) {
  std::unordered_map<uint32_t, uint64_t> by_stack;
  for (const uint32_t row : adapted.weights) {
    by_stack[d.model->allocations.stack(row)] += d.model->allocations.block_bytes(row);
  }
  return largest_stack(by_stack);
}

}  // namespace

void find_trained_base(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || !d.categories.has_backward) continue;
    const AdaptedLayers adapted = find_adapted_layers(
        *d.process, *d.model,
        trained_weights(*d.process, *d.model, d.model->allocated_peak.event, d.categories.of));
    if (adapted.empty()) continue;
    const Cost cost = cost_of(d, adapted);
    if (cost.saved_bytes < kWorthSaying || cost.saved_bytes < d.peak_bytes() / 50) continue;
    Finding f = d.finding(
        "trained_base", cost.saved_bytes >= d.peak_bytes() / 20 ? kWarning : kInfo,
        fmt::format("{} of weights are trained beside low-rank adapters of {}: they have gradients "
                    "of the same size{}",
                    size_text(adapted.weight_bytes), size_text(adapted.adapter_bytes),
                    cost.state_bytes == 0
                        ? ""
                        : fmt::format(" and {} of optimizer state", size_text(cost.state_bytes))));
    f.evidence = {
        {"weight_bytes", adapted.weight_bytes},      {"weights", adapted.weights.size()},
        {"adapter_bytes", adapted.adapter_bytes},    {"adapted_layers", adapted.layers},
        {"optimizer_state_bytes", cost.state_bytes}, {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(line_of(d, adapted));
    f.advice.push_back(
        {"freeze_weights",
         fmt::format("if only the adapters are meant to be trained, call requires_grad_(False) on "
                     "the other weights after the adapters are in place, and before the optimizer "
                     "is made (print the names of the parameters that still require a gradient): "
                     "saves {}",
                     size_text(cost.saved_bytes)),
         cost.saved_bytes});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
