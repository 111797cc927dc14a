#include "analysis/outside_history.h"

#include <algorithm>
#include <array>

#include "analysis/framework_replay.h"

namespace tidemark {

namespace {

struct Edge {
  int64_t time_ns = 0;
  uint32_t allocation = 0;
  bool birth = false;
};

// In order of time; at one instant deaths first, so that no peak is made of what only followed.
std::vector<Edge> edges_of(const ProcessModel& process, int64_t device) {
  std::vector<Edge> edges;
  const std::vector<DriverAllocation>& allocations = process.driver.allocations;
  for (uint32_t i = 0; i < allocations.size(); ++i) {
    const DriverAllocation& a = allocations[i];
    if (a.device != device || !a.on_card() || process.names.string(a.owner) == "torch") continue;
    edges.push_back({a.birth_ns, i, true});
    if (a.death_ns != INT64_MAX) edges.push_back({a.death_ns, i, false});
  }
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.birth < b.birth;
  });
  return edges;
}

}  // namespace

FrameworkModel history_outside_framework(const ProcessModel& process, int64_t device) {
  FrameworkReplay replay(device, {});
  std::vector<uint64_t> places(process.driver.allocations.size());
  uint64_t next = 512;
  for (const Edge& edge : edges_of(process, device)) {
    const DriverAllocation& a = process.driver.allocations[edge.allocation];
    uint64_t& place = places[edge.allocation];
    if (edge.birth) {
      place = next;
      next += a.size_bytes + 512;  // apart, so that none joins its neighbour
    }
    FrameworkEvent event{};
    event.time_ns = edge.time_ns;
    event.address = place;
    event.size_bytes = a.size_bytes;
    event.block_bytes = a.size_bytes;
    event.stack = a.stack;
    const std::array<FrameworkAction, 2> actions =
        edge.birth ? std::array{FrameworkAction::kSegmentAlloc, FrameworkAction::kAlloc}
                   : std::array{FrameworkAction::kFreeCompleted, FrameworkAction::kSegmentFree};
    for (const FrameworkAction action : actions) {
      event.action = action;
      replay.apply(event);
    }
  }
  return std::move(replay).finish();
}

}  // namespace tidemark
