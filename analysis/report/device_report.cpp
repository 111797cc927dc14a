#include "analysis/report/device_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/findings/growth/growth.h"
#include "analysis/insight/card/pool_cache.h"
#include "analysis/insight/outside_history.h"
#include "analysis/report/oom_reports.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr std::string_view kNoOom =
    "no out-of-memory error was recorded on this device; at its peak";

// At any time, also between two events. Before the first one there was what is older than the
// history.
MemoryState state_at(const AllocationHistory& model, int64_t time_ns) {
  MemoryState state;
  uint32_t event = 0;
  if (model.state_event_at(time_ns, event)) state = state_after(model, event);
  state.time_ns = time_ns;
  return state;
}

// The allocated peak; of a snapshot without a history, its own state.
MemoryState described_by_default(const DeviceEvidence& d) {
  const AllocationHistory& model = *d.model;
  const bool last = d.process->is_state_only() && model.event_count() != 0;
  return state_after(
      model, last ? static_cast<uint32_t>(model.event_count() - 1) : model.allocated_peak.event);
}

// The state that the report describes; nothing if the device has no such instant.
std::optional<MemoryState> chosen_state(const DeviceEvidence& d, const Instant& at,
                                        int64_t start_ns) {
  const AllocationHistory& model = *d.model;
  switch (at.kind) {
    case Instant::Kind::kPeak:
    case Instant::Kind::kEnd:  // a time by now
      break;
    case Instant::Kind::kTime:
      return state_at(model, start_ns + at.time_ns);
    case Instant::Kind::kOom: {
      const auto refused = driver_failures(*d.process, d.device);
      if (!refused.empty() &&
          (model.failures.empty() || refused.back()->time_ns > model.failures.back().time_ns)) {
        return state_at(model, refused.back()->time_ns);
      }
      if (model.failures.empty()) return std::nullopt;
      MemoryState state = state_after(model, model.failures.back().event);
      state.time_ns = model.failures.back().time_ns;
      return state;
    }
  }
  return described_by_default(d);
}

StepReport step_report(const Steps& steps, const Dictionary& names) {
  constexpr size_t kGrowingListed = 10;
  StepReport r;
  r.count = steps.count();
  r.before = steps.before;
  r.period_ns = steps.period_ns;
  r.growth_bytes_per_step = steps.growth_bytes_per_step;
  r.source = steps.source;
  r.confidence = steps.confidence;
  for (const StackGrowth& g : steps.growing) {
    if (r.growing.size() == kGrowingListed) break;
    r.growing.push_back({g.bytes_per_step, g.held_bytes, g.held_count, names.stack_text(g.stack)});
  }
  const bool has_first = r.count != 0 && r.before == 0U;
  if (has_first) r.first_high_bytes = steps.levels.front().high_bytes;
  for (size_t i = has_first ? 1 : 0; i < steps.levels.size(); ++i) {
    r.later_high_bytes = std::max(r.later_high_bytes, steps.levels[i].high_bytes);
  }
  return r;
}

// Without PyTorch, steps that the program marked are those of the driver's memory. A rhythm of its
// allocations is none.
void add_marked_steps(DeviceReport& d, const DeviceEvidence& evidence) {
  const ProcessModel& process = *evidence.process;
  if (d.has_framework || process.marks.empty()) return;
  Steps steps = find_steps(process, history_of_driver(process.driver, d.device), *evidence.roles);
  if (steps.source != StepSource::kMarks) return;
  d.steps = step_report(steps, process.names);
  d.step_events = std::move(steps);
}

