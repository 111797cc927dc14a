// The curves of one device as samples: every change of every counter, or thinned out.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "export/export_input.h"

namespace tidemark {

struct FrameworkCounter {
  std::string_view name;
  uint64_t MemoryTotals::*value;
};

// One entry per curve of the framework's allocator.
inline constexpr std::array<FrameworkCounter, 3> kFrameworkCounters = {{
    {"allocated", &MemoryTotals::allocated},
    {"requested", &MemoryTotals::requested},
    {"reserved", &MemoryTotals::reserved},
}};

// The sampled counters of a process by time, without those that the report withholds as wrong.
std::vector<Counter> trusted_counters(const ProcessModel& process);

struct CounterSample {
  int64_t time_ns = 0;
  uint64_t value = 0;
  uint32_t counter = 0;  // index in kFrameworkCounters
};

// Walks through the totals of a model, event by event.
class TotalsCursor {
 public:
  // Starts with the totals after all events before `first`.
  TotalsCursor(const AllocationHistory& model, uint32_t first) : model_(model) {
    if (first != 0) totals_ = model.totals_after(first - 1);
  }
  void apply(uint32_t event) { model_.apply(event, totals_); }
  const MemoryTotals& totals() const { return totals_; }

 private:
  const AllocationHistory& model_;
  MemoryTotals totals_;
};

// A range of time as event numbers of one model. What is older than the history is there before it,
// too: a range that ends before the first event begins with it.
struct EventRange {
  uint32_t first = 0;
  uint32_t end = 0;

  bool overlaps(uint32_t birth, uint32_t death) const { return birth < end && death >= first; }
};
EventRange events_in(const AllocationHistory& model, const TimeRange& range);

// Called with every event of a walk over millions: releases file pages now and then, so that a
// trace takes no more memory to export than to load.
inline void release_behind(const AllocationHistory& model, uint32_t event) {
  constexpr uint32_t kEventsBetween = 1 << 19;
  if (event % kEventsBetween == 0) model.release_pages();
}

// Calls use(CounterSample) for each change inside the range. When the range begins inside the
// history, every counter gets a sample at its beginning.
template <typename Use>
void for_each_sample(const AllocationHistory& model, const TimeRange& range, Use&& use) {
  const auto [first, end] = events_in(model, range);
  TotalsCursor cursor(model, first);
  MemoryTotals told = cursor.totals();
  if (first != 0) {
    for (uint32_t c = 0; c < kFrameworkCounters.size(); ++c) {
      use(CounterSample{range.begin_ns, told.*kFrameworkCounters[c].value, c});
    }
  }
  for (uint32_t event = first; event < end; ++event) {
    release_behind(model, event);
    cursor.apply(event);
    for (uint32_t c = 0; c < kFrameworkCounters.size(); ++c) {
      const uint64_t value = cursor.totals().*kFrameworkCounters[c].value;
      uint64_t& last = told.*kFrameworkCounters[c].value;
      if (value == last) continue;
      last = value;
      use(CounterSample{model.time_ns[event], value, c});
    }
  }
}

// Keeps the minimum, the maximum and the last value of each counter in each stretch of time, with
// their own times: no curve loses an extremum, and every stretch ends on the true value.
class SampleThinner {
 public:
  SampleThinner(int64_t start_ns, int64_t width_ns) : start_ns_(start_ns), width_ns_(width_ns) {}

  static constexpr uint32_t kKeptPerStretch = 3;

  // Samples must come in time order; those kept go to use(CounterSample) in the same order.
  template <typename Use>
  void add(const CounterSample& sample, Use&& use) {
    const auto stretch =
        static_cast<uint64_t>(sample.time_ns - start_ns_) / static_cast<uint64_t>(width_ns_);
    if (stretch != stretch_) flush(use);
    stretch_ = stretch;
    Kept& kept = kept_[sample.counter];
    const Entry entry{sample, order_++};
    if (!kept.any) {
      kept = {entry, entry, entry, true};
      return;
    }
    if (sample.value < kept.least.sample.value) kept.least = entry;
    if (sample.value > kept.greatest.sample.value) kept.greatest = entry;
    kept.last = entry;
  }

  template <typename Use>
  void flush(Use&& use) {
    batch_.clear();
    for (Kept& kept : kept_) {
      if (!kept.any) continue;
      batch_.insert(batch_.end(), {kept.least, kept.greatest, kept.last});
      kept.any = false;
    }
    sort_batch();
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (i == 0 || batch_[i].order != batch_[i - 1].order) use(batch_[i].sample);
    }
  }

 private:
  struct Entry {
    CounterSample sample;
    uint64_t order = 0;
  };
  struct Kept {
    Entry least, greatest, last;
    bool any = false;
  };
  void sort_batch();

  int64_t start_ns_;
  int64_t width_ns_;
  uint64_t stretch_ = 0;
  uint64_t order_ = 0;
  std::array<Kept, kFrameworkCounters.size()> kept_{};
  std::vector<Entry> batch_;
};

}  // namespace tidemark
