#include "analysis/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "analysis/findings/rules.h"
#include "analysis/report/device_report.h"
#include "analysis/report/oom_reports.h"
#include "analysis/report/replaced.h"
#include "analysis/wording.h"
#include "proto/base/in_parallel.h"

namespace tidemark {

namespace {

constexpr std::string_view kOomElsewhere =
    "no out-of-memory error was recorded on this device; at the time of the job's last one";

// When memory last ran out on a device.
std::optional<int64_t> last_error(const ProcessModel& process, int64_t device) {
  std::optional<int64_t> last;
  for (const FailedAllocation* f : driver_failures(process, device)) {
    last = std::max(last.value_or(f->time_ns), f->time_ns);
  }
  const AllocationHistory* const model = process.framework_on(device);
  if (model != nullptr && !model->failures.empty()) {
    const int64_t time_ns = model->failures.back().time_ns;
    last = std::max(last.value_or(time_ns), time_ns);
  }
  return last;
}

std::optional<int64_t> last_error(const ProcessModel& process) {
  std::optional<int64_t> last;
  for (const int64_t device : process.device_ordinals()) {
    last = std::max(last, last_error(process, device));
  }
  return last;
}

// Ranks are compared at the error of one of them, whichever is described.
void move_to_error_of_others(const TraceModel& trace, const DeviceEvidence& d, Instant& at) {
  const int64_t start_ns = trace.start_ns;
  if (at.kind != Instant::Kind::kOom || last_error(*d.process, d.device)) return;
  std::optional<int64_t> last;
  for (const ProcessModel& other : trace.processes) {
    // Until when a snapshot was recorded is not known, but all of its devices until the same time.
    const bool known = !d.process->counters.empty() || &other == d.process;
    if (known) last = std::max(last, last_error(other));
  }
  if (!last) return;
  const Instant there{Instant::Kind::kTime, *last - start_ns};
  const bool before = d.model != nullptr && !note_on_time_before(*d.model, *last, start_ns).empty();
  // What ends one process of a job soon ends the others.
  constexpr int64_t kEndTogetherNs = 300'000'000;
  if (before || !note_on_absence(*d.process, there, start_ns, kEndTogetherNs).empty()) return;
  at = there;
  if (!d.process->knows_its_end()) return;
  at.time_ns =
      std::clamp(at.time_ns, d.process->first_ns - start_ns, d.process->last_ns - start_ns);
}

// From the first memory event of a snapshot on: its annotations may be older. Events that change
// nothing are in no history, so that their times are not known here.
int64_t length_of_histories(const TraceModel& trace) {
  int64_t first = trace.end_ns;
  for (const ProcessModel& process : trace.processes) {
    for (const AllocationHistory& model : process.framework) {
      const bool any = model.event_count() > model.seed_events;
      if (any) first = std::min(first, model.time_ns[model.seed_events]);
      if (!any && model.recorded_events != 0) first = trace.start_ns;
      if (!model.failures.empty()) first = std::min(first, model.failures.front().time_ns);
    }
  }
  return trace.end_ns - first;
}

// Everything that the diagnosis rules and the report need about one device, found by so many
// threads.
DeviceEvidence gather(const ProcessModel& process, int64_t ordinal, const StackRoles& roles,
                      size_t workers) {
  DeviceEvidence e;
  e.process = &process;
  e.device = ordinal;
  e.roles = &roles;
  if (const Device* device = process.device(ordinal); device != nullptr) {
    e.total_bytes = device->total_bytes;
  }
  if (const auto it = process.driver.devices.find(ordinal); it != process.driver.devices.end()) {
    e.driver_peak = it->second.card_peak;
  }
  e.model = process.framework_on(ordinal);
  const bool failed = e.model != nullptr && !e.model->failures.empty();
  e.run = whole_run(process, ordinal, failed ? e.model->failures.back().time_ns : INT64_MAX);
  if (e.model == nullptr) return e;
  e.steps = find_steps(process, *e.model, roles);
  const auto find = [&](size_t part) {
    if (part == 0) e.categories = categorize(process, *e.model, roles, e.steps);
    if (part == 1) e.phases = find_phases(process, *e.model, roles, e.steps);
  };
  in_parallel(2, find, workers);
  if (e.categories.has_backward) {
    e.backward_passes = find_backward_passes(process.names, *e.model, roles);
    e.gradient_use = find_gradient_use(*e.model, roles, e.steps, e.categories, e.backward_passes);
    sort_unused_gradients(*e.model, e.gradient_use, e.categories);
    e.side_graphs = find_side_graphs(process.names, *e.model, e.backward_passes);
  }
  e.limit = limit_of(process, *e.model);
  return e;
}

// How many processes have memory on each card; cards without a UUID are not told apart.
std::map<std::string, size_t> users_of_cards(const TraceModel& model) {
  std::map<std::string, size_t> users;
  for (const ProcessModel& process : model.processes) {
    for (const int64_t ordinal : process.device_ordinals()) {
      const Device* device = process.device(ordinal);
      if (device == nullptr || process.names.string(device->uuid).empty()) continue;
      const auto driver = process.driver.devices.find(ordinal);
      const bool allocated =
          process.framework_on(ordinal) != nullptr ||
          (driver != process.driver.devices.end() && driver->second.card_peak.bytes != 0);
      if (allocated) ++users[card_of(process, ordinal)];
    }
  }
  return users;
}

// The same for every process on the card: each reads it at instants of its own.
Peak used_peak_of_card(const TraceModel& model, const ProcessModel& process, int64_t ordinal) {
  Peak peak = device_used_peak(process, ordinal);
  const Device* device = process.device(ordinal);
  if (device == nullptr || process.names.string(device->uuid).empty()) return peak;
  const std::string card = card_of(process, ordinal);
  for (const ProcessModel& other : model.processes) {
    for (const int64_t its : other.device_ordinals()) {
      if (&other == &process || card_of(other, its) != card) continue;
      const Peak seen = device_used_peak(other, its);
      if (seen.bytes > peak.bytes) peak = seen;
    }
  }
  return peak;
}

}  // namespace

bool knows_requests(const AllocationHistory& model) {
  constexpr uint32_t kMostLookedAt = 16384;
  const AllocationColumns& all = model.allocations;
  const bool any = std::any_of(all.kinds().begin(), all.kinds().end(),
                               [](const AllocationKind& k) { return k.requested_bytes == 0; });
  if (!any) return true;
  uint32_t unknown_until = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.requested_bytes(i) != 0 || all.seeded(i)) continue;
    unknown_until = std::max(unknown_until, all.death(i));
  }
  if (unknown_until == 0) return true;
  if (unknown_until > std::min(kMostLookedAt, model.event_count() - 1)) return false;
  for (uint32_t event = 0; event <= unknown_until; ++event) {
    if (model.totals_after(event).active > model.requested_peak.bytes) return false;
  }
  return true;
}

