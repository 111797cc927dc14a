// Graphs of past steps are still alive: the program keeps a tensor that references them.
#include <fmt/format.h>

#include "analysis/findings/growth.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

void find_retained_graph(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!grows_by_graphs(d)) continue;
    const auto per_step = static_cast<uint64_t>(d.steps.growth_bytes_per_step);
    const uint64_t full = full_at_step(d);
    std::string summary =
        fmt::format("activations of past steps stay alive: {} more with every step{}",
                    size_text(per_step), full_text(d));
    Finding f = d.finding("retained_graph", d.ran_out() ? kError : kWarning, std::move(summary));
    f.evidence = {{"growth_bytes_per_step", per_step},
                  {"steps", d.steps.count()},
                  {"stacks", d.steps.growing.size()}};
    if (full != 0) f.evidence.emplace_back("full_at_step", full);
    f.frames = d.process->names.stack_text(d.steps.growing.front().stack);
    const uint64_t saved = saved_by_letting_go(d, Keep::kNothing);
    f.advice.push_back({"detach",
                        fmt::format("keep loss.item() or loss.detach() instead of the loss, and "
                                    "avoid retain_graph: saves {}",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
