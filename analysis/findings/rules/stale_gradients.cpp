// Gradients of the step before that live through a forward pass, because the program clears them
// after it, right before the backward pass makes new ones.
#include <fmt/format.h>

#include <vector>

#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Of one forward pass, from its first allocation on.
struct Stale {
  std::vector<uint32_t> rows;
  uint64_t bytes = 0;
  uint64_t made_bytes = 0;  // gradients that the backward pass makes
};

// The passes of a history, from the first to the last. Only gradients that are alive are looked at
// again.
class StaleSearch {
 public:
  explicit StaleSearch(const DeviceEvidence& d) : d_(d), all_(d.model->allocations) {}

  Stale next(const BackwardPass& pass) {
    Stale stale;
    for (; next_ < all_.size() && all_.birth(next_) <= pass.last; ++next_) {
      if (d_.categories.of[next_] == Category::kGradient) alive_.push_back(next_);
    }
    std::erase_if(alive_, [&](uint32_t i) { return all_.release(i) <= pass.forward_first; });
    for (const uint32_t i : alive_) {
      if (all_.birth(i) >= pass.first) stale.made_bytes += all_.block_bytes(i);
      const bool older = all_.seeded(i) || all_.birth(i) < pass.forward_first;
      if (!older || all_.release(i) >= pass.first) continue;
      stale.rows.push_back(i);
      stale.bytes += all_.block_bytes(i);
    }
    return stale;
  }

 private:
  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  std::vector<uint32_t> alive_;  // gradients
  uint32_t next_ = 0;            // row
};

}  // namespace

void find_stale_gradients(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.has_room()) continue;
    Rehearsal without(*d.model);
    uint64_t bytes = 0;  // at the peak
    StaleSearch search(d);
    for (const BackwardPass& pass : d.backward_passes) {
      const Stale stale = search.next(pass);
      if (2 * stale.bytes < stale.made_bytes || stale.made_bytes == 0) continue;
      for (const uint32_t i : stale.rows) {
        without.leave_out_from(d.model->allocations[i], pass.forward_first);
        if (d.model->allocations.alive_at(i, d.model->allocated_peak.event)) {
          bytes += d.model->allocations.block_bytes(i);
        }
      }
    }
    const uint64_t saved = without.saved_bytes();
    if (bytes == 0 || saved < d.peak_bytes() / 20) continue;
    Finding f = d.finding("stale_gradients", d.is_tight() ? kWarning : kInfo,
                          fmt::format("{} of the {} peak are gradients of the step before, which "
                                      "are freed only after the forward pass",
                                      size_text(bytes), size_text(d.peak_bytes())));
    f.evidence = {{"gradient_bytes", bytes}, {"allocated_peak_bytes", d.peak_bytes()}};
    f.advice.push_back({"clear_gradients_early",
                        fmt::format("call optimizer.zero_grad() right after optimizer.step(), or "
                                    "before the forward pass: saves {}",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
