#include "analysis/insight/outside_history.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "analysis/history/history_replay.h"

namespace tidemark {

namespace {

// The address of memory that has none, or whose handle equals another allocation's address: no GPU
// address is that high.
constexpr uint64_t kNoAddress = uint64_t{1} << 60;

struct Turn {
  int64_t time_ns = 0;
  uint32_t allocation = 0;
  bool born = false;
  int order = 0;  // among those of one instant
};

// Births and deaths by time. At the same instant deaths come first, except of allocations born at
// that instant.
template <typename Wanted>
std::vector<Turn> turns_of(const DriverModel& driver, int64_t device, const Wanted& wanted) {
  std::vector<Turn> turns;
  for (uint32_t i = 0; i < driver.allocations.size(); ++i) {
    const DriverAllocation& a = driver.allocations[i];
    if (a.device != device || !a.on_card() || a.size_bytes == 0 || !wanted(a)) continue;
    turns.push_back({a.birth_ns, i, true, 1});
    if (a.death_ns != INT64_MAX) {
      turns.push_back({a.death_ns, i, false, a.death_ns > a.birth_ns ? 0 : 2});
    }
  }
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
    if (a.time_ns != b.time_ns) return a.time_ns < b.time_ns;
    return a.order < b.order;
  });
  return turns;
}

// Gives each allocation a range that nothing alive overlaps.
class Places {
 public:
  uint64_t take(uint32_t allocation, uint64_t address, uint64_t size) {
    const auto behind = ends_.upper_bound(address);
    const bool free = behind == ends_.end() || behind->second >= address + size;
    if (!free || address == 0) {
      address = kNoAddress + next_;
      next_ += size;
    }
    ends_[address + size] = address;
    place_[allocation] = address;
    return address;
  }
  uint64_t leave(uint32_t allocation, uint64_t size) {
    const auto it = place_.find(allocation);
    const uint64_t address = it->second;
    ends_.erase(address + size);
    place_.erase(it);
    return address;
  }

 private:
  std::map<uint64_t, uint64_t> ends_;   // end -> begin
  std::map<uint32_t, uint64_t> place_;  // allocation -> begin
  uint64_t next_ = 0;
};

// Each allocation is a segment that one block fills.
template <typename Wanted>
AllocationHistory replay_driver(const DriverModel& driver, int64_t device, const Wanted& wanted) {
  HistoryReplay replay(device, {});
  Places places;
  for (const Turn& turn : turns_of(driver, device, wanted)) {
    const DriverAllocation& a = driver.allocations[turn.allocation];
    FrameworkEvent event{};
    event.time_ns = turn.time_ns;
    event.size_bytes = a.size_bytes;
    event.block_bytes = a.size_bytes;
    event.stream = a.stream;
    event.device = device;
    event.stack = a.stack;
    event.metadata = a.owner;
    event.address = turn.born ? places.take(turn.allocation, a.address, a.size_bytes)
                              : places.leave(turn.allocation, a.size_bytes);
    const std::array<FrameworkAction, 2> actions =
        turn.born ? std::array{FrameworkAction::kSegmentAlloc, FrameworkAction::kAlloc}
                  : std::array{FrameworkAction::kFreeCompleted, FrameworkAction::kSegmentFree};
    for (const FrameworkAction action : actions) {
      event.action = action;
      replay.apply(event, (a.flags & kDriverSeeded) != 0);
    }
  }
  return std::move(replay).finish();
}

}  // namespace

AllocationHistory history_outside_framework(const ProcessModel& process, int64_t device) {
  return replay_driver(process.driver, device, [&](const DriverAllocation& a) {
    return process.names.string(a.owner) != "torch";
  });
}

AllocationHistory history_of_driver(const DriverModel& driver, int64_t device) {
  return replay_driver(driver, device, [](const DriverAllocation&) { return true; });
}

}  // namespace tidemark