uint64_t memory_events(const ProcessModel& process) {
  uint64_t events = process.driver.allocations.size() + process.driver.failures.size();
  for (const AllocationHistory& history : process.framework) events += history.recorded_events;
  return events;
}

static uint64_t earlier_errors(const Report& report) {
  uint64_t errors = 0;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) errors += d.run.earlier_errors;
  }
  return errors;
}

std::shared_ptr<Groundwork> lay_groundwork(const TraceModel& model, RankComparison comparison,
                                           std::optional<int64_t> rank) {
  auto ground = std::make_shared<Groundwork>();
  ground->comparison = std::move(comparison);
  const std::map<std::string, size_t> users = users_of_cards(model);
  std::vector<const ProcessModel*> processes;
  for (const ProcessModel& process : model.processes) {
    if (!rank || process.info.rank == *rank) processes.push_back(&process);
  }
  ground->roles.resize(processes.size());
  std::vector<std::vector<DeviceEvidence>> devices(processes.size());
  const size_t workers = processes.size() < worker_count() ? worker_count() : 1;  // of each
  in_parallel(processes.size(), [&](size_t i) {
    const ProcessModel& process = *processes[i];
    ground->roles[i] = std::make_unique<const StackRoles>(process);
    for (const int64_t ordinal : process.device_ordinals()) {
      DeviceEvidence& d =
          devices[i].emplace_back(gather(process, ordinal, *ground->roles[i], workers));
      const auto card = users.find(card_of(process, ordinal));
      d.shares_card = card != users.end() && card->second > 1;
      if (d.model != nullptr) d.model->release_pages();
    }
  });
  for (std::vector<DeviceEvidence>& of_process : devices) {
    std::move(of_process.begin(), of_process.end(), std::back_inserter(ground->devices));
  }
  return ground;
}

bool take_categories(TraceModel& model, const Groundwork& groundwork) {
  std::map<const AllocationHistory*, const Categories*> found;
  for (const DeviceEvidence& d : groundwork.devices) found[d.model] = &d.categories;
  bool known = false;
  for (ProcessModel& process : model.processes) {
    for (AllocationHistory& m : process.framework) {
      const auto it = found.find(&m);
      if (it == found.end()) continue;
      const std::vector<Category>& of = it->second->of;
      for (size_t i = 0; i < of.size(); ++i) {
        known |= of[i] != Category::kUnknown;
        if (of[i] != m.allocations.category(i)) m.allocations.set_category(i, of[i]);
      }
    }
  }
  return known;
}

Status check_time(const TraceModel& model, int64_t time_ns) {
  const int64_t length_ns = model.end_ns - model.start_ns;
  if (time_ns >= 0 && time_ns <= length_ns) return {};
  const std::string length = duration_text(length_ns);
  const std::string time = duration_text(time_ns);
  if (length == time) return {};  // the end as reports print it
  return Error{
      time_ns < 0
          ? fmt::format("{}: the trace begins at 0: it has no {}", model.path, time)
          : fmt::format("{}: the trace ends at {}: it has no {}", model.path, length, time)};
}

