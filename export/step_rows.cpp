#include "export/step_rows.h"

#include <algorithm>

#include "export/counter_samples.h"

namespace tidemark {

namespace {

// Cuts off what is outside the range.
void cut(StepRow& step, const AllocationHistory& model, const EventRange& events,
         const TimeRange& range) {
  step.begin_ns = std::max(step.begin_ns, range.begin_ns);
  step.end_ns = std::min(step.end_ns, range.end_ns);
  const uint32_t first = std::max(step.begin_event, events.first);
  const uint32_t end = std::max(first, std::min(step.end_event, events.end));
  if (first == step.begin_event && end == step.end_event) return;
  TotalsCursor cursor(model, first);
  uint64_t low = UINT64_MAX;
  uint64_t high = 0;
  const auto include = [&] {
    low = std::min(low, cursor.totals().allocated);
    high = std::max(high, cursor.totals().allocated);
  };
  if (first != step.begin_event || first == end) include();  // the level at the beginning
  for (uint32_t event = first; event < end; ++event) {
    cursor.apply(event);
    include();
  }
  step.begin_event = first;
  step.end_event = end;
  step.levels.low_bytes = low;
  step.levels.high_bytes = high;
}

}  // namespace

std::vector<StepRow> steps_in(const Steps& steps, const AllocationHistory& model,
                              const TimeRange& range) {
  const EventRange events = events_in(model, range);
  std::vector<StepRow> rows;
  for (uint32_t i = 0; i < steps.count(); ++i) {
    StepRow step;
    step.number = steps.number(i);
    step.begin_event = steps.boundaries[i];
    step.end_event = steps.boundaries[i + 1];
    step.levels = steps.levels[i];
    step.begin_ns = model.time_ns[step.begin_event];
    // The last step may end with the history.
    const bool goes_on = step.end_event < model.event_count();
    step.end_ns = model.time_ns[std::min(step.end_event, model.event_count() - 1)];
    const bool over = goes_on && step.end_ns == range.begin_ns && step.begin_ns < step.end_ns;
    if (over || !range.overlaps(step.begin_ns, step.end_ns)) continue;
    cut(step, model, events, range);
    rows.push_back(step);
  }
  return rows;
}

}  // namespace tidemark
