// Activations are most of the peak.
#include <fmt/format.h>

#include <optional>
#include <utility>

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

// In float32, if that saves much of what a training run needs.
std::optional<Advice> halving_precision(const DeviceEvidence& d) {
  constexpr uint64_t kMuch = uint64_t{1} << 30;
  if (!d.categories.has_optimizer) return std::nullopt;
  std::optional<Advice> single = single_precision(d);
  const bool much =
      single && single->saves_bytes >= kMuch && single->saves_bytes >= d.peak_bytes() / 3;
  return much ? std::move(single) : std::nullopt;
}

}  // namespace

void find_activation_peak(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || fails_for_what_was_left(d)) continue;
    // Twice the memory is worth a note also where there is room: NumPy's default has 64 bits.
    const std::optional<Advice> single = d.has_room() ? halving_precision(d) : std::nullopt;
    if (d.has_room() && !single) continue;
    // What a validation computes is not kept for a backward pass.
    if (d.decisive_phase() != nullptr && d.categories.kept_without_backward.empty()) continue;
    const uint64_t activations = d.at_peak(Category::kActivation);
    if (activations < kWorthSaying || activations < d.peak_bytes() / 2) continue;
    Finding f = d.finding("activation_peak", d.is_tight() ? kWarning : kInfo,
                          fmt::format("activations are {} of the peak: {} of {}",
                                      percent_text(activations, d.peak_bytes()),
                                      size_text(activations), size_text(d.peak_bytes())));
    f.evidence = {{"activation_bytes", activations}, {"allocated_peak_bytes", d.peak_bytes()}};
    if (single) {
      f.advice.push_back(*single);
      out.push_back(std::move(f));
      continue;
    }
    add(f.advice, checkpoint_layers(d));
    add(f.advice, halve_batch(d, passes_wait_for_one_backward(d)));
    add(f.advice, mixed_precision(d));
    if (f.advice.empty()) f.advice.push_back(any_way_to_keep_less());
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