void add_phases(DeviceReport& d, const DeviceEvidence& evidence) {
  for (const PhaseKind kind :
       {PhaseKind::kFirstStep, PhaseKind::kValidation, PhaseKind::kGeneration,
        PhaseKind::kForwardOnly, PhaseKind::kSaving}) {
    PhaseReport r;
    r.kind = kind;
    for (const Phase& p : evidence.phases) {
      if (p.kind != kind) continue;
      ++r.count;
      r.total_ns += evidence.model->time_ns[p.last - 1] - evidence.model->time_ns[p.first];
      if (p.peak.bytes > r.peak.bytes) r.peak = p.peak;
      // Where a later step is as high, the first one is nothing special.
      if (kind == PhaseKind::kFirstStep && d.steps.later_high_bytes >= d.steps.first_high_bytes) {
        continue;
      }
      // Later kinds override the first step: they are more specific.
      if (p.holds(d.allocated_peak.event)) d.peak_phase = kind;
    }
    if (r.count != 0) d.phases.push_back(r);
  }
}

// Where blocks of the program's own lines have no stacks, either, those without say nothing.
void add_stack_facts(DeviceReport& d, const DeviceEvidence& evidence) {
  d.backward_without_stack = evidence.roles->of(0) == StackRole::kBackward;
  bool at_end = false;
  bool freed_without = false;
  bool freed_with = false;
  for (const Allocation& a : evidence.model->allocations) {
    if (freed_with) break;
    if (a.seeded) continue;
    at_end |= a.release == kNever && a.stack != 0;
    (a.stack == 0 ? freed_without : freed_with) |= a.release != kNever;
  }
  d.stacks_only_at_end = !d.state_only && at_end && freed_without && !freed_with;
}

// Adds up what the program gave names.
class LabelSums {
 public:
  explicit LabelSums(const ProcessModel& process) : process_(process) {}

  void add(uint64_t address, uint64_t bytes, int64_t birth_ns, int64_t death_ns) {
    const uint32_t name = process_.labels.of(address, birth_ns, death_ns);
    if (name == 0) return;
    LabelShare& sum = sums_[name];
    sum.bytes += bytes;
    ++sum.count;
  }

  std::vector<LabelShare> shares() {
    std::vector<LabelShare> shares;
    for (auto& [name, share] : sums_) {
      share.label = process_.names.string(name);
      shares.push_back(std::move(share));
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return shares;
  }

 private:
  const ProcessModel& process_;
  std::map<uint32_t, LabelShare> sums_;
};

std::vector<LabelShare> shares_by_label(const ProcessModel& process, const AllocationHistory& model,
                                        const MemoryState& state) {
  if (process.labels.empty()) return {};
  LabelSums sums(process);
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const Allocation a = model.allocations[i];
    sums.add(a.address, a.block_bytes, a.birth_ns(), a.death_ns());
  }
  return sums.shares();
}

// As many as shares_by_stack() would list without a limit.
size_t stack_count(const AllocationHistory& model, const MemoryState& state) {
  std::set<std::pair<bool, uint32_t>> stacks;
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const Allocation& a = model.allocations[i];
    stacks.emplace(a.seeded && a.stack == 0, a.stack);
  }
  return stacks.size();
}

