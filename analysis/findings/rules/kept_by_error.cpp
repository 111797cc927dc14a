// What a pass had computed when it ran out of memory is still there while the program goes on.
#include "analysis/findings/causes/kept_by_error.h"

#include <fmt/format.h>

#include <optional>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

std::string summary_of(const DeviceEvidence& d, const KeptByError& kept) {
  if (!kept.fails_again(d)) {
    return fmt::format("{} of a pass that ran out of memory was kept while the program went on",
                       size_text(kept.bytes));
  }
  const size_t steps = d.steps.before_event(kept.failure->event);
  return fmt::format(
      "out of memory while {} of an earlier pass was still held, in which a request for {} had "
      "failed{}",
      size_text(kept.at_later_failure_bytes), size_text(kept.failure->requested_bytes),
      steps == 0 ? "" : fmt::format(" after {}", counted(steps, "step")));
}

}  // namespace

void find_kept_by_error(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    const std::optional<KeptByError> kept = d.model == nullptr ? std::nullopt : kept_by_error(d);
    if (!kept) continue;
    Rehearsal freed(*d.model);
    uint64_t to_the_end = 0;
    for (const uint32_t row : kept->rows) {
      const Allocation a = d.model->allocations[row];
      freed.leave_out_from(a, kept->failure->event + 1);
      if (a.release == kNever) to_the_end += a.block_bytes;
    }
    const uint64_t saved = freed.saved_bytes();
    const bool again = kept->fails_again(d);
    // What is let go of later and did no harm meanwhile is nobody's business.
    if (!again && saved < d.peak_bytes() / 20 && to_the_end < kept->bytes / 2) continue;
    Finding f = d.finding("kept_by_error", again ? kError : kWarning, summary_of(d, *kept));
    f.evidence = {{"bytes", kept->bytes},
                  {"blocks", kept->rows.size()},
                  {"earlier_requested_bytes", kept->failure->requested_bytes}};
    const uint32_t stack = largest_stack(kept->by_stack);
    const uint32_t caller = d.roles->caller_of(stack);
    f.frames = d.process->names.stack_text(caller != 0 ? caller : stack);
    f.advice.push_back(
        {"drop_exception",
         fmt::format("do not store the exception, and do not try again inside the except block: "
                     "its traceback keeps the variables of all functions that it went through; "
                     "keep str(e), or call traceback.clear_frames(e.__traceback__): frees {} after "
                     "the error{}",
                     size_text(kept->bytes),
                     saved >= d.peak_bytes() / 20
                         ? fmt::format(" and saves {} at the peak", size_text(saved))
                         : ""),
         again ? kept->at_later_failure_bytes : saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
