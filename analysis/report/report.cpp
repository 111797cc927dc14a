#include "analysis/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>

#include "analysis/findings/growth.h"
#include "analysis/findings/rules.h"
#include "analysis/insight/outside_history.h"
#include "analysis/wording.h"
#include "proto/base/in_parallel.h"

namespace tidemark {

namespace {

// A program that catches the error and retries causes thousands; the last ones are enough.
constexpr size_t kMaxOoms = 16;

OomReport oom_of(const AllocationHistory& model, const FailedAllocation& failure,
                 const Dictionary& names) {
  const MemoryState state = state_after(model, failure.event);
  return {failure,
          state.totals.allocated,
          state.totals.pending(),
          state.totals.reserved,
          usable_holes(model, state, failure).largest_bytes,
          names.stack_text(failure.stack)};
}

OomReport oom_of(const FailedAllocation& failure, const ProcessModel& process) {
  const DriverState state = driver_state_at(process.driver, failure.device, failure.time_ns);
  OomReport oom{failure, 0, 0, state.card_bytes, 0, process.names.stack_text(failure.stack)};
  for (const OutOfMemory& row : process.ooms) {
    if (row.time_ns == failure.time_ns && row.device == failure.device) {
      oom.device_free_bytes = row.device_free_bytes;
    }
  }
  return oom;
}

std::vector<const FailedAllocation*> driver_failures(const ProcessModel& process, int64_t device) {
  std::vector<const FailedAllocation*> failures;
  for (const FailedAllocation& f : process.driver.failures) {
    if (f.device == device) failures.push_back(&f);
  }
  return failures;
}

constexpr std::string_view kNoOom =
    "no out-of-memory error was recorded on this device; at its peak";
constexpr std::string_view kOomElsewhere =
    "no out-of-memory error was recorded on this device; at the time of the job's last one";

// At any time, also between two events. Before the first one there was what is older than the
// history.
MemoryState state_at(const AllocationHistory& model, int64_t time_ns) {
  MemoryState state;
  uint32_t event = 0;
  if (model.state_event_at(time_ns, event)) state = state_after(model, event);
  state.time_ns = time_ns;
  return state;
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
  return state_after(model, model.allocated_peak.event);
}

// A process of a job may begin later and end earlier than the job.
std::string note_on_absence(const ProcessModel& process, const Instant& at, int64_t start_ns,
                            int64_t margin_ns = 0) {
  if (at.kind != Instant::Kind::kTime || !process.knows_its_end()) return {};
  const int64_t time_ns = start_ns + at.time_ns;
  if (time_ns >= process.first_ns - margin_ns && time_ns <= process.last_ns + margin_ns) return {};
  return fmt::format("this process was recorded from +{} to +{} only: nothing of it is known here",
                     duration_text(process.first_ns - start_ns),
                     duration_text(process.last_ns - start_ns));
}

// When memory last ran out on a device.
std::optional<int64_t> last_error(const DeviceEvidence& d) {
  std::optional<int64_t> last;
  for (const FailedAllocation* f : driver_failures(*d.process, d.device)) {
    last = std::max(last.value_or(f->time_ns), f->time_ns);
  }
  if (d.ran_out()) {
    const int64_t time_ns = d.model->failures.back().time_ns;
    last = std::max(last.value_or(time_ns), time_ns);
  }
  return last;
}

// Ranks are compared at the error of one of them.
void move_to_error_of_others(const std::vector<DeviceEvidence>& devices, const DeviceEvidence& d,
                             int64_t start_ns, Instant& at) {
  if (at.kind != Instant::Kind::kOom || last_error(d)) return;
  if (d.process->counters.empty()) return;  // a snapshot: nobody knows until when it was recorded
  std::optional<int64_t> last;
  for (const DeviceEvidence& other : devices) last = std::max(last, last_error(other));
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

StepReport step_report(const DeviceEvidence& d) {
  constexpr size_t kGrowingListed = 10;
  StepReport r;
  r.count = d.steps.count();
  r.before = d.steps.before;
  r.period_ns = d.steps.period_ns;
  r.growth_bytes_per_step = d.steps.growth_bytes_per_step;
  r.source = d.steps.source;
  r.confidence = d.steps.confidence;
  r.full_at_step = full_at_step(d);
  r.full_in_steps = steps_until_full(d);
  for (const StackGrowth& g : d.steps.growing) {
    if (r.growing.size() == kGrowingListed) break;
    r.growing.push_back(
        {g.bytes_per_step, g.held_bytes, g.held_count, d.process->names.stack_text(g.stack)});
  }
  const bool has_first = r.count != 0 && r.before == 0U;
  if (has_first) r.first_high_bytes = d.steps.levels.front().high_bytes;
  for (size_t i = has_first ? 1 : 0; i < d.steps.levels.size(); ++i) {
    r.later_high_bytes = std::max(r.later_high_bytes, d.steps.levels[i].high_bytes);
  }
  return r;
}

void add_phases(DeviceReport& d, const DeviceEvidence& evidence) {
  for (const PhaseKind kind : {PhaseKind::kFirstStep, PhaseKind::kValidation, PhaseKind::kSaving}) {
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
    sums.add(a.address, a.block_bytes, a.birth_ns, a.death_ns);
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
  const auto [worst, moment] = worst_for_holes(model);
  // If the allocated peak follows at once, while as much is reserved, people take both for one
  // instant.
  constexpr int64_t kAtOnceNs = 1'000'000;
  if (model.event_count() != 0 && model.failures.empty() && worst <= state.event &&
      state.totals.reserved == model.reserved_peak.bytes &&
      state.time_ns - model.time_ns[worst] < kAtOnceNs) {
    d.fragmentation = fragmentation_of(model, state, names, kHolesListed);
    if (!d.state_only) d.fragmentation_at = "allocated peak";
    return;
  }
  MemoryState fullest = state_after(model, worst);
  if (!model.failures.empty()) fullest.time_ns = model.failures.back().time_ns;
  d.fragmentation = fragmentation_of(model, fullest, names, kHolesListed);
  if (!d.state_only) d.fragmentation_at = moment;
}

void add_framework(DeviceReport& d, const DeviceEvidence& evidence, const ReportOptions& options,
                   int64_t start_ns) {
  const AllocationHistory& model = *evidence.model;
  d.has_framework = true;
  add_stack_facts(d, evidence);
  d.events += model.recorded_events;
  d.allocated_peak = model.allocated_peak;
  if (knows_requests(model)) d.requested_peak = model.requested_peak;
  d.reserved_peak = model.reserved_peak;
  d.blocks_before_history = model.seeded_blocks;
  d.bytes_before_history = model.seeded_bytes;
  d.anomalies = model.anomalies;
  d.limit = evidence.limit;
  d.steps = step_report(evidence);
  d.step_events = evidence.steps;
  d.phase_events = evidence.phases;
  add_phases(d, evidence);
  d.curve = thinned_curve(model, options.curve_points);

  const std::string absence = note_on_absence(*evidence.process, options.at, start_ns);
  const std::optional<MemoryState> chosen = chosen_state(evidence, options.at, start_ns);
  if (!chosen) d.at_note = kNoOom;
  MemoryState state = chosen ? *chosen : state_after(model, model.allocated_peak.event);
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

// Whether PyTorch may have retried without a refusal of the driver: a memory fraction refuses by
// itself. Segments are then freed, and a new one is the next event, as after empty_cache().
bool may_have_retried_unseen(const AllocationHistory& model,
                             const std::vector<const FailedAllocation*>& handled) {
  int64_t grown_ns = INT64_MIN;
  const SegmentChange* before = nullptr;
  for (const SegmentChange& change : model.segment_changes) {
    if (change.grows) {
      const bool freed_first =
          before != nullptr && !before->grows && before->event + 1 == change.event;
      const auto refused = [&](const FailedAllocation* f) {
        return f->time_ns > grown_ns && f->time_ns <= change.time_ns;
      };
      if (freed_first && std::none_of(handled.begin(), handled.end(), refused)) {
        return true;
      }
      grown_ns = change.time_ns;
    }
    before = &change;
  }
  return false;
}

// The last failures, in the order of time.
void add_ooms(DeviceReport& d, const DeviceEvidence& evidence) {
  const ProcessModel& process = *evidence.process;
  std::vector<const FailedAllocation*> all = driver_failures(process, d.device);
  if (evidence.model != nullptr) {
    for (const FailedAllocation& f : evidence.model->failures) all.push_back(&f);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto* a, const auto* b) { return a->time_ns < b->time_ns; });
  d.oom_count = all.size();
  for (size_t i = all.size() - std::min(all.size(), kMaxOoms); i < all.size(); ++i) {
    d.ooms.push_back(all[i]->layer == Layer::kDriver
                         ? oom_of(*all[i], process)
                         : oom_of(*evidence.model, *all[i], process.names));
  }
  if (!process.records_driver() || evidence.limit.source == LimitSource::kFraction) {
    return;
  }
  std::vector<const FailedAllocation*> handled;  // by PyTorch, not by a library
  for (const FailedAllocation& f : process.driver.handled) {
    if (f.device == d.device && process.names.string(f.owner) == "torch") handled.push_back(&f);
  }
  if (evidence.model != nullptr && may_have_retried_unseen(*evidence.model, handled)) return;
  uint64_t retries = handled.size();
  if (evidence.model != nullptr) {
    for (const FailedAllocation& f : evidence.model->failures) retries -= f.refusals;
  }
  d.alloc_retries = retries;
}

void add_library_refusals(DeviceReport& d, const ProcessModel& process) {
  std::map<std::string, LibraryRefusals, std::less<>> sums;
  for (const FailedAllocation& f : process.driver.handled) {
    const std::string library(process.names.string(f.owner));
    if (f.device != d.device || library == "torch") continue;
    LibraryRefusals& sum = sums[library];
    sum.library = library;
    ++sum.count;
    sum.largest_bytes = std::max(sum.largest_bytes, f.requested_bytes);
    sum.last_ns = f.time_ns;
  }
  for (auto& [library, sum] : sums) d.library_refusals.push_back(std::move(sum));
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
  d.device_used_peak = device_used_peak(process, d.device);
  if (!process.torch_pools.empty() && d.driver_peak.bytes != 0) {
    d.pool_cache_bytes =
        d.reserved_peak.bytes - std::min(d.reserved_peak.bytes, d.allocated_peak.bytes);
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
  } else {
    d.ledger.time_ns = d.at_ns;
  }
  d.before_recording_bytes = ledgers.before_recording();
  evidence.ledger = d.ledger;
  return d;
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
  uint32_t unknown_until = 0;
  for (const Allocation& a : model.allocations) {
    if (a.requested_bytes == 0 && !a.seeded) unknown_until = std::max(unknown_until, a.death);
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

static uint64_t earlier_errors(const Report& report) {
  uint64_t errors = 0;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) errors += d.run.earlier_errors;
  }
  return errors;
}

bool has_losses(const Report& report) {
  return report.incomplete || report.damage.any() ||
         std::any_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) {
           return rank.loss.events_dropped != 0 || rank.loss.entries_skipped != 0 ||
                  rank.loss.stopped;
         });
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
  std::string length = duration_text(length_ns);
  std::string time = duration_text(time_ns);
  for (int digits = 3; length == time && digits <= 9; ++digits) {
    length = fmt::format("{:.{}f} s", static_cast<double>(length_ns) / 1e9, digits);
    time = fmt::format("{:.{}f} s", static_cast<double>(time_ns) / 1e9, digits);
  }
  return Error{fmt::format("{}: the recording is {} long: it has no {}", model.path, length, time)};
}

// Without PyTorch the memory that may grow is the driver's, which only the finding measures.
static void add_growth_of_driver(Report& report) {
  for (const Finding& f : report.findings) {
    if (f.id != "creep") continue;
    for (RankReport& rank : report.ranks) {
      if (!f.concerns(rank.rank, rank.pid)) continue;
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
  Evidence evidence{&model, &report.comparison, std::move(groundwork.devices), options.part_of_job};
  for (DeviceEvidence& d : evidence.devices) {
    if (options.card_bytes != 0 && !d.ran_out()) {
      d.limit = {options.card_bytes, false, LimitSource::kCard};
    }
  }
  auto next = evidence.devices.begin();
  bool has_instant = options.at.kind != Instant::Kind::kOom;
  for (const ProcessModel& process : model.processes) {
    if (process.info.source == Source::kTorchSnapshot) report.kind = "torch-snapshot";
    if (options.rank && process.info.rank != *options.rank) continue;
    RankReport rank;
    // Without its row (in a ring that cannot be read, for example) nothing is known of a process.
    rank.rank = process.info.source == Source::kNone ? -1 : process.info.rank;
    rank.world_size = process.info.world_size;
    rank.host = process.names.string(process.info.host);
    rank.pid = process.info.pid;
    rank.cupti = process.setting("cupti_subscription");
    rank.loss = loss_of(process);
    rank.pinned = pinned_memory(process, options.stacks);
    report.events += memory_events(process);
    for (; next != evidence.devices.end() && next->process == &process; ++next) {
      ReportOptions here = options;
      move_to_error_of_others(evidence.devices, *next, model.start_ns, here.at);
      rank.devices.push_back(device_report(*next, here, model.start_ns));
      rank.devices.back().device_used_peak =
          used_peak_of_card(model, process, rank.devices.back().device);
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
