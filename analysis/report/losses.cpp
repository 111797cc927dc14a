// What a recording lacks.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "analysis/report/replaced.h"
#include "analysis/report/report.h"

namespace tidemark {

namespace {

KernelBursts bursts_of(const ProcessModel& process) {
  KernelBursts bursts;
  bursts.budget = process.setting("overhead");
  bursts.measured = process.setting("kernel_cost") == "measured";
  const std::string cost(process.setting("kernel_cost_ns"));
  bursts.kernel_cost_ns = std::strtoull(cost.c_str(), nullptr, 10);
  bursts.pauses = process.unrecorded.size();
  if (process.first_ns < process.last_ns) {
    bursts.time_ns = static_cast<uint64_t>(process.last_ns - process.first_ns);
  }
  bursts.unrecorded_ns = std::min(total_ns(process.unrecorded), bursts.time_ns);
  for (const Health& h : process.health) {
    const bool in_hooks =
        h.kind == HealthKind::kOverheadNs && process.names.string(h.detail) == "callbacks";
    if (in_hooks) bursts.cost_ns += h.value;
  }
  bursts.cost_ns += process.kernels * bursts.kernel_cost_ns;
  return bursts;
}

bool continues(const ProcessModel& later, const ProcessModel& process) {
  return later.info.pid == process.info.pid && later.info.source == Source::kCapture &&
         later.info.start_ns > process.info.start_ns &&
         later.names.string(later.info.host) == process.names.string(process.info.host);
}

}  // namespace

LossReport loss_of(const ProcessModel& process) {
  LossReport loss;
  // `tidemark snapshot` turns off what reports changes.
  const bool snapshot = process.is_state_only();
  for (const Health& h : process.health) {
    bool worth_saying = true;
    switch (h.kind) {
      case HealthKind::kEventsDropped:
      case HealthKind::kRecordsDroppedByCupti:
        loss.events_dropped += h.value;
        break;
      case HealthKind::kBytesUnwritten:
        loss.stopped = true;
        break;
      case HealthKind::kInputSkipped:
        loss.entries_skipped += h.value;
        break;
      case HealthKind::kOverheadNs:
      case HealthKind::kRecovered:
      case HealthKind::kNone:
        worth_saying = false;  // nothing was lost
        break;
      default:
        break;
    }
    const bool dropped =
        h.kind == HealthKind::kEventsDropped || h.kind == HealthKind::kRecordsDroppedByCupti;
    std::string detail(process.names.string(h.detail));
    if (dropped && !detail.empty()) detail = "dropped: " + detail;
    if (snapshot && h.kind == HealthKind::kSourceDisabled) {
      worth_saying &= !detail.starts_with("cupti:") && !detail.starts_with("nccl:");
    }
    const bool said = std::find(loss.notes.begin(), loss.notes.end(), detail) != loss.notes.end();
    if (worth_saying && !detail.empty() && !said) loss.notes.push_back(detail);
  }
  loss.killed = process.was_killed() && !loss.stopped;
  loss.last_kernels = process.kernels != 0 && process.was_killed();
  loss.bursts = bursts_of(process);
  for (const AllocationHistory& m : process.framework) loss.history_lost_blocks += m.seeded_blocks;
  return loss;
}

LossReport loss_among(const ProcessModel& process, const std::vector<ProcessModel>& all) {
  LossReport loss = loss_of(process);
  const auto is_next = [&](const ProcessModel& later) { return continues(later, process); };
  if (loss.killed && std::any_of(all.begin(), all.end(), is_next)) {
    loss.killed = false;
    loss.notes.push_back(
        "process " + std::to_string(process.info.pid) +
        " replaced itself by another program (exec), which has a trace of its own");
  }
  return loss;
}

bool has_losses(const Report& report) {
  return report.incomplete || report.damage.any() ||
         std::any_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) {
           return rank.loss.events_dropped != 0 || rank.loss.entries_skipped != 0 ||
                  rank.loss.stopped;
         });
}

}  // namespace tidemark
