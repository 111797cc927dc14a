#include "analysis/insight/card/pool_cache.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "analysis/history/driver_history.h"

namespace tidemark {

namespace {

// Samples are taken ten times a second, and recorded when they differ: within this time before one,
// the pool may have been what it says already.
constexpr int64_t kSampleNs = 200'000'000;

// What all pools of the device reserve, as sampled.
StepSeries sampled_pools(const ProcessModel& process, int64_t device) {
  std::map<uint64_t, uint64_t> latest;
  std::vector<StepChange> changes;
  for (const Counter& c : process.counters) {
    if (c.device != device || c.kind != CounterKind::kPoolReserved) continue;
    uint64_t& value = latest[c.subject];
    changes.push_back({c.time_ns, static_cast<int64_t>(c.value - value)});
    value = c.value;
  }
  return sum_of_changes(std::move(changes));
}

// The allocations on the card that are, or are not, of a pool.
StepSeries allocated(const ProcessModel& process, int64_t device, bool of_pool) {
  std::vector<StepChange> changes;
  for (const DriverAllocation& a : process.driver.allocations) {
    const bool counts =
        a.device == device && a.on_card() && (a.kind == MemoryKind::kStreamOrdered) == of_pool;
    if (!counts) continue;
    changes.push_back({a.birth_ns, static_cast<int64_t>(a.size_bytes)});
    if (a.death_ns != INT64_MAX)
      changes.push_back({a.death_ns, -static_cast<int64_t>(a.size_bytes)});
  }
  return sum_of_changes(std::move(changes));
}

}  // namespace

uint64_t pool_cache_beyond_peak(const ProcessModel& process, int64_t device) {
  const auto known = process.driver.devices.find(device);
  const StepSeries pools = sampled_pools(process, device);
  if (known == process.driver.devices.end() || pools.empty()) return 0;
  const StepSeries contexts = DriverHistory(process.driver, device).contexts();
  const StepSeries in_pools = allocated(process, device, true);
  const StepSeries others = allocated(process, device, false);
  std::set<int64_t> instants(pools.time_ns.begin(), pools.time_ns.end());
  instants.insert(in_pools.time_ns.begin(), in_pools.time_ns.end());
  instants.insert(others.time_ns.begin(), others.time_ns.end());
  uint64_t most = 0;
  for (const int64_t t : instants) {
    // Pools end with the last context.
    const bool ended = !contexts.empty() && contexts.at(t) == 0;
    const uint64_t sampled = ended ? 0 : pools.lowest(t, t + kSampleNs);
    most = std::max(most, others.at(t) + std::max(sampled, in_pools.at(t)));
  }
  return most - std::min(most, known->second.card_peak.bytes);
}

}  // namespace tidemark
