// A limit set by the program rejected memory the card still had.
#include <fmt/format.h>

#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

void find_memory_fraction(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.ran_out() || d.limit.source != LimitSource::kFraction) continue;
    const FailedAllocation& failure = d.model->failures.back();
    // Raising the limit is the first thing to do where the card has as much again.
    const char* const severity = failure.device_free_bytes >= d.limit.bytes ? kError : kWarning;
    Finding f = d.finding(
        "memory_fraction", severity,
        fmt::format("a memory fraction limited the process while {} was still free on the card "
                    "(limit: {}{})",
                    size_text(failure.device_free_bytes), d.limit.at_least ? "at least " : "",
                    size_text(d.limit.bytes)));
    f.evidence = {{"limit_bytes", d.limit.bytes},
                  {"device_free_bytes", failure.device_free_bytes},
                  {"requested_bytes", failure.requested_bytes}};
    f.frames = d.process->names.stack_text(failure.stack);
    f.advice.push_back({"raise_limit",
                        "raise torch.cuda.set_per_process_memory_fraction (or "
                        "per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF)",
                        0});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
