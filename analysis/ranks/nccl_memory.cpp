// NCCL's memory by rank and communicator.
#include <algorithm>
#include <map>

#include "analysis/ranks/rank_digest.h"

namespace tidemark {

namespace {

// Finds the communicator that an allocation was for.
class CommunicatorClock {
 public:
  explicit CommunicatorClock(const ProcessModel& process) {
    for (const Communicator& c : process.communicators) made_.emplace_back(c.time_ns, c.id);
    std::sort(made_.begin(), made_.end());
    for (const NcclOperation& op : process.nccl) {
      calls_.push_back(
          {op.start_ns, op.start_ns + static_cast<int64_t>(op.duration_ns), op.communicator});
    }
    std::sort(calls_.begin(), calls_.end(),
              [](const Call& a, const Call& b) { return a.begin_ns < b.begin_ns; });
  }

  // 0: there is none.
  uint64_t at(int64_t time_ns) const {
    // Buffers are allocated at first use: a call in progress takes precedence over the communicator
    // created last.
    const auto call =
        std::upper_bound(calls_.begin(), calls_.end(), time_ns,
                         [](int64_t time, const Call& c) { return time < c.begin_ns; });
    if (call != calls_.begin() && std::prev(call)->end_ns >= time_ns) {
      return std::prev(call)->communicator;
    }
    if (made_.empty()) return 0;
    // NCCL reports a communicator while it is being created: earlier allocations belong to the
    // first one.
    const auto next = std::upper_bound(made_.begin(), made_.end(),
                                       std::pair<int64_t, uint64_t>(time_ns, UINT64_MAX));
    return next == made_.begin() ? next->second : std::prev(next)->second;
  }

 private:
  struct Call {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    uint64_t communicator = 0;
  };
  std::vector<std::pair<int64_t, uint64_t>> made_;
  std::vector<Call> calls_;
};

struct Level {
  uint64_t peak_bytes = 0;
  int64_t peak_ns = INT64_MIN;
};

// The greatest sum of allocations that are alive together.
Level level_of(const std::vector<const DriverAllocation*>& allocations) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const DriverAllocation* a : allocations) {
    changes.emplace_back(a->birth_ns, static_cast<int64_t>(a->size_bytes));
    if (a->death_ns != INT64_MAX) {
      changes.emplace_back(a->death_ns, -static_cast<int64_t>(a->size_bytes));
    }
  }
  std::sort(changes.begin(), changes.end());  // at one instant, frees come first
  Level level;
  int64_t now = 0;
  for (const auto& [time_ns, bytes] : changes) {
    now += bytes;
    if (now > static_cast<int64_t>(level.peak_bytes)) {
      level = {static_cast<uint64_t>(now), time_ns};
    }
  }
  return level;
}

std::vector<CommunicatorBytes> by_communicator(const ProcessModel& process,
                                               const std::vector<const DriverAllocation*>& alive) {
  const CommunicatorClock clock(process);
  std::map<uint64_t, CommunicatorBytes> sums;
  for (const DriverAllocation* a : alive) sums[clock.at(a->birth_ns)].bytes += a->size_bytes;
  for (const Communicator& c : process.communicators) {
    const auto it = sums.find(c.id);
    if (it == sums.end()) continue;
    it->second.name = process.names.string(c.name);
    it->second.ranks = c.ranks;
  }
  std::vector<CommunicatorBytes> all;
  for (auto& [id, share] : sums) {
    share.id = id;
    all.push_back(std::move(share));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return all;
}

}  // namespace

std::vector<NcclMemory> nccl_memory(const ProcessModel& process) {
  std::vector<NcclMemory> all;
  std::map<int64_t, std::vector<const DriverAllocation*>> card;
  std::map<int64_t, std::vector<const DriverAllocation*>> user;
  std::vector<const DriverAllocation*> host;
  for (const DriverAllocation& a : process.driver.allocations) {
    const std::string_view owner = process.names.string(a.owner);
    if (owner != "nccl" && owner != "nccl.user") continue;
    if (!a.on_card()) {
      const bool located = a.kind == MemoryKind::kPinned || (a.flags & kDriverHostLocated) != 0;
      if (located) host.push_back(&a);
    } else {
      (owner == "nccl" ? card : user)[a.device].push_back(&a);
    }
  }
  for (const auto& [device, allocations] : user) card.try_emplace(device);
  for (const auto& [device, allocations] : card) {
    const Level level = level_of(allocations);
    std::vector<const DriverAllocation*> alive;
    for (const DriverAllocation* a : allocations) {
      if (a->birth_ns <= level.peak_ns && a->death_ns > level.peak_ns) alive.push_back(a);
    }
    NcclMemory memory;
    memory.rank = process.info.rank;
    memory.device = device;
    memory.peak_bytes = level.peak_bytes;
    memory.allocations = alive.size();
    memory.user_bytes = level_of(user[device]).peak_bytes;
    memory.host_bytes = level_of(host).peak_bytes;
    memory.communicators = by_communicator(process, alive);
    all.push_back(std::move(memory));
  }
  return all;
}

}  // namespace tidemark
