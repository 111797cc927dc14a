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
  std::vector<const NcclOperation*> numbered;
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
    call.numbered.push_back(&op);
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

// The first collective of a rank from this number on. Ranks enqueue further ones while they wait.
const NcclOperation& first_call_from(const LastCall& call, uint64_t number) {
  const NcclOperation* first = &call.operation;
  for (const NcclOperation* op : call.numbered) {
    if (op->sequence >= number && op->sequence < first->sequence) first = op;
  }
  return *first;
}

// When the collectives before this number had run, as far as the trace tells.
int64_t end_before(const LastCall& call, uint64_t number) {
  int64_t end = INT64_MIN;
  for (const NcclOperation* op : call.numbered) {
    if (op->gpu_start_ns == 0 || op->sequence >= number) continue;
    end = std::max(end, op->gpu_start_ns + static_cast<int64_t>(op->gpu_duration_ns));
  }
  return end;
}

std::optional<StuckCollective> judge(uint64_t id, const std::vector<LastCall>& calls) {
  // The first number that some rank never came to; 0 if one never called any.
  const auto next = [](const LastCall& call) { return call.sequence ? *call.sequence + 1 : 0; };
  uint64_t missing = UINT64_MAX;
  for (const LastCall& call : calls) missing = std::min(missing, next(call));
  if (std::all_of(calls.begin(), calls.end(), [&](const auto& c) { return next(c) == missing; })) {
    return std::nullopt;
  }
  int64_t ran_until = INT64_MIN;  // what every rank came to
  for (const LastCall& call : calls) ran_until = std::max(ran_until, end_before(call, missing));
  StuckCollective stuck;
  stuck.communicator = id;
  stuck.since_ns = INT64_MAX;
  for (const LastCall& call : calls) {
    const int64_t rank = call.process->info.rank;
    if (next(call) == missing) {
      stuck.absent.push_back(rank);
      continue;
    }
    const NcclOperation& waits = first_call_from(call, missing);
    // It ran, so every rank took part, and the trace of the other one just ends too early.
    if (waits.gpu_start_ns != 0) return std::nullopt;
    stuck.waiting.push_back(rank);
    // It may have been enqueued while those before it were still running.
    const int64_t since = std::max(waits.start_ns, ran_until);
    if (since < stuck.since_ns) {
      stuck.since_ns = since;
      stuck.sequence = waits.sequence;
      stuck.size_bytes = waits.size_bytes;
      stuck.function = call.process->names.string(waits.function);
    }
  }
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
