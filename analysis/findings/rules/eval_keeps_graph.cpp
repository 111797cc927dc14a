// A forward pass without a backward pass keeps its activations as if one followed.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/stack_lines.h"
#include "analysis/passes/end_of_use.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Activations of a stack or through a frame: of passes without a backward pass, and of others.
struct Share {
  uint64_t kept = 0;
  uint64_t others = 0;

  bool is_own() const { return others < kept / 4; }
};

// The stack from the innermost line of the user's code on that hardly any other pass goes through:
// training and validation share the model's lines. The whole stack if there is none.
uint32_t own_line(const DeviceEvidence& d, uint32_t stack) {
  const Dictionary& names = d.process->names;
  std::unordered_map<uint32_t, Share> stacks;
  for (uint32_t i = 0; i < d.model->allocations.size(); ++i) {
    if (d.categories.of[i] != Category::kActivation) continue;
    stacks[d.model->allocations.stack(i)].others += d.model->allocations.block_bytes(i);
  }
  for (const uint32_t i : d.categories.kept_without_backward) {
    Share& share = stacks[d.model->allocations.stack(i)];
    const uint64_t bytes = d.model->allocations.block_bytes(i);
    share.kept += bytes;
    share.others -= std::min(share.others, bytes);
  }
  std::unordered_map<uint32_t, Share> frames;
  for (const auto& [id, share] : stacks) {
    for (const uint32_t frame : names.frames_of(id)) {
      frames[frame].kept += share.kept;
      frames[frame].others += share.others;
    }
  }
  for (uint32_t id = stack; id != 0; id = names.stack(id).parent) {
    if (!frames[names.stack(id).frame].is_own()) continue;
    const std::string line = headline_of(names.stack_text(id));
    if (line != headline_of(names.stack_text(names.stack(id).parent))) return id;  // of the user
  }
  return stack;
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
    Finding f = d.finding("eval_keeps_graph", kWarning,
                          fmt::format("forward passes without a backward pass keep their "
                                      "activations: {} of the peak",
                                      size_text(at_peak)));
    f.evidence = {{"blocks", d.categories.kept_without_backward.size()},
                  {"bytes", kept},
                  {"peak_bytes", at_peak}};
    f.frames = d.process->names.stack_text(own_line(d, largest_stack(by_stack)));
    f.advice.push_back({"no_grad",
                        fmt::format("run validation under torch.no_grad() or inference_mode(): "
                                    "saves at least {}",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