// What is alive at one instant.
void add_instant(DeviceReport& d, const DeviceEvidence& evidence, const ReportOptions& options,
                 const MemoryState& state) {
  constexpr size_t kHolesListed = 5;
  const AllocationHistory& model = *evidence.model;
  const Dictionary& names = evidence.process->names;
  d.at_ns = state.time_ns;
  d.at_totals = state.totals;
  // With the backend cudaMallocAsync, the driver's mark includes frees that were still on their
  // way.
  if (state.event == model.allocated_peak.event && !evidence.process->torch_pools.empty()) {
    d.at_totals.allocated = model.allocated_peak.bytes;
  }
  d.categories = shares_by_category(model, state, evidence.categories);
  d.labels = shares_by_label(*evidence.process, model, state);
  d.modules = shares_by_module(*evidence.process, model, state, evidence.categories.of);
  d.layers = layers_of(d.modules, *evidence.process, model, evidence.categories.of);
  d.trained = trained_weights(*evidence.process, model, state.event, evidence.categories.of);
  d.stacks = shares_by_stack(model, state, evidence.categories.of, names, options.stacks,
                             options.absent_stacks);
  const size_t all = options.absent_stacks ? d.stacks.size() : stack_count(model, state);
  d.stacks_left_out = all - std::min(all, d.stacks.size());
  d.sizes = shares_by_size(model, state);
  d.ages = shares_by_age(model, state, evidence.steps);
  d.tree = stack_tree(model, state, names, options.tree_share);
  if (const auto last = pushed_by(model, state.event); last && !state.live.empty()) {
    d.pushed_by = {last->block_bytes, names.stack_text(last->stack)};
  }
  if (options.at.kind != Instant::Kind::kPeak && d.at_note.empty()) {
    d.fragmentation = fragmentation_of(model, state, names, kHolesListed);
    if (!d.state_only) d.fragmentation_at = "same instant";
    return;
  }
  if (d.state_only) {
    d.fragmentation = fragmentation_of(model, state, names, kHolesListed);
    return;
  }
  const auto [worst, moment] = worst_for_holes(model);
  // If the allocated peak follows at once, while as much is reserved, people take both for one
  // instant.
  constexpr int64_t kAtOnceNs = 1'000'000;
  if (model.event_count() != 0 && model.failures.empty() && worst <= state.event &&
      state.totals.reserved == model.reserved_peak.bytes &&
      state.time_ns - model.time_ns[worst] < kAtOnceNs) {
    d.fragmentation = fragmentation_of(model, state, names, kHolesListed);
    d.fragmentation_at = "allocated peak";
    return;
  }
  MemoryState fullest = state_after(model, worst);
  if (!model.failures.empty()) fullest.time_ns = model.failures.back().time_ns;
  d.fragmentation = fragmentation_of(model, fullest, names, kHolesListed);
  d.fragmentation_at = moment;
}

// Those of a snapshot without a history are of its own state.
void add_peaks(DeviceReport& d, const DeviceEvidence& evidence) {
  const AllocationHistory& model = *evidence.model;
  d.allocated_peak = model.allocated_peak;
  if (knows_requests(model)) d.requested_peak = model.requested_peak;
  d.reserved_peak = model.reserved_peak;
  if (!d.state_only || model.event_count() == 0) return;
  const MemoryState state = described_by_default(evidence);
  d.allocated_peak = {state.totals.allocated, state.time_ns, state.event};
  if (knows_requests(model)) {
    d.requested_peak = {state.totals.requested, state.time_ns, state.event};
  }
  d.reserved_peak = {state.totals.reserved, state.time_ns, state.event};
}

void add_framework(DeviceReport& d, const DeviceEvidence& evidence, const ReportOptions& options,
                   int64_t start_ns) {
  const AllocationHistory& model = *evidence.model;
  d.has_framework = true;
  add_stack_facts(d, evidence);
  d.events += model.recorded_events;
  add_peaks(d, evidence);
  d.began_late = model.seed_events != 0 && !d.state_only && !d.run.is_window();
  d.blocks_before_history = model.seeded_blocks;
  d.bytes_before_history = model.seeded_bytes;
  d.anomalies = model.anomalies;
  d.limit = evidence.limit;
  d.steps = step_report(evidence.steps, evidence.process->names);
  d.steps.full_at_step = full_at_step(evidence);
  d.steps.full_in_steps = steps_until_full(evidence);
  d.step_events = evidence.steps;
  d.phase_events = evidence.phases;
  add_phases(d, evidence);
  d.curve = thinned_curve(model, options.curve_points);

  const std::string absence = note_on_absence(*evidence.process, options.at, start_ns);
  const std::optional<MemoryState> chosen = chosen_state(evidence, options.at, start_ns);
  if (!chosen) d.at_note = kNoOom;
  MemoryState state = chosen ? *chosen : described_by_default(evidence);
  if (!absence.empty()) {
    state = {};
    state.time_ns = start_ns + options.at.time_ns;
  }
  if (model.event_count() == 0) state.time_ns = start_ns;  // nothing ever happened
  add_instant(d, evidence, options, state);
  if (d.at_note.empty() && options.at.kind == Instant::Kind::kTime) {
    d.at_note = note_on_time_before(model, start_ns + options.at.time_ns, start_ns);
  }
  if (!absence.empty()) d.at_note = absence;
}