// Without PyTorch the memory that may grow is the driver's, which only the finding measures.
static void add_growth_of_driver(Report& report) {
  for (const Finding& f : report.findings) {
    if (f.id != "creep") continue;
    for (RankReport& rank : report.ranks) {
      if (!f.concerns(rank.rank, rank.pid, rank.file)) continue;
      for (DeviceReport& d : rank.devices) {
        if (d.has_framework || d.device != f.device) continue;
        for (const auto& [key, value] : f.evidence) {
          if (key == "growth_bytes_per_step") {
            d.steps.growth_bytes_per_step = static_cast<double>(value);
          }
        }
      }
    }
  }
}

Result<Report> make_report(const TraceModel& model, const ReportOptions& options) {
  return make_report(model, options, *lay_groundwork(model, compare_ranks(model), options.rank));
}

Result<Report> make_report(const TraceModel& model, const ReportOptions& given,
                           Groundwork& groundwork) {
  ReportOptions options = given;
  const int64_t length_ns = model.end_ns - model.start_ns;
  if (options.at.kind == Instant::Kind::kEnd) options.at = {Instant::Kind::kTime, length_ns};
  if (options.at.kind == Instant::Kind::kTime) {
    if (const Status s = check_time(model, options.at.time_ns); !s) return s.error();
  }
  Report report;
  report.path = model.path;
  report.notes = model.notes;
  report.incomplete = model.incomplete;
  report.comparison = std::move(groundwork.comparison);
  report.start_ns = model.start_ns;
  report.end_ns = model.end_ns;
  report.damage = model.damage;
  report.unknown_blocks = model.unknown_blocks;
  report.kind = model.processes.size() > 1 ? "job" : "trace";
  Evidence evidence{&model, &report.comparison, std::move(groundwork.devices), options.part_of_job,
                    options.card_bytes};
  for (DeviceEvidence& d : evidence.devices) {
    if (options.card_bytes == 0 || d.model == nullptr) continue;
    if (d.ran_out()) {
      if (d.total_bytes == 0) d.total_bytes = options.card_bytes;
      report.notes.push_back(fmt::format(
          "memory ran out on cuda:{}: its own limit counts there, not that of --card", d.device));
    } else {
      d.limit = limit_on_card(*d.process, d.device, options.card_bytes);
    }
  }
  auto next = evidence.devices.begin();
  bool has_instant = options.at.kind != Instant::Kind::kOom;
  for (const ProcessModel& process : model.processes) {
    if (process.info.source == Source::kTorchSnapshot) report.kind = "torch-snapshot";
    has_instant |= last_error(process).has_value();
    if (options.rank && process.info.rank != *options.rank) continue;
    RankReport rank;
    rank.rank = process.info.rank;
    rank.world_size = process.info.world_size;
    rank.host = process.names.string(process.info.host);
    rank.pid = process.info.pid;
    rank.file = process.file;
    rank.cupti = process.setting("cupti_subscription");
    rank.loss = loss_among(process, model.processes);
    rank.pinned = pinned_memory(process, options.stacks);
    report.events += memory_events(process);
    for (; next != evidence.devices.end() && next->process == &process; ++next) {
      ReportOptions here = options;
      move_to_error_of_others(model, *next, here.at);
      rank.devices.push_back(device_report(*next, here, model.start_ns));
      DeviceReport& added = rank.devices.back();
      set_card_peak(added, used_peak_of_card(model, process, added.device));
      if (here.at.kind != options.at.kind) rank.devices.back().at_note = kOomElsewhere;
      if (next->model != nullptr) next->model->release_pages();
      has_instant |= rank.devices.back().at_note.empty();
    }
    report.ranks.push_back(std::move(rank));
  }
  report.events_ns = length_ns;
  if (report.kind == "torch-snapshot") {
    report.events_ns = report.events == 1 ? 0 : length_of_histories(model);
  }
  if (options.rank && report.ranks.empty()) {
    return Error{fmt::format("{}: no rank {} in this trace", model.path, *options.rank)};
  }
  if (!has_instant) {
    if (const uint64_t earlier = earlier_errors(report); earlier != 0) {
      return Error{
          fmt::format("{}: {} came before the kept window; see the directories oom-TIME "
                      "beside the trace, which were sealed at errors",
                      model.path, counted(earlier, "out-of-memory error"))};
    }
    return Error{fmt::format("{}: no out-of-memory error {}", model.path,
                             has_losses(report)
                                 ? "in what could be read; a part of the recording is lost"
                                 : "was recorded")};
  }
  std::erase_if(evidence.devices,
                [](const DeviceEvidence& d) { return d.process->is_state_only(); });
  if (options.only_compare) {
    find_rank_imbalance(evidence, report.findings);
  } else {
    report.findings = diagnose(evidence);
  }
  add_growth_of_driver(report);
  return report;
}

std::string note_on_time_before(const AllocationHistory& model, int64_t time_ns, int64_t start_ns) {
  if (model.seed_events == 0 || time_ns >= model.time_ns[0]) return {};
  return fmt::format(
      "the history of this device begins at +{}: what was freed before that is missing here, and "
      "what is listed may be younger",
      duration_text(model.time_ns[0] - start_ns));
}

}  // namespace tidemark
