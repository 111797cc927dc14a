// Activations are most of the peak.
#include <fmt/format.h>

#include "analysis/findings/advice.h"
#include "analysis/findings/causes/accumulations.h"
#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Of a run that did not get far enough to tell what each way would save.
Advice any_way_to_keep_less() {
  return {"keep_fewer_activations",
          "smaller batches or shorter sequences, torch.utils.checkpoint around repeated layers, or "
          "autocast keep fewer activations; what each would save cannot be told from this "
          "recording. Where nothing is trained, torch.inference_mode() keeps none",
          0};
}

}  // namespace

void find_activation_peak(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.has_room() || fails_for_what_was_left(d)) continue;
    // What a validation computes is not kept for a backward pass.
    if (d.decisive_phase() != nullptr && d.categories.kept_without_backward.empty()) continue;
    const uint64_t activations = d.at_peak(Category::kActivation);
    if (activations < kWorthSaying || activations < d.peak_bytes() / 2) continue;
    Finding f = d.finding("activation_peak", d.is_tight() ? kWarning : kInfo,
                          fmt::format("activations are {} of the peak: {} of {}",
                                      percent_text(activations, d.peak_bytes()),
                                      size_text(activations), size_text(d.peak_bytes())));
    f.evidence = {{"activation_bytes", activations}, {"allocated_peak_bytes", d.peak_bytes()}};
    add(f.advice, checkpoint_layers(d));
    add(f.advice, halve_batch(d, passes_wait_for_one_backward(d)));
    add(f.advice, mixed_precision(d));
    if (f.advice.empty()) f.advice.push_back(any_way_to_keep_less());
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
