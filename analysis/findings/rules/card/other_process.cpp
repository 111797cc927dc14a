// A process outside the job holds memory of the card.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "analysis/findings/causes/card/foreign_memory.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Where NVML does not list processes: what was in use before this process allocated anything.
uint64_t used_before(const DeviceEvidence& d) {
  int64_t first = INT64_MAX;
  for (const DriverAllocation& a : d.process->driver.allocations) {
    if (a.device == d.device) first = std::min(first, a.birth_ns);
  }
  uint64_t used = 0;
  for (const Counter& c : d.process->counters) {
    if (c.time_ns >= first) break;
    if (c.kind == CounterKind::kDeviceUsed && c.device == d.device) used = c.value;
  }
  return used;
}

// Whether a limit of the program itself is what it meets first: no other process takes anything
// from it.
bool is_limited_by_program(const DeviceEvidence& d) {
  const auto& failures = d.process->driver.failures;
  return d.limit.source == LimitSource::kFraction &&
         std::none_of(failures.begin(), failures.end(),
                      [&](const FailedAllocation& f) { return f.device == d.device; });
}

// What is held next to a run that fits costs nothing as long as the card has room.
const char* severity_of(const DeviceEvidence& d) {
  const uint64_t used = device_used_peak(*d.process, d.device).bytes;
  const bool has_room = used != 0 && used < d.total_bytes / 4 * 3 && !d.is_card_full();
  return has_room ? kInfo : kWarning;
}

// A small part of the card is not worth a word where it has room, nor is a large one where half of
// the card is never used by all together.
bool matters(const Evidence& evidence, const DeviceEvidence& d, uint64_t bytes) {
  constexpr uint64_t kMuch = uint64_t{1} << 30;
  const bool on_other_card = evidence.other_card_bytes != 0 && !d.ran_out();
  if (on_other_card || is_limited_by_program(d)) return false;
  const uint64_t used = device_used_peak(*d.process, d.device).bytes;
  const bool half_is_free = used != 0 && used < d.total_bytes / 2 && !d.ran_out();
  if (d.total_bytes != 0 && bytes >= d.total_bytes / 5) return !half_is_free;
  return bytes >= kMuch && (d.total_bytes == 0 || d.is_card_full());
}

// Whether the trace lacks ranks of its job: they would be taken for strangers.
bool lacks_ranks(const TraceModel& trace) {
  std::set<int64_t> ranks;
  uint64_t world_size = 0;
  for (const ProcessModel& p : trace.processes) {
    if (p.info.rank >= 0) ranks.insert(p.info.rank);
    world_size = std::max(world_size, p.info.world_size);
  }
  return ranks.size() < world_size;
}

}  // namespace

void say_when(Finding& f, int64_t start_ns) {
  if (f.id != "other_process") return;
  const auto value = [&](std::string_view name) -> uint64_t {
    for (const auto& [key, number] : f.evidence) {
      if (key == name) return number;
    }
    return 0;
  };
  const auto offset = [&](std::string_view name) {
    return duration_text(static_cast<int64_t>(value(name)) - start_ns);
  };
  std::string when = "before this one allocates anything";
  const bool listed = value("listed_by_nvml") != 0;
  if (listed) when = "at +" + offset("time_ns");
  if (listed && value("since_first_reading") != 0) {
    when += ", and at least half as much from the start until then";
  } else if (listed && offset("since_ns") != offset("time_ns")) {
    when += ", and at least half as much from +" + offset("since_ns") + " until then";
  }
  f.summary = fmt::format("processes outside this recording hold {} of the card {}",
                          size_text(value("bytes")), when);
}

void find_other_process(const Evidence& evidence, std::vector<Finding>& out) {
  if (!evidence.part_of_job && lacks_ranks(*evidence.trace)) return;
  std::set<std::string> said;  // once per card
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.driver_peak.bytes == 0) continue;
    const ForeignMemory foreign = foreign_memory(evidence, d);
    uint64_t bytes = foreign.bytes;
    const bool listed = bytes != 0;
    if (!listed && d.ledger.shared_card && evidence.trace->processes.size() == 1 &&
        !evidence.part_of_job) {
      bytes = used_before(d);
    }
    if (!matters(evidence, d, bytes)) continue;
    if (!said.insert(card_of(*d.process, d.device)).second) continue;
    Finding f = d.finding("other_process", severity_of(d), "");
    f.evidence = {{"bytes", bytes}, {"listed_by_nvml", listed ? 1U : 0U}};
    if (listed) {
      f.evidence.emplace_back("time_ns", static_cast<uint64_t>(foreign.time_ns));
      f.evidence.emplace_back("since_ns", static_cast<uint64_t>(foreign.since_ns));
      f.evidence.emplace_back("since_first_reading", foreign.first ? 1U : 0U);
      f.evidence.emplace_back("largest_pid", foreign.pid);
      f.evidence.emplace_back("largest_pid_bytes", foreign.pid_bytes);
    }
    say_when(f, evidence.trace->start_ns);
    const std::string who = listed ? fmt::format("the largest is process {} with {}", foreign.pid,
                                                 size_text(foreign.pid_bytes))
                                   : "nvidia-smi lists them";
    f.advice.push_back(
        {"free_the_card",
         fmt::format("stop them or use another card ({}): frees {}", who, size_text(bytes)),
         bytes});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
