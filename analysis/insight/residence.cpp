#include "analysis/insight/residence.h"

#include <algorithm>

#include "analysis/history/memory_state.h"
#include "analysis/load/trace_model.h"

namespace tidemark {

namespace {

struct SegmentLife {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int64_t birth_ns = 0;
  int64_t death_ns = INT64_MAX;
};

std::vector<SegmentLife> segment_lives(const AllocationHistory& history) {
  std::vector<SegmentLife> lives;
  std::map<uint64_t, size_t> open;
  for (const SegmentChange& change : history.segment_changes) {
    if (change.expandable) continue;
    if (change.grows) {
      open[change.address] = lives.size();
      lives.push_back({change.address, change.size_bytes, change.time_ns, INT64_MAX});
    } else if (const auto it = open.find(change.address); it != open.end()) {
      lives[it->second].death_ns = change.time_ns;
      open.erase(it);
    }
  }
  return lives;
}

uint64_t overlap(uint64_t begin, uint64_t end, uint64_t other_begin, uint64_t other_end) {
  const uint64_t from = std::max(begin, other_begin);
  const uint64_t to = std::min(end, other_end);
  return to > from ? to - from : 0;
}

}  // namespace

Residence::Residence(const ProcessModel& process, int64_t device)
    : process_(process), device_(device) {
  const AllocationHistory* const history = process.framework_on(device);
  if (history == nullptr || process.driver.mappings.empty()) return;
  std::map<uint64_t, std::vector<const DriverMapping*>> by_address;
  for (const DriverMapping& m : process.driver.mappings) by_address[m.address].push_back(&m);
  std::vector<StepChange> asleep;
  std::map<uint32_t, std::vector<StepChange>> inside;
  const auto add_life = [](std::vector<StepChange>& steps, uint64_t bytes, int64_t from_ns,
                           int64_t to_ns) {
    steps.push_back({from_ns, static_cast<int64_t>(bytes)});
    if (to_ns != INT64_MAX) steps.push_back({to_ns, -static_cast<int64_t>(bytes)});
  };
  for (const SegmentLife& segment : segment_lives(*history)) {
    const auto found = by_address.find(segment.address);
    if (found == by_address.end()) continue;
    // Mapped, asleep, mapped again: one mapping after the other, in order of time.
    int64_t until_ns = INT64_MAX;  // where the mapping before ended
    uint64_t mapped = 0;
    for (const DriverMapping* m : found->second) {
      if (m->birth_ns >= segment.death_ns || m->death_ns <= segment.birth_ns) continue;
      const uint64_t bytes = std::min(m->size_bytes, segment.size_bytes);
      if (until_ns < m->birth_ns) {
        naps_.push_back({segment.address, segment.address + mapped, until_ns, m->birth_ns});
      }
      mapped = bytes;
      until_ns = m->death_ns;
      const DriverAllocation& memory = process.driver.allocations[m->allocation];
      add_life(inside[memory.owner], bytes, std::max(m->birth_ns, segment.birth_ns),
               std::min(m->death_ns, segment.death_ns));
    }
    if (until_ns < segment.death_ns && mapped != 0) {
      naps_.push_back({segment.address, segment.address + mapped, until_ns, segment.death_ns});
    }
  }
  for (const Nap& nap : naps_) add_life(asleep, nap.end - nap.begin, nap.from_ns, nap.to_ns);
  asleep_ = sum_of_changes(std::move(asleep));
  for (auto& [owner, steps] : inside) inside_[owner] = sum_of_changes(std::move(steps));
}

uint64_t Residence::asleep_in_use(int64_t time_ns) const {
  const AllocationHistory* const history = process_.framework_on(device_);
  uint32_t event = 0;
  if (asleep_.at(time_ns) == 0 || history == nullptr || !history->event_at(time_ns, event)) {
    return 0;
  }
  const MemoryState state = state_after(*history, event);
  uint64_t bytes = 0;
  for (const Nap& nap : naps_) {
    if (nap.from_ns > time_ns || nap.to_ns <= time_ns) continue;
    for (const uint32_t row : state.live) {
      const Allocation a = history->allocations[row];
      if (a.release <= event) continue;  // freed, but another stream still uses it
      bytes += overlap(nap.begin, nap.end, a.address, a.address + a.block_bytes);
    }
  }
  return bytes;
}

}  // namespace tidemark
