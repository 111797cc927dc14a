#include "analysis/findings/causes/card/foreign_memory.h"

#include <map>
#include <set>
#include <string_view>

namespace tidemark {

ForeignMemory foreign_memory(const Evidence& evidence, const DeviceEvidence& d, int64_t until_ns) {
  const std::string_view host = d.process->names.string(d.process->info.host);
  std::set<uint64_t> ours;
  for (const ProcessModel& p : evidence.trace->processes) {
    if (p.names.string(p.info.host) == host) ours.insert(p.info.pid);
  }
  std::map<int64_t, uint64_t> at;
  for (const Counter& c : d.process->counters) {
    if (c.kind != CounterKind::kProcessUsed || c.device != d.device || c.time_ns > until_ns) {
      continue;
    }
    at[c.time_ns] += ours.contains(c.subject) ? 0 : c.value;
  }
  ForeignMemory most;
  for (const auto& [time, bytes] : at) {
    if (bytes > most.bytes) most = {bytes, time, time, false, 0, 0};
  }
  for (auto it = at.find(most.time_ns); it != at.end() && it->second >= most.bytes / 2;) {
    most.since_ns = it->first;
    most.first = it == at.begin();
    if (most.first) break;
    --it;
  }
  for (const Counter& c : d.process->counters) {
    if (c.kind != CounterKind::kProcessUsed || c.device != d.device || c.time_ns != most.time_ns) {
      continue;
    }
    if (ours.contains(c.subject) || c.value <= most.pid_bytes) continue;
    most.pid = c.subject;
    most.pid_bytes = c.value;
  }
  return most;
}

}  // namespace tidemark
