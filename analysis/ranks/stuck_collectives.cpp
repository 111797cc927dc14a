// Collectives that some ranks of a communicator called and others never did.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "analysis/ranks/ranks.h"

namespace tidemark {

namespace {

// NCCL numbers collectives when it enqueues them. A call that waits for its peers before that has
// no number yet: it is the one after the last.
bool waits_unnumbered(const NcclOperation& op) {
  return op.group == 0 && op.kind == NcclKind::kCollective && op.duration_ns == 0;
}

// The calls that were enqueued, by start and thread. One that waited before that is in the trace a
// second time.
using CallId = std::pair<int64_t, uint64_t>;

std::set<CallId> enqueued_calls(const ProcessModel& process) {
  std::set<CallId> calls;
  for (const NcclOperation& op : process.nccl) {
    if (op.group != 0) calls.emplace(op.start_ns, op.thread);
  }
  return calls;
}

CollectiveCall call_of(const ProcessModel& process, const NcclOperation& op, uint64_t number) {
  return {number, op.start_ns, op.size_bytes, std::string(process.names.string(op.function))};
}

// Whether its kernel was left out and it probably ran: a rank that hangs goes on hanging.
bool ran_unrecorded(const ProcessModel& process, const NcclOperation& op) {
  constexpr int64_t kLongestRunNs = 10'000'000'000;
  const auto length = static_cast<int64_t>(std::min<uint64_t>(op.duration_ns, INT64_MAX / 4));
  return op.group != 0 && meets(process.unrecorded, op.start_ns, op.start_ns + length) &&
         process.last_ns - op.start_ns < kLongestRunNs;
}

// Collectives of a communicator run in the order of their numbers: one that ran shows that those
// before it did, too, even if the record of their kernels is missing.
void keep_waiting(CommunicatorCalls& calls) {
  constexpr size_t kFewEnough = 128;
  std::erase_if(calls.waiting, [&](const CollectiveCall& c) { return c.sequence < calls.ran; });
  std::stable_sort(calls.waiting.begin(), calls.waiting.end(),
                   [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  if (calls.waiting.size() <= kFewEnough) return;
  calls.waiting.erase(calls.waiting.begin() + kFewEnough / 2, calls.waiting.end() - kFewEnough / 2);
}

struct Member {
  int64_t rank = -1;
  const CommunicatorCalls* calls = nullptr;
};

std::optional<StuckCollective> judge(uint64_t id, const std::vector<Member>& members) {
  // The first number that some rank never came to; 0 if one never called any.
  uint64_t missing = UINT64_MAX;
  for (const Member& m : members) missing = std::min(missing, m.calls->next);
  if (std::all_of(members.begin(), members.end(),
                  [&](const Member& m) { return m.calls->next == missing; })) {
    return std::nullopt;
  }
  int64_t ran_until = INT64_MIN;  // what every rank came to
  for (const Member& m : members) ran_until = std::max(ran_until, m.calls->ran_until_ns);
  StuckCollective stuck;
  stuck.communicator = id;
  stuck.since_ns = INT64_MAX;
  for (const Member& m : members) {
    if (m.calls->next == missing) {
      stuck.absent.push_back(m.rank);
      continue;
    }
    // It ran, so every rank took part, and the trace of the other one just ends too early.
    if (m.calls->ran > missing) return std::nullopt;
    stuck.waiting.push_back(m.rank);
    // The first call from this number on: ranks enqueue further ones while they wait.
    const auto waits = std::find_if(m.calls->waiting.begin(), m.calls->waiting.end(),
                                    [&](const auto& call) { return call.sequence >= missing; });
    if (waits == m.calls->waiting.end()) continue;
    // It may have been enqueued while those before it were still running.
    const int64_t since = std::max(waits->start_ns, ran_until);
    if (since < stuck.since_ns) {
      stuck.since_ns = since;
      stuck.sequence = waits->sequence;
      stuck.size_bytes = waits->size_bytes;
      stuck.function = waits->function;
    }
  }
  for (const Member& m : members) {
    if (stuck.communicator_name.empty()) stuck.communicator_name = m.calls->name;
  }
  return stuck;
}

}  // namespace

std::vector<CommunicatorCalls> collective_calls(const ProcessModel& process) {
  std::map<uint64_t, CommunicatorCalls> all;
  for (const Communicator& c : process.communicators) {
    CommunicatorCalls& calls = all[c.id];
    if (calls.name.empty()) calls.name = process.names.string(c.name);
  }
  for (const NcclOperation& op : process.nccl) {
    if (op.kind == NcclKind::kPointToPoint || waits_unnumbered(op)) continue;
    CommunicatorCalls& calls = all[op.communicator];
    calls.next = std::max(calls.next, op.sequence + 1);
    if (op.gpu_start_ns == 0 && ran_unrecorded(process, op)) {
      calls.ran = std::max(calls.ran, op.sequence + 1);
    } else if (op.gpu_start_ns == 0) {
      calls.waiting.push_back(call_of(process, op, op.sequence));
    } else {
      calls.ran = std::max(calls.ran, op.sequence + 1);
      calls.ran_until_ns = std::max(
          calls.ran_until_ns, op.gpu_start_ns + static_cast<int64_t>(op.gpu_duration_ns));
    }
  }
  const std::set<CallId> enqueued = enqueued_calls(process);
  for (const NcclOperation& op : process.nccl) {
    if (!waits_unnumbered(op) || enqueued.contains({op.start_ns, op.thread})) continue;
    CommunicatorCalls& calls = all[op.communicator];
    calls.waiting.push_back(call_of(process, op, calls.next));
    ++calls.next;
  }
  std::vector<CommunicatorCalls> out;
  for (auto& [id, calls] : all) {
    calls.id = id;
    keep_waiting(calls);
    out.push_back(std::move(calls));
  }
  return out;
}

std::vector<StuckCollective> find_stuck_collectives(std::span<const RankDigest> ranks) {
  std::map<uint64_t, std::vector<Member>> members;
  for (const RankDigest& rank : ranks) {
    for (const CommunicatorCalls& calls : rank.calls) {
      members[calls.id].push_back({rank.rank, &calls});
    }
  }
  std::vector<StuckCollective> all;
  for (const auto& [id, of_communicator] : members) {
    if (auto stuck = judge(id, of_communicator); stuck) {
      std::sort(stuck->waiting.begin(), stuck->waiting.end());
      std::sort(stuck->absent.begin(), stuck->absent.end());
      all.push_back(std::move(*stuck));
    }
  }
  return all;
}

}  // namespace tidemark
