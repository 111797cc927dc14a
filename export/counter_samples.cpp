#include "export/counter_samples.h"

#include <algorithm>

#include "analysis/insight/card/pinned.h"

namespace tidemark {

std::vector<Counter> trusted_counters(const ProcessModel& process) {
  std::vector<Counter> counters = process.counters;
  const PinnedHistory pinned(process);
  const bool wrong = std::any_of(pinned.torch().begin(), pinned.torch().end(),
                                 [](const TorchPinned& sample) { return !sample.in_use_bytes; });
  if (wrong) {
    std::erase_if(counters,
                  [](const Counter& c) { return c.kind == CounterKind::kTorchPinnedInUse; });
  }
  return counters;
}

EventRange events_in(const AllocationHistory& model, const TimeRange& range) {
  const uint32_t end = model.first_event_not([&](int64_t t) { return t <= range.end_ns; });
  if (end < model.seed_events) return {model.seed_events, model.seed_events};
  return {model.first_event_not([&](int64_t t) { return t < range.begin_ns; }), end};
}

void SampleThinner::sort_batch() {
  std::sort(batch_.begin(), batch_.end(),
            [](const Entry& a, const Entry& b) { return a.order < b.order; });
}

}  // namespace tidemark
