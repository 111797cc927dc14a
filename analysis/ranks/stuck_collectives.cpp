// Collectives that some ranks of a communicator called and others never did.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "analysis/ranks/ranks.h"

namespace tidemark {

namespace {

struct LastCall {
  const ProcessModel* process = nullptr;
  std::optional<uint64_t> sequence;  // of its last collective; none: it never called one
  NcclOperation operation{};
  uint32_t name = 0;  // string, of the communicator
};

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

void add_process(const ProcessModel& process, std::map<uint64_t, std::vector<LastCall>>& all) {
  std::map<uint64_t, LastCall> last;
  for (const Communicator& c : process.communicators) {
    LastCall& call = last[c.id];
    call.process = &process;
    if (call.name == 0) call.name = c.name;
  }
  for (const NcclOperation& op : process.nccl) {
    if (op.kind == NcclKind::kPointToPoint || waits_unnumbered(op)) continue;
    LastCall& call = last[op.communicator];
    call.process = &process;
    if (!call.sequence || op.sequence >= *call.sequence) {
      call.sequence = op.sequence;
      call.operation = op;
    }
  }
  const std::set<CallId> enqueued = enqueued_calls(process);
  for (const NcclOperation& op : process.nccl) {
    if (!waits_unnumbered(op) || enqueued.contains({op.start_ns, op.thread})) continue;
    LastCall& call = last[op.communicator];
    call.process = &process;
    const uint64_t next = call.sequence ? *call.sequence + 1 : 0;
    call.operation = op;
    call.operation.sequence = next;
    call.sequence = next;
  }
  for (auto& [id, call] : last) all[id].push_back(std::move(call));
}

std::optional<StuckCollective> judge(uint64_t id, const std::vector<LastCall>& calls) {
  std::optional<uint64_t> furthest;
  for (const LastCall& call : calls) {
    if (call.sequence) furthest = std::max(furthest.value_or(0), *call.sequence);
  }
  if (!furthest) return std::nullopt;
  StuckCollective stuck;
  stuck.communicator = id;
  stuck.sequence = *furthest;
  stuck.since_ns = INT64_MAX;
  for (const LastCall& call : calls) {
    const int64_t rank = call.process->info.rank;
    if (call.sequence != furthest) {
      stuck.absent.push_back(rank);
      continue;
    }
    // It ran, so every rank took part, and the trace of the other one just ends too early.
    if (call.operation.gpu_start_ns != 0) return std::nullopt;
    stuck.waiting.push_back(rank);
    if (call.operation.start_ns < stuck.since_ns) {
      stuck.since_ns = call.operation.start_ns;
      stuck.size_bytes = call.operation.size_bytes;
      stuck.function = call.process->names.string(call.operation.function);
    }
  }
  if (stuck.absent.empty()) return std::nullopt;
  for (const LastCall& call : calls) {
    if (stuck.communicator_name.empty()) {
      stuck.communicator_name = call.process->names.string(call.name);
    }
  }
  return stuck;
}

}  // namespace

std::vector<StuckCollective> find_stuck_collectives(const TraceModel& model) {
  std::map<uint64_t, std::vector<LastCall>> calls;
  for (const ProcessModel& process : model.processes) add_process(process, calls);
  std::vector<StuckCollective> all;
  for (const auto& [id, of_communicator] : calls) {
    if (auto stuck = judge(id, of_communicator); stuck) {
      std::sort(stuck->waiting.begin(), stuck->waiting.end());
      std::sort(stuck->absent.begin(), stuck->absent.end());
      all.push_back(std::move(*stuck));
    }
  }
  return all;
}

}  // namespace tidemark
