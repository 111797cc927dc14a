#include "analysis/insight/card/pinned.h"

#include <algorithm>
#include <map>

#include "analysis/load/trace_model.h"

namespace tidemark {

PinnedHistory::PinnedHistory(const ProcessModel& process) : process_(process) {
  std::vector<StepChange> changes;
  const std::vector<DriverAllocation>& all = process.driver.allocations;
  for (uint32_t i = 0; i < all.size(); ++i) {
    const DriverAllocation& a = all[i];
    if (a.kind != MemoryKind::kPinned) continue;
    rows_.push_back(i);
    changes.push_back({a.birth_ns, static_cast<int64_t>(a.size_bytes)});
    if (a.death_ns != INT64_MAX)
      changes.push_back({a.death_ns, -static_cast<int64_t>(a.size_bytes)});
  }
  pinned_ = sum_of_changes(std::move(changes));
  std::optional<uint64_t> in_use;
  for (const Counter& c : process.counters) {
    if (c.kind == CounterKind::kTorchPinnedInUse) in_use = c.value;  // recorded before the other
    if (c.kind == CounterKind::kTorchPinned) torch_.push_back({c.time_ns, c.value, in_use});
  }
  // PyTorch before 2.13 does not subtract all blocks that come back. Such a number was recorded by
  // earlier versions of tidemark, and no sample of it is right.
  const bool wrong = std::any_of(torch_.begin(), torch_.end(), [](const TorchPinned& sample) {
    return sample.in_use_bytes > sample.held_bytes;
  });
  if (wrong) {
    for (TorchPinned& sample : torch_) sample.in_use_bytes.reset();
  }
}

std::optional<TorchPinned> PinnedHistory::torch_at(int64_t time_ns) const {
  const auto after =
      std::partition_point(torch_.begin(), torch_.end(),
                           [&](const TorchPinned& sample) { return sample.time_ns <= time_ns; });
  if (after == torch_.begin()) return std::nullopt;
  return *std::prev(after);
}

std::vector<StackShare> PinnedHistory::stacks_at(int64_t time_ns, size_t limit) const {
  std::map<uint32_t, StackShare> sums;
  for (const uint32_t row : rows_) {
    const DriverAllocation& a = process_.driver.allocations[row];
    if (a.birth_ns > time_ns || a.death_ns <= time_ns) continue;
    sums[a.stack].bytes += a.size_bytes;
    ++sums[a.stack].count;
  }
  std::vector<StackShare> shares;
  for (auto& [stack, share] : sums) {
    share.frames = process_.names.stack_text(stack);
    shares.push_back(std::move(share));
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const StackShare& a, const StackShare& b) { return a.bytes > b.bytes; });
  if (shares.size() > limit) shares.resize(limit);
  return shares;
}

PinnedMemory pinned_memory(const ProcessModel& process, size_t most_stacks) {
  const PinnedHistory history(process);
  PinnedMemory pinned;
  const StepSeries& bytes = history.pinned();
  if (!bytes.empty()) {
    const auto most = std::max_element(bytes.value.begin(), bytes.value.end());
    const auto index = static_cast<size_t>(most - bytes.value.begin());
    pinned.driver_peak = {*most, bytes.time_ns[index], 0};
  }
  const auto held = std::max_element(
      history.torch().begin(), history.torch().end(),
      [](const TorchPinned& a, const TorchPinned& b) { return a.held_bytes < b.held_bytes; });
  if (held != history.torch().end()) pinned.torch = *held;
  pinned.stacks = history.stacks_at(pinned.driver_peak.time_ns, most_stacks);
  return pinned;
}

}  // namespace tidemark
