// Memory grows from step to step.
#include <fmt/format.h>

#include "analysis/findings/growth.h"
#include "analysis/findings/rules.h"
#include "analysis/insight/outside_history.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

Finding creep(const DeviceEvidence& d, std::string_view whose) {
  const auto per_step = static_cast<uint64_t>(d.steps.growth_bytes_per_step);
  const uint64_t full = full_at_step(d);
  std::string summary = fmt::format("memory{} grows by {} per step", whose, size_text(per_step));
  if (full != 0) {
    summary += fmt::format("; at this rate the card is full at about step {}", grouped(full));
  }
  Finding f = d.finding("creep", d.ran_out() ? kError : kWarning, std::move(summary));
  f.evidence = {{"growth_bytes_per_step", per_step}, {"steps", d.steps.count()}};
  if (full != 0) f.evidence.emplace_back("full_at_step", full);
  if (!d.steps.growing.empty()) {
    const StackGrowth& most = d.steps.growing.front();
    f.frames = d.process->names.stack_text(most.stack);
    f.evidence.emplace_back("held_bytes", most.held_bytes);
    f.evidence.emplace_back("held_blocks", most.held_count);
  }
  const uint64_t saved = saved_by_letting_go(d);
  std::string text = fmt::format("free what {} keeps, or move it to host memory",
                                 f.frames.empty() ? "every step" : "the line above");
  if (saved != 0) text += fmt::format(": saves {} at the peak", size_text(saved));
  if (!d.categories.has_backward && !d.ran_out())
    text += " (a cache that is still being filled looks the same)";
  f.advice.push_back({"release_growth", std::move(text), saved});
  return f;
}

// Growth of driver memory outside the framework, over the same steps.
void find_creep_outside(const DeviceEvidence& d, std::vector<Finding>& out) {
  const AllocationHistory history = history_outside_framework(*d.process, d.device);
  if (history.event_count() == 0) return;
  DeviceEvidence outside;
  outside.process = d.process;
  outside.device = d.device;
  outside.total_bytes = d.total_bytes;
  outside.limit = {d.total_bytes, false, LimitSource::kCard};
  outside.model = &history;
  outside.roles = d.roles;
  if (d.steps.count() != 0) {
    outside.steps.source = d.steps.source;
    outside.steps.boundaries = d.steps.boundaries_in(*d.model, history);
    measure_steps(history, outside.steps);
  } else {
    outside.steps = find_steps(*d.process, history, *d.roles);
  }
  if (grows(outside)) {
    out.push_back(creep(outside, d.model != nullptr ? " outside PyTorch's allocator" : ""));
  }
}

}  // namespace

void find_creep(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (grows(d) && !grows_by_graphs(d)) out.push_back(creep(d, ""));
    find_creep_outside(d, out);
  }
}

}  // namespace tidemark
