#include "viewer/model/driver_lane.h"

#include <algorithm>
#include <map>
#include <vector>

#include "analysis/framework_replay.h"

namespace tidemark::view {

namespace {

// Where memory without an address of its own (or whose handle looks like another's address) is
// shown: no GPU address is that high.
constexpr uint64_t kNoAddress = uint64_t{1} << 60;

struct Turn {
  int64_t time_ns = 0;
  uint32_t allocation = 0;
  bool born = false;
  int order = 0;  // among those of one instant
};

// Births and deaths by time; what dies makes room before what is born at the same instant, unless it
// was born there itself.
std::vector<Turn> turns_of(const DriverModel& driver, int64_t device) {
  std::vector<Turn> turns;
  for (uint32_t i = 0; i < driver.allocations.size(); ++i) {
    const DriverAllocation& a = driver.allocations[i];
    if (a.device != device || !a.on_card() || a.size_bytes == 0) continue;
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
  // 0: it was never born.
  uint64_t leave(uint32_t allocation, uint64_t size) {
    const auto it = place_.find(allocation);
    if (it == place_.end()) return 0;
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

}  // namespace

FrameworkModel driver_as_framework(const DriverModel& driver, int64_t device) {
  FrameworkReplay replay(device, {});
  Places places;
  for (const Turn& turn : turns_of(driver, device)) {
    const DriverAllocation& a = driver.allocations[turn.allocation];
    FrameworkEvent e{};
    e.time_ns = turn.time_ns;
    e.size_bytes = a.size_bytes;
    e.block_bytes = a.size_bytes;
    e.stream = a.stream;
    e.device = device;
    e.stack = a.stack;
    e.metadata = a.owner;
    e.address = turn.born ? places.take(turn.allocation, a.address, a.size_bytes)
                          : places.leave(turn.allocation, a.size_bytes);
    if (e.address == 0) continue;
    const auto put = [&](FrameworkAction action) {
      e.action = action;
      replay.apply(e);
    };
    if (turn.born) {
      put(FrameworkAction::kSegmentAlloc);
      put(FrameworkAction::kAlloc);
    } else {
      put(FrameworkAction::kFreeRequested);
      put(FrameworkAction::kFreeCompleted);
      put(FrameworkAction::kSegmentFree);
    }
  }
  return std::move(replay).finish();
}

}  // namespace tidemark::view
