// A forward pass without a backward pass keeps its activations as if one followed.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/own_line.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/passes/end_of_use.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Activations by stack: of passes without a backward pass, and of others.
std::unordered_map<uint32_t, LineShare> shares_of(const DeviceEvidence& d) {
  std::unordered_map<uint32_t, LineShare> stacks;
  for (uint32_t i = 0; i < d.model->allocations.size(); ++i) {
    if (d.categories.of[i] != Category::kActivation) continue;
    stacks[d.model->allocations.stack(i)].others += d.model->allocations.block_bytes(i);
  }
  for (const uint32_t i : d.categories.kept_without_backward) {
    LineShare& share = stacks[d.model->allocations.stack(i)];
    const uint64_t bytes = d.model->allocations.block_bytes(i);
    share.own += bytes;
    share.others -= std::min(share.others, bytes);
  }
  return stacks;
}

}  // namespace

void find_eval_keeps_graph(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.categories.kept_without_backward.empty()) continue;
    Rehearsal without(*d.model);
    std::unordered_map<uint32_t, uint64_t> by_stack;
    uint64_t kept = 0;
    uint64_t at_peak = 0;
    for (const uint32_t i : d.categories.kept_without_backward) {
      const Allocation& a = d.model->allocations[i];
      without.leave_out_from(a, end_of_use(*d.model, i));
      kept += a.block_bytes;
      if (a.alive_at(d.model->allocated_peak.event)) at_peak += a.block_bytes;
      by_stack[a.stack] += a.block_bytes;
    }
    const uint64_t saved = without.saved_bytes();
    if (saved == 0 || saved < d.peak_bytes() / 20) continue;
    Finding f = d.finding("eval_keeps_graph", d.fails_for_kept_graph() ? kError : kWarning,
                          fmt::format("forward passes without a backward pass keep their "
                                      "activations: {} of the peak",
                                      size_text(at_peak)));
    f.evidence = {{"blocks", d.categories.kept_without_backward.size()},
                  {"bytes", kept},
                  {"peak_bytes", at_peak}};
    const Dictionary& names = d.process->names;
    f.frames = names.stack_text(own_line(names, shares_of(d), largest_stack(by_stack)));
    f.advice.push_back({"no_grad",
                        fmt::format("run these passes under torch.no_grad() or inference_mode(): "
                                    "saves at least {}",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