// The driver's allocations at the instant, and the largest groups of them by stack.
void add_driver_shares(DeviceReport& d, const ProcessModel& process, const ReportOptions& options) {
  std::map<uint32_t, StackShare> sums;
  for (const DriverAllocation& a : process.driver.allocations) {
    if (a.device != d.device || !a.on_card()) continue;
    const bool there = a.birth_ns <= d.at_ns && a.death_ns > d.at_ns;
    if (!there && !options.absent_stacks) continue;
    StackShare& sum = sums[a.stack];
    if (!there) continue;
    sum.bytes += a.size_bytes;
    ++sum.count;
    d.at_totals.allocated += a.size_bytes;
  }
  std::vector<std::pair<uint32_t, StackShare>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  const size_t listed = std::min(order.size(), options.stacks);
  d.stacks_left_out = order.size() - listed;
  order.resize(listed);
  for (auto& [stack, share] : order) {
    share.frames = process.names.stack_text(stack);
    d.stacks.push_back(std::move(share));
  }
}

std::vector<LabelShare> driver_labels(const ProcessModel& process, int64_t device,
                                      int64_t time_ns) {
  LabelSums sums(process);
  for (const DriverAllocation& a : process.driver.allocations) {
    if (a.device != device || !a.on_card() || a.birth_ns > time_ns || a.death_ns <= time_ns)
      continue;
    sums.add(a.address, a.size_bytes, a.birth_ns, a.death_ns);
  }
  return sums.shares();
}

void add_driver(DeviceReport& d, const ProcessModel& process, const ReportOptions& options,
                int64_t start_ns) {
  const auto it = process.driver.devices.find(d.device);
  if (it != process.driver.devices.end()) {
    d.driver_peak = it->second.card_peak;
    for (size_t k = 0; k < kMemoryKinds; ++k) {
      const uint64_t bytes = it->second.peak_by_kind[k];
      if (bytes != 0) d.kinds.push_back({static_cast<MemoryKind>(k), bytes});
    }
  }
  set_card_peak(d, device_used_peak(process, d.device));
  if (!process.torch_pools.empty() && d.driver_peak.bytes != 0) {
    d.pool_cache_bytes =
        d.reserved_peak.bytes - std::min(d.reserved_peak.bytes, d.allocated_peak.bytes);
  } else {
    d.pool_cache_bytes = pool_cache_beyond_peak(process, d.device);
  }
  if (d.has_framework) return;
  const bool only_read = d.state_only && d.driver_peak.bytes == 0;
  d.at_ns = only_read ? d.device_used_peak.time_ns : d.driver_peak.time_ns;
  if (options.at.kind == Instant::Kind::kTime) {
    d.at_ns = start_ns + options.at.time_ns;
    d.at_note = note_on_absence(process, options.at, start_ns);
  } else if (options.at.kind == Instant::Kind::kOom) {
    if (d.ooms.empty()) d.at_note = kNoOom;
    if (!d.ooms.empty()) d.at_ns = d.ooms.back().time_ns;
  }
  if (options.curve_points != 0) {
    d.curve = thinned_curve(history_of_driver(process.driver, d.device), options.curve_points);
  }
  if (!d.at_note.empty() && options.at.kind == Instant::Kind::kTime) return;
  add_driver_shares(d, process, options);
  d.labels = driver_labels(process, d.device, d.at_ns);
}

