#include "analysis/insight/pinned.h"

#include <algorithm>
#include <map>

#include "analysis/history/driver_history.h"
#include "analysis/load/trace_model.h"

namespace tidemark {

namespace {

Peak peak_of(const DriverModel& driver) {
  std::vector<StepChange> changes;
  for (const DriverAllocation& a : driver.allocations) {
    if (a.kind != MemoryKind::kPinned) continue;
    changes.push_back({a.birth_ns, static_cast<int64_t>(a.size_bytes)});
    if (a.death_ns != INT64_MAX)
      changes.push_back({a.death_ns, -static_cast<int64_t>(a.size_bytes)});
  }
  const StepSeries pinned = sum_of_changes(std::move(changes));
  if (pinned.empty()) return {};
  const auto most = std::max_element(pinned.value.begin(), pinned.value.end());
  return {*most, pinned.time_ns[static_cast<size_t>(most - pinned.value.begin())], 0};
}

std::vector<StackShare> stacks_at(const ProcessModel& process, int64_t time_ns, size_t limit) {
  std::map<uint32_t, StackShare> sums;
  for (const DriverAllocation& a : process.driver.allocations) {
    if (a.kind != MemoryKind::kPinned || a.birth_ns > time_ns || a.death_ns <= time_ns) continue;
    sums[a.stack].bytes += a.size_bytes;
    ++sums[a.stack].count;
  }
  std::vector<StackShare> shares;
  for (auto& [stack, share] : sums) {
    share.frames = process.names.stack_text(stack);
    shares.push_back(std::move(share));
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const StackShare& a, const StackShare& b) { return a.bytes > b.bytes; });
  if (shares.size() > limit) shares.resize(limit);
  return shares;
}

std::optional<TorchPinned> torch_pinned(const ProcessModel& process) {
  std::optional<TorchPinned> most;
  uint64_t in_use = 0;
  for (const Counter& c : process.counters) {
    if (c.kind == CounterKind::kTorchPinnedInUse) in_use = c.value;  // recorded before the other
    if (c.kind != CounterKind::kTorchPinned) continue;
    if (!most || c.value > most->held_bytes) most = {c.time_ns, c.value, in_use};
  }
  return most;
}

}  // namespace

PinnedMemory pinned_memory(const ProcessModel& process, size_t most_stacks) {
  PinnedMemory pinned;
  pinned.driver_peak = peak_of(process.driver);
  pinned.torch = torch_pinned(process);
  pinned.stacks = stacks_at(process, pinned.driver_peak.time_ns, most_stacks);
  return pinned;
}

}  // namespace tidemark
