// CUDA graphs and other private pools each keep memory that cannot be used elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/findings/advice.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

struct PoolBytes {
  uint64_t reserved = 0;
  uint64_t free = 0;
  uint64_t largest = 0;  // segment
  uint32_t stack = 0;    // of that segment
};

// What is freed when the program ends was in use until then: the last allocation is the last
// instant that counts.
uint32_t last_birth(const AllocationHistory& model) {
  uint32_t event = model.event_count() - 1;
  while (event > 0 && model.change[event] != Change::kBirth) --event;
  return event;
}

// The state at the end has each segment's pool in every version; events have it from 2.12 on.
std::map<uint64_t, uint32_t> pools_by_address(const DeviceEvidence& d) {
  std::map<uint64_t, uint32_t> pool_at;
  for (const SegmentState& s : d.process->segment_states) {
    if (s.device == d.device) pool_at[s.address] = s.pool;
  }
  return pool_at;
}

std::map<uint32_t, PoolBytes> private_pools(const DeviceEvidence& d,
                                            const std::map<uint64_t, uint32_t>& pool_at) {
  std::map<uint32_t, PoolBytes> pools;
  const MemoryState state = state_after(*d.model, last_birth(*d.model));
  std::vector<uint32_t> pool_of(state.segments.size());
  for (size_t i = 0; i < state.segments.size(); ++i) {
    const auto known = pool_at.find(state.segments[i].address);
    pool_of[i] = known != pool_at.end() ? known->second
                                        : d.model->segment_changes[state.segments[i].change].pool;
    if (pool_of[i] == 0) continue;
    PoolBytes& pool = pools[pool_of[i]];
    pool.reserved += state.segments[i].size_bytes;
    const uint32_t stack = d.model->segment_changes[state.segments[i].change].stack;
    if (stack == 0 || state.segments[i].size_bytes <= pool.largest) continue;
    pool.largest = state.segments[i].size_bytes;
    pool.stack = stack;
  }
  for (const Hole& hole : state.holes) {
    if (pool_of[hole.segment] != 0) pools[pool_of[hole.segment]].free += hole.size_bytes;
  }
  return pools;
}

constexpr uint32_t kShared = UINT32_MAX;  // no pool of the recording: none ends before the run

// What is saved by one pool in place of all private ones.
uint64_t saved_by_sharing(const DeviceEvidence& d, size_t devices) {
  const auto share = [](uint32_t, RequestedBlock& request) {
    if (request.pool != 0) request.pool = kShared;
    return true;
  };
  return saved_by_change(d, devices, share).value_or(0);
}

// The same if the graph that needs most is captured first: what others free again fits into what it
// has reserved, and only what they keep is added.
uint64_t saved_by_largest_first(const DeviceEvidence& d, size_t devices, uint32_t largest) {
  const auto share = [&](uint32_t allocation, RequestedBlock& request) {
    if (request.pool == 0) return true;
    const bool kept = allocation != kNever && d.model->allocations.release(allocation) == kNever;
    const bool stays = request.pool == largest || kept;
    request.pool = kShared;
    return stays;
  };
  return saved_by_change(d, devices, share).value_or(0);
}

}  // namespace

void find_graph_private_pool(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.model->event_count() == 0) continue;
    const auto pools = private_pools(d, pools_by_address(d));
    uint64_t reserved = 0;
    uint64_t idle = 0;
    PoolBytes named;
    uint32_t largest = 0;
    uint64_t most = 0;
    for (const auto& [pool, bytes] : pools) {
      if (bytes.largest > named.largest) named = bytes;
      if (bytes.reserved > most) largest = pool;
      most = std::max(most, bytes.reserved);
      reserved += bytes.reserved;
      idle += bytes.free;
    }
    // One pool has nothing to share, and its graphs use what is free in it whenever they run.
    if (pools.size() < 2) continue;
    const uint64_t peak = d.model->reserved_peak.bytes;
    const uint64_t saved = saved_by_sharing(d, evidence.devices.size());
    const bool matters = saved != 0 && saved >= peak / 10;
    Finding f = d.finding(
        "graph_private_pool", matters ? kWarning : kInfo,
        fmt::format(
            "{} reserved in {} at the end, of which {} is idle between replays, and not shared",
            size_text(reserved), counted(pools.size(), "private pool"), size_text(idle)));
    f.frames = d.process->names.stack_text(named.stack);
    f.evidence = {{"pools", pools.size()}, {"reserved_bytes", reserved}, {"idle_bytes", idle}};
    if (saved != 0) {
      const uint64_t sorted = saved_by_largest_first(d, evidence.devices.size(), largest);
      const std::string more =
          sorted <= saved + peak / 20
              ? ""
              : fmt::format(
                    ", and about {} less if the largest is captured first: the others "
                    "then use what it has reserved",
                    size_text(sorted));
      f.advice.push_back(
          {"share_pool",
           fmt::format("capture graphs that never run at the same time into one pool "
                       "(torch.cuda.graph_pool_handle()): {} less is reserved in a replay of this "
                       "run's requests{}",
                       size_text(saved), more),
           saved});
    }
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