// The peaks of the whole run so far are those before the window.
void include_window(DeviceReport& d) {
  if (d.run.empty()) return;
  const auto include = [](Peak& run, const Peak& window) {
    if (window.bytes > run.bytes) run = window;
  };
  include(d.run.allocated_peak, d.allocated_peak);
  include(d.run.reserved_peak, d.reserved_peak);
  include(d.run.driver_peak, d.driver_peak);
  include(d.run.device_used_peak, d.device_used_peak);
}

// NCCL and other libraries may hold most while PyTorch holds little.
void add_ledger_at_driver_peak(DeviceReport& d, const LedgerSource& ledgers) {
  constexpr int64_t kMuch = int64_t{64} << 20;
  const auto sum_of_own = [](const Ledger& ledger) {
    int64_t bytes = 0;
    for (const LedgerLine& line : ledger.lines) {
      if (line.owner != "other_processes") bytes += line.bytes;
    }
    return bytes;
  };
  if (!d.has_framework || d.driver_peak.bytes == 0) return;
  Ledger fuller = ledgers.at(d.driver_peak.time_ns);
  const bool comparable = (fuller.device_used_bytes != 0) == (d.ledger.device_used_bytes != 0);
  const int64_t more = sum_of_own(fuller) - sum_of_own(d.ledger);
  if (comparable && more >= kMuch && more >= sum_of_own(fuller) / 20) {
    d.ledger_at_driver_peak = std::move(fuller);
  }
}

}  // namespace

std::string note_on_absence(const ProcessModel& process, const Instant& at, int64_t start_ns,
                            int64_t margin_ns) {
  if (at.kind != Instant::Kind::kTime || !process.knows_its_end()) return {};
  const int64_t time_ns = start_ns + at.time_ns;
  if (time_ns >= process.first_ns - margin_ns && time_ns <= process.last_ns + margin_ns) return {};
  return fmt::format("this process was recorded from +{} to +{} only: nothing of it is known here",
                     duration_text(process.first_ns - start_ns),
                     duration_text(process.last_ns - start_ns));
}

void set_card_peak(DeviceReport& d, const Peak& reading) {
  d.highest_reading_bytes = reading.bytes;
  d.device_used_peak =
      reading.bytes != 0 && d.driver_peak.bytes > reading.bytes ? d.driver_peak : reading;
}

DeviceReport device_report(DeviceEvidence& evidence, const ReportOptions& options,
                           int64_t start_ns) {
  const ProcessModel& process = *evidence.process;
  DeviceReport d;
  d.device = evidence.device;
  if (const Device* device = process.device(d.device); device != nullptr) {
    d.name = process.names.string(device->name);
    d.uuid = process.names.string(device->uuid);
    d.total_bytes = device->total_bytes;
  }
  d.state_only = process.is_state_only();
  d.run = evidence.run;
  add_ooms(d, evidence);
  add_library_refusals(d, *evidence.process);
  if (evidence.model != nullptr) add_framework(d, evidence, options, start_ns);
  add_driver(d, process, options, start_ns);
  add_marked_steps(d, evidence);
  include_window(d);
  const LedgerSource ledgers(process, d.device);
  if (note_on_absence(process, options.at, start_ns).empty()) {
    d.ledger = ledgers.at(d.at_ns, d.has_framework ? &d.at_totals : nullptr);
    // With the backend cudaMallocAsync the history has only blocks; the pool's own counters tell
    // what it keeps.
    for (const LedgerLine& line : d.ledger.lines) {
      if (d.has_framework && !process.torch_pools.empty() && line.owner == "torch.cached") {
        d.at_totals.reserved = d.at_totals.active + static_cast<uint64_t>(line.bytes);
      }
    }
    if (options.at.kind == Instant::Kind::kPeak) add_ledger_at_driver_peak(d, ledgers);
  } else {
    d.ledger.time_ns = d.at_ns;
  }
  d.before_recording_bytes = ledgers.before_recording();
  evidence.ledger = d.ledger;
  return d;
}

}  // namespace tidemark
