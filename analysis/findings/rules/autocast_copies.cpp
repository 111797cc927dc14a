// The 16-bit copies of weights that torch.autocast keeps beside the weights.
//
// Autocast casts a weight when an operation needs it, and keeps the copy until it ends, so that the
// next use of the weight finds it. In training, the graph keeps the copies as well. Without a
// backward pass nothing needs the weights in 32 bits.
#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/findings/advice.h"
#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{64} << 20;

struct Copies {
  uint64_t at_peak = 0;
  size_t blocks = 0;  // then
  std::unordered_map<uint32_t, uint64_t> by_stack;
};

Copies copies_at_peak(const DeviceEvidence& d) {
  Copies copies;
  const AllocationColumns& all = d.model->allocations;
  for (const uint32_t i : d.categories.weight_copies) {
    if (!all.alive_at(i, d.model->allocated_peak.event)) continue;
    copies.at_peak += all.block_bytes(i);
    copies.by_stack[all.stack(i)] += all.block_bytes(i);
    ++copies.blocks;
  }
  return copies;
}

// Without the copies, and with half of each weight that has some. None where weights are not known.
std::optional<Advice> load_in_16_bits(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  Rehearsal half(*d.model);
  std::unordered_set<uint64_t> copied;
  for (const uint32_t i : d.categories.weight_copies) {
    half.leave_out(all[i]);
    copied.insert(2 * all.asked_bytes(i));
  }
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (d.categories.of[i] != Category::kParameter || !copied.contains(all.asked_bytes(i))) {
      continue;
    }
    half.leave_out(all[i], 0.5);
    any = true;
  }
  const uint64_t saved = half.saved_bytes();
  if (!any || saved == 0) return std::nullopt;
  return Advice{"load_in_16_bits",
                fmt::format("for inference, load the model in 16 bits (model.to(torch.bfloat16)) "
                            "instead of autocast: no copies, and half of the weights: saves {}",
                            size_text(saved)),
                saved};
}

// Each copy only as long as its operation runs, which ends after it has allocated its result. A
// graph would keep the copies.
std::optional<Advice> without_cache(const DeviceEvidence& d) {
  if (d.at_peak(Category::kActivation) >= d.peak_bytes() / 20) return std::nullopt;
  const AllocationColumns& all = d.model->allocations;
  const std::vector<uint32_t>& rows = d.categories.weight_copies;
  Rehearsal rehearsal(*d.model);
  uint32_t used = kNever;  // when the copy's operation has its result
  uint32_t next = 0;       // the row of the copy made after this one
  for (size_t k = rows.size(); k-- > 0; next = rows[k]) {
    const uint32_t follows = rows[k] + 1;
    if (follows >= all.size()) continue;
    if (follows != next) used = all.birth(follows) + 1;
    if (used < all.release(rows[k])) rehearsal.leave_out_from(all[rows[k]], used);
  }
  const uint64_t saved = rehearsal.saved_bytes();
  if (saved < d.peak_bytes() / 20) return std::nullopt;
  return Advice{"no_autocast_cache",
                fmt::format("torch.autocast(..., cache_enabled=False): a copy lives only while "
                            "it is used, and is made for each use: saves at most {}",
                            size_text(saved)),
                saved};
}

}  // namespace

void find_autocast_copies(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.has_room()) continue;
    const Copies copies = copies_at_peak(d);
    if (copies.at_peak < kWorthSaying || copies.at_peak < d.peak_bytes() / 10) continue;
    const bool trains = d.categories.has_backward;
    Finding f = d.finding(
        "autocast_copies", !trains && d.is_tight() ? kWarning : kInfo,
        fmt::format(
            "autocast {}keeps 16-bit copies of the weights: {} of the {} peak{}",
            d.categories.copies_are_named ? "" : "probably ", size_text(copies.at_peak),
            size_text(d.peak_bytes()),
            trains ? "; they live until autocast ends and the backward pass has used them" : ""));
    f.evidence = {{"copies_bytes", copies.at_peak},
                  {"copies", copies.blocks},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(largest_stack(copies.by_stack));
    if (!trains) {
      add(f.advice, load_in_16_bits(d));
      add(f.advice, without_cache(d));
    }
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
