// Many batches wait on the card for the steps that use them.
#include "analysis/insight/categories/queued_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kEnough = 4;  // batches, to hide the copies

// What the peak would be lower by if each block were made so many steps before it is freed.
uint64_t saved_by_short_queue(const DeviceEvidence& d, const std::vector<QueuedLine>& lines) {
  Rehearsal later(*d.model);
  for (const QueuedLine& line : lines) {
    for (const uint32_t i : line.rows) {
      Allocation a = d.model->allocations[i];
      const size_t step = d.steps.before_event(a.release);
      if (step <= kEnough || d.steps.boundaries[step - kEnough] <= a.birth) continue;
      a.release = d.steps.boundaries[step - kEnough];
      later.leave_out(a);
    }
  }
  return later.saved_bytes();
}

}  // namespace

void find_queued_inputs(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || !d.categories.has_backward) continue;
    const std::vector<QueuedLine> lines = lines_queued_ahead(*d.model, *d.roles, d.steps);
    uint64_t bytes = 0;
    size_t blocks = 0;
    for (const QueuedLine& line : lines) {
      bytes += line.peak_bytes;
      blocks += line.at_peak;
    }
    if (bytes == 0 || bytes < d.peak_bytes() / 5) continue;
    const uint64_t saved = saved_by_short_queue(d, lines);
    if (saved < d.peak_bytes() / 10) continue;
    const QueuedLine& most = lines.front();
    Finding f = d.finding(
        "queued_inputs", d.is_tight() ? kWarning : kInfo,
        fmt::format("{} are made up to {} steps before they are freed, as batches loaded ahead: {} "
                    "of the peak of {}",
                    counted(blocks, "block"), most.steps_ahead, size_text(bytes),
                    size_text(d.peak_bytes())));
    f.evidence = {{"blocks", blocks},
                  {"steps_ahead", most.steps_ahead},
                  {"bytes", bytes},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(most.stack);
    f.advice.push_back({"shorten_queue",
                        fmt::format("if these are batches, load fewer of them ahead: 2 to {} hide "
                                    "the copies: saves {} with {}",
                                    kEnough, size_text(saved), kEnough),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
