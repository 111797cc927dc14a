#include "analysis/insight/card/ledger.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "analysis/insight/card/limit.h"
#include "analysis/load/trace_model.h"

namespace tidemark {

namespace {

constexpr int64_t kNearNs = 2'000'000'000;  // farther readings are a last resort
constexpr int64_t kFarNs = 60'000'000'000;  // and even farther ones useless
constexpr int64_t kMarginNs = 300'000'000;  // of the first and the last reading
constexpr int64_t kAtWorkNs = 5'000'000;    // a driver call may take that long
constexpr int64_t kHeldUpNs = 100'000'000;  // and a thread may wait that long for a processor

// The last of several readings of the same instant is kept.
void put(StepSeries& series, int64_t time_ns, uint64_t value) {
  if (!series.empty() && series.time_ns.back() == time_ns) {
    series.value.back() = value;
    return;
  }
  series.time_ns.push_back(time_ns);
  series.value.push_back(value);
}

void add(std::vector<LedgerLine>& lines, std::string owner, int64_t bytes) {
  if (bytes != 0) lines.push_back({std::move(owner), bytes});
}

int64_t sum_of(const std::vector<LedgerLine>& lines) {
  int64_t sum = 0;
  for (const LedgerLine& line : lines) sum += line.bytes;
  return sum;
}

bool has_step_between(const StepSeries& series, int64_t from_ns, int64_t to_ns) {
  const auto& times = series.time_ns;
  const auto next = std::lower_bound(times.begin(), times.end(), from_ns);
  return next != times.end() && *next <= to_ns;
}

// What was sampled last; or next, if the driver did nothing until then.
uint64_t sampled_at(const StepSeries& samples, const StepSeries& card, int64_t time_ns) {
  const auto& times = samples.time_ns;
  const auto next = std::lower_bound(times.begin(), times.end(), time_ns);
  if (next == times.end() || has_step_between(card, time_ns + 1, *next)) {
    return samples.at(time_ns);
  }
  return samples.value[static_cast<size_t>(next - times.begin())];
}

std::optional<MemoryTotals> framework_totals(const ProcessModel& process, int64_t device,
                                             int64_t time_ns) {
  const AllocationHistory* model = process.framework_on(device);
  uint32_t event = 0;
  if (model == nullptr || !model->state_event_at(time_ns, event)) return std::nullopt;
  return model->totals_after(event);
}

// What PyTorch allocated for the next segment that it records, or for the next part of an
// expandable one: that takes it some microseconds, and the driver's peak is often in between.
uint64_t becoming_segment(const ProcessModel& process, int64_t device, int64_t time_ns) {
  const AllocationHistory* history = process.framework_on(device);
  if (history == nullptr) return 0;
  const auto& changes = history->segment_changes;
  const auto next = std::partition_point(
      changes.begin(), changes.end(), [&](const SegmentChange& c) { return c.time_ns <= time_ns; });
  if (next == changes.end() || !next->grows) return 0;
  const int64_t since_ns = next == changes.begin() ? INT64_MIN : (next - 1)->time_ns;
  const std::vector<DriverAllocation>& all = process.driver.allocations;
  const auto counts = [&](const DriverAllocation& a, uint64_t address) {
    return a.birth_ns >= since_ns && a.birth_ns <= time_ns && a.death_ns > next->time_ns &&
           a.device == device && a.on_card() && a.size_bytes <= next->size_bytes &&
           address >= next->address && address - next->address <= next->size_bytes - a.size_bytes &&
           process.names.string(a.owner) == "torch";
  };
  const auto first_since = [&](const auto& rows) {
    return std::partition_point(rows.begin(), rows.end(),
                                [&](const auto& row) { return row.birth_ns < since_ns; });
  };
  uint64_t bytes = 0;
  for (auto a = first_since(all); a != all.end() && a->birth_ns <= time_ns; ++a) {
    if (a->kind != MemoryKind::kVirtual && counts(*a, a->address)) bytes += a->size_bytes;
  }
  const auto& mappings = process.driver.mappings;
  for (auto m = first_since(mappings); m != mappings.end() && m->birth_ns <= next->time_ns; ++m) {
    const DriverAllocation& a = all[m->allocation];
    if (counts(a, m->address)) bytes += std::min(a.size_bytes, m->size_bytes);
  }
  return bytes;
}

// Of PyTorch's segments, on the card.
uint64_t resident_bytes(const MemoryTotals& totals, uint64_t becoming, uint64_t asleep) {
  return totals.reserved - std::min(totals.reserved, asleep) + becoming;
}

}  // namespace

LedgerSource::LedgerSource(const ProcessModel& process, int64_t device)
    : process_(process),
      device_(device),
      late_(process.driver.began_late.contains(device)),
      driver_(process.driver, device),
      residence_(process, device) {
  for (const Counter& c : counters_of(CounterKind::kDeviceUsed)) put(used_, c.time_ns, c.value);
  for (const Counter& c : counters_of(CounterKind::kReadingAtRest)) at_rest_.push_back(c.time_ns);
  pool_reserved_ = sum_of_latest(CounterKind::kPoolReserved);
  graph_reserved_ = sum_of_latest(CounterKind::kGraphReserved);
  for (const Counter& c : counters_of(CounterKind::kOwnDevice)) put(own_, c.time_ns, c.value);
  lists_ = process_lists();
  find_card_part();
  find_constant_part();
}

std::vector<Counter> LedgerSource::counters_of(CounterKind kind) const {
  std::vector<Counter> samples;
  for (const Counter& c : process_.counters) {
    if (c.device == device_ && c.kind == kind) samples.push_back(c);
  }
  return samples;
}

// The latest sample of each subject (pool, process) up to a time, added up. The subjects end with
// the last context.
StepSeries LedgerSource::sum_of_latest(CounterKind kind) const {
  StepSeries sums;
  std::map<uint64_t, uint64_t> latest;
  uint64_t sum = 0;
  const StepSeries& contexts = driver_.contexts();
  size_t next = 0;
  const auto end_with_contexts = [&](int64_t until_ns) {
    for (; next < contexts.time_ns.size() && contexts.time_ns[next] <= until_ns; ++next) {
      if (contexts.value[next] != 0 || sum == 0) continue;
      latest.clear();
      sum = 0;
      put(sums, contexts.time_ns[next], 0);
    }
  };
  for (const Counter& c : counters_of(kind)) {
    end_with_contexts(c.time_ns);
    uint64_t& value = latest[c.subject];
    sum += c.value - value;
    value = c.value;
    put(sums, c.time_ns, sum);
  }
  end_with_contexts(INT64_MAX);
  return sums;
}

// NVML lists the processes of one instant together; a list without this process is unusable.
std::vector<LedgerSource::ProcessList> LedgerSource::process_lists() const {
  std::vector<ProcessList> lists;
  const std::vector<Counter> samples = counters_of(CounterKind::kProcessUsed);
  for (size_t first = 0; first < samples.size();) {
    ProcessList list{samples[first].time_ns, 0, 0};
    bool ours = false;
    for (; first < samples.size() && samples[first].time_ns == list.time_ns; ++first) {
      const bool own = samples[first].subject == process_.info.pid;
      ours |= own;
      (own ? list.own_bytes : list.other_bytes) += samples[first].value;
    }
    if (ours) lists.push_back(list);
  }
  return lists;
}

uint64_t LedgerSource::torch_driver_bytes(const DriverState& state) const {
  uint64_t bytes = 0;
  for (const auto& [owner, held] : state.card_by_owner) {
    if (process_.names.string(owner) == "torch") bytes += held;
  }
  return bytes;
}

// Memory inside PyTorch's segments that was not created by PyTorch.
uint64_t LedgerSource::inside_of_others(int64_t time_ns) const {
  uint64_t bytes = 0;
  for (const auto& [owner, series] : residence_.inside()) {
    if (process_.names.string(owner) != "torch") bytes += series.at(time_ns);
  }
  return bytes;
}

std::vector<LedgerLine> LedgerSource::recorded_lines(int64_t time_ns,
                                                     const MemoryTotals* exact) const {
  std::vector<LedgerLine> lines;
  auto totals = framework_totals(process_, device_, time_ns);
  if (exact != nullptr) totals = *exact;
  const DriverState driver = driver_.state_at(time_ns);
  if (totals) {
    // Without the bridge, blocks of a late recording are in segments that were not recorded: then
    // less is reserved than allocated, and the cache of those segments is part of "pre_attach".
    const uint64_t becoming = becoming_segment(process_, device_, time_ns);
    const uint64_t reserved = process_.torch_pools.empty()
                                  ? totals->reserved + becoming
                                  : sampled_at(pool_reserved_, driver_.card(), time_ns);
    const uint64_t not_allocated = reserved - std::min(reserved, totals->allocated);
    const uint64_t pending = std::min(totals->pending(), not_allocated);
    const uint64_t cached = not_allocated - pending;
    const uint64_t asleep = residence_.asleep().at(time_ns);
    const uint64_t asleep_in_use = std::min(residence_.asleep_in_use(time_ns), totals->allocated);
    const uint64_t asleep_rest = asleep - std::min(asleep, asleep_in_use);
    const uint64_t asleep_cached = std::min(asleep_rest, cached);
    const uint64_t asleep_pending = std::min(asleep_rest - asleep_cached, pending);
    lines.push_back({"torch.allocated", static_cast<int64_t>(totals->allocated - asleep_in_use)});
    add(lines, "torch.pending", static_cast<int64_t>(pending - asleep_pending));
    lines.push_back({"torch.cached", static_cast<int64_t>(cached - asleep_cached)});
    // Segments are the lines above; other memory of torch has its own.
    const uint64_t torch = torch_driver_bytes(driver) + inside_of_others(time_ns);
    const uint64_t resident = resident_bytes(*totals, becoming, asleep);
    add(lines, "torch.other", static_cast<int64_t>(torch - std::min(torch, resident)));
  }
  for (const auto& [owner, bytes] : driver.card_by_owner) {
    std::string name(process_.names.string(owner));
    if (totals && name == "torch") continue;
    const auto inside = residence_.inside().find(owner);
    const uint64_t torchs =
        totals && inside != residence_.inside().end() ? inside->second.at(time_ns) : 0;
    add(lines, name.empty() ? "unknown" : std::move(name),
        static_cast<int64_t>(bytes - std::min(bytes, torchs)));
  }
  const auto cached = [&](const StepSeries& reserved, MemoryKind kind) {
    const uint64_t held = sampled_at(reserved, driver_.card(), time_ns);
    return static_cast<int64_t>(held - std::min(held, driver.by_kind[static_cast<size_t>(kind)]));
  };
  // With the backend cudaMallocAsync, PyTorch's cache is the pool's.
  if (!totals || process_.torch_pools.empty()) {
    add(lines, "pool.cached", cached(pool_reserved_, MemoryKind::kStreamOrdered));
  }
  add(lines, "graph.cached", cached(graph_reserved_, MemoryKind::kGraph));
  if (!contexts_gone_at(time_ns)) {
    add(lines, "tidemark", static_cast<int64_t>(own_.at(time_ns)));
  }
  return lines;
}

// PyTorch records that a segment is gone after the driver has freed it: in between, the card does
// not have what PyTorch still counts.
int64_t LedgerSource::recorded_bytes(int64_t time_ns) const {
  const int64_t bytes = sum_of(recorded_lines(time_ns, nullptr));
  const auto totals = framework_totals(process_, device_, time_ns);
  if (!totals || late_ || !process_.torch_pools.empty()) return bytes;
  const uint64_t torch = torch_driver_bytes(driver_.state_at(time_ns)) + inside_of_others(time_ns);
  const uint64_t asleep = residence_.asleep().at(time_ns);
  const uint64_t resident =
      resident_bytes(*totals, becoming_segment(process_, device_, time_ns), asleep);
  const bool knows_segments = torch != 0;
  return knows_segments && torch < resident ? bytes - static_cast<int64_t>(resident - torch)
                                            : bytes;
}

// What this process has beyond the recorded, by the list nearest in time; one that was made while
// the driver allocated much is a last resort. Code loaded between the two times is accounted for.
std::optional<int64_t> LedgerSource::own_rest_near(int64_t time_ns) const {
  constexpr size_t kMostTried = 64;
  constexpr uint64_t kLittle = uint64_t{32} << 20;
  const StepSeries& card = driver_.card();
  const auto code_at = [&](int64_t then) {
    return static_cast<int64_t>(driver_.state_at(then).code_bytes);
  };
  std::optional<int64_t> last_resort;
  auto after = static_cast<size_t>(first_list_from(time_ns) - lists_.begin());
  size_t before = after;  // the next one on that side is before - 1
  for (size_t tried = 0; tried < kMostTried && (before > 0 || after < lists_.size()); ++tried) {
    const bool left =
        after == lists_.size() ||
        (before > 0 && time_ns - lists_[before - 1].time_ns <= lists_[after].time_ns - time_ns);
    const ProcessList& list = lists_[left ? --before : after++];
    const int64_t then = static_cast<int64_t>(list.own_bytes) - recorded_bytes(list.time_ns);
    const int64_t rest = then + code_at(time_ns) - code_at(list.time_ns);
    if (then < 0 || rest < 0) continue;
    const uint64_t changed =
        card.at(list.time_ns + kAtWorkNs) -
        std::min(card.at(list.time_ns + kAtWorkNs),
                 card.lowest(list.time_ns - kAtWorkNs, list.time_ns + kAtWorkNs));
    if (changed <= kLittle) return rest;
    if (!last_resort) last_resort = rest;
  }
  return last_resort;
}

std::vector<LedgerSource::ProcessList>::const_iterator LedgerSource::first_list_from(
    int64_t time_ns) const {
  return std::lower_bound(lists_.begin(), lists_.end(), time_ns,
                          [](const ProcessList& l, int64_t t) { return l.time_ns < t; });
}

// Bytes of other processes, where NVML distinguishes them.
std::optional<uint64_t> LedgerSource::others_at(size_t reading) const {
  const int64_t time_ns = used_.time_ns[reading];
  const auto after = first_list_from(time_ns);
  const auto before = after == lists_.begin() ? after : after - 1;
  // A program that ended before the second list may have its first one only afterwards.
  if (before == lists_.end() || before->time_ns - time_ns > kNearNs) return std::nullopt;
  const ProcessList& next = after == lists_.end() ? *before : *after;
  if (before->other_bytes == 0 && next.other_bytes == 0) return 0;
  const auto used = static_cast<int64_t>(used_.value[reading]);
  const auto own_rest = contexts_gone_at(time_ns) ? 0 : own_rest_near(time_ns);
  if (!own_rest) return std::min(used_.value[reading], before->other_bytes);
  const int64_t own = *own_rest + recorded_bytes(time_ns);
  return static_cast<uint64_t>(std::max<int64_t>(0, used - own - card_part_));
}

int64_t LedgerSource::rest_of(size_t reading) const {
  return static_cast<int64_t>(used_.value[reading]) -
         static_cast<int64_t>(others_at(reading).value_or(0)) -
         recorded_bytes(used_.time_ns[reading]);
}

bool LedgerSource::has_context_at(int64_t time_ns) const {
  if (contexts_gone_at(time_ns)) return false;
  const auto& times = driver_.card().time_ns;
  return late_ || (!times.empty() && time_ns >= times.front());
}

// Where NVML lists nobody, a card that is unused without this process's contexts is its own.
bool LedgerSource::may_be_shared() const {
  constexpr uint64_t kUnused = uint64_t{64} << 20;  // by firmware
  const StepSeries& contexts = driver_.contexts();
  const bool listed = std::any_of(
      process_.counters.begin(), process_.counters.end(),
      [&](const Counter& c) { return c.device == device_ && c.kind == CounterKind::kProcessUsed; });
  if (listed || contexts.empty() || late_) return true;
  for (size_t i = 0; i < used_.time_ns.size(); ++i) {
    const int64_t time_ns = used_.time_ns[i];
    const bool without = time_ns < contexts.time_ns.front() || contexts_gone_at(time_ns);
    if (without && used_.value[i] < driver_.card().at(time_ns) + kUnused) return false;
  }
  return true;
}

bool LedgerSource::contexts_gone_at(int64_t time_ns) const {
  const StepSeries& contexts = driver_.contexts();
  return !contexts.empty() && time_ns >= contexts.time_ns.front() && contexts.at(time_ns) == 0;
}

// How far a reading's time can be from that of a driver call it saw, or did not see. A recorder
// that marks readings at rest did not mark this one: a call ran meanwhile.
int64_t LedgerSource::uncertain_ns() const {
  return at_rest_.empty() ? kAtWorkNs : kHeldUpNs;
}

bool LedgerSource::driver_rests_at(int64_t reading_ns) const {
  if (std::binary_search(at_rest_.begin(), at_rest_.end(), reading_ns)) return true;
  return !has_step_between(driver_.card(), reading_ns - uncertain_ns(),
                           reading_ns + uncertain_ns());
}

// The card's use beyond all processes, by the lists around which the card changed least: another
// process may have been at work between a list and the readings before and after it.
void LedgerSource::find_card_part() {
  const auto& times = used_.time_ns;
  const auto not_recorded = [&](int64_t time_ns, uint64_t used) {
    return static_cast<int64_t>(used) - static_cast<int64_t>(driver_.card().at(time_ns));
  };
  std::vector<int64_t> beyond;
  int64_t least_change = INT64_MAX;
  for (const ProcessList& list : lists_) {
    const auto next = std::lower_bound(times.begin(), times.end(), list.time_ns);
    if (next == times.begin() || next == times.end()) continue;
    const auto after = static_cast<size_t>(next - times.begin());
    const int64_t then = not_recorded(times[after - 1], used_.value[after - 1]);
    const int64_t change = std::abs(not_recorded(times[after], used_.value[after]) - then);
    if (change > least_change) continue;
    if (change < least_change) beyond.clear();
    least_change = change;
    beyond.push_back(then - not_recorded(list.time_ns, list.own_bytes + list.other_bytes));
  }
  if (beyond.empty()) return;
  const auto middle = beyond.begin() + static_cast<ptrdiff_t>(beyond.size() / 2);
  std::nth_element(beyond.begin(), middle, beyond.end());
  card_part_ = std::max<int64_t>(0, *middle);
}

void LedgerSource::find_constant_part() {
  ConstantPart least{INT64_MAX, 0};
  // What is older than the recording is listed at its beginning; the driver did nothing then.
  int64_t seeded_ns = INT64_MIN;
  for (const DriverAllocation& a : process_.driver.allocations) {
    if (a.device == device_ && (a.flags & kDriverSeeded) != 0)
      seeded_ns = std::max(seeded_ns, a.birth_ns);
  }
  // A thousand readings of a long run are enough.
  const size_t stride = used_.time_ns.size() / 1000 + 1;
  for (size_t i = 0; i < used_.time_ns.size(); i += stride) {
    const int64_t time_ns = used_.time_ns[i];
    if (!has_context_at(time_ns)) continue;
    // Where the driver was at work, the reading may lack any of its allocations of that time.
    const StepSeries& card = driver_.card();
    int64_t from_ns = time_ns - uncertain_ns();
    if (time_ns >= seeded_ns) from_ns = std::max(from_ns, seeded_ns);
    const uint64_t uncertain =
        driver_rests_at(time_ns)
            ? 0
            : card.at(time_ns) - card.lowest(from_ns, time_ns + uncertain_ns());
    const int64_t rest = rest_of(i) + static_cast<int64_t>(uncertain);
    if (rest < 0 || rest >= least.bytes) continue;
    least = {rest, time_ns};
    if (late_) put(before_, time_ns, static_cast<uint64_t>(rest));
  }
  if (least.bytes != INT64_MAX) constant_ = least;
}

LedgerSource::ConstantPart LedgerSource::constant_at(int64_t time_ns) const {
  if (!late_ || before_.empty()) return constant_;
  return {static_cast<int64_t>(before_.at(time_ns)), before_.time_ns.front()};
}

uint64_t LedgerSource::recorded_outside_torch(int64_t time_ns) const {
  constexpr std::array<std::string_view, 3> kSegments{"torch.allocated", "torch.pending",
                                                      "torch.cached"};
  int64_t bytes = 0;
  for (const LedgerLine& line : recorded_lines(time_ns, nullptr)) {
    if (std::find(kSegments.begin(), kSegments.end(), line.owner) == kSegments.end()) {
      bytes += line.bytes;
    }
  }
  return static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
}

std::optional<uint64_t> LedgerSource::own_outside_torch(int64_t time_ns) const {
  if (contexts_gone_at(time_ns)) return std::nullopt;
  std::optional<int64_t> rest = own_rest_near(time_ns);
  if (!rest) {
    const std::optional<size_t> reading = usable_reading(time_ns);
    if (!reading) return std::nullopt;
    rest = std::max<int64_t>(rest_of(*reading), 0);
    // Where nobody tells the processes apart, more than a context is others' as far as anybody
    // knows.
    if (may_be_shared()) rest = std::min(*rest, static_cast<int64_t>(kContextBytes));
  }
  return static_cast<uint64_t>(*rest) + recorded_outside_torch(time_ns);
}

// When the driver's memory outside PyTorch is highest; it may be between two readings.
std::optional<int64_t> LedgerSource::driver_peak_outside_torch() const {
  std::map<int64_t, int64_t> changes;
  for (const DriverAllocation& a : process_.driver.allocations) {
    if (!a.on_card() || a.device != device_ || process_.names.string(a.owner) == "torch") continue;
    changes[a.birth_ns] += static_cast<int64_t>(a.size_bytes);
    if (a.death_ns != INT64_MAX) changes[a.death_ns] -= static_cast<int64_t>(a.size_bytes);
  }
  int64_t held = 0;
  int64_t most = 0;
  std::optional<int64_t> peak_ns;
  for (const auto& [time_ns, change] : changes) {
    held += change;
    if (held <= most) continue;
    most = held;
    peak_ns = time_ns;
  }
  return peak_ns;
}

std::optional<uint64_t> LedgerSource::most_own_outside_torch() const {
  std::vector<int64_t> times;
  if (const auto peak_ns = driver_peak_outside_torch()) times.push_back(*peak_ns);
  // A thousand readings of a long run are enough.
  const size_t count = lists_.empty() ? used_.time_ns.size() : lists_.size();
  for (size_t i = 0; i < count; i += count / 1000 + 1) {
    times.push_back(lists_.empty() ? used_.time_ns[i] : lists_[i].time_ns);
  }
  std::optional<uint64_t> most;
  for (const int64_t time_ns : times) {
    const std::optional<uint64_t> bytes = own_outside_torch(time_ns);
    if (bytes && (!most || *bytes > *most)) most = bytes;
  }
  return most;
}

uint64_t LedgerSource::most_recorded_outside_torch() const {
  const std::optional<int64_t> peak_ns = driver_peak_outside_torch();
  return peak_ns ? recorded_outside_torch(*peak_ns) : 0;
}

bool LedgerSource::has_other_processes() const {
  if (lists_.empty()) return !used_.empty() && may_be_shared();
  return std::any_of(lists_.begin(), lists_.end(),
                     [](const ProcessList& list) { return list.other_bytes != 0; });
}

std::optional<uint64_t> LedgerSource::before_recording() const {
  if (!late_) return 0;
  if (before_.empty()) return std::nullopt;
  return before_.value.front();  // it can only shrink
}

// The nearest reading that was taken while the driver was at rest; else the nearest that is at
// least large enough for everything recorded.
std::optional<size_t> LedgerSource::usable_reading(int64_t time_ns) const {
  constexpr size_t kMostTried = 256;
  const auto& times = used_.time_ns;
  auto after =
      static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time_ns) - times.begin());
  size_t before = after;  // the next one on that side is before - 1
  std::optional<size_t> large_enough;
  if (times.empty()) return large_enough;
  // Before the first reading and after the last, the process may not have been there.
  const int64_t interval = (times.back() - times.front()) / static_cast<int64_t>(times.size());
  const int64_t margin = std::max(kMarginNs, 2 * interval);
  if (time_ns < times.front() - margin || time_ns > times.back() + margin) return large_enough;
  for (size_t tried = 0; tried < kMostTried && (before > 0 || after < times.size()); ++tried) {
    const bool left = after == times.size() ||
                      (before > 0 && time_ns - times[before - 1] <= times[after] - time_ns);
    const size_t reading = left ? --before : after++;
    const int64_t distance = std::abs(times[reading] - time_ns);
    if (distance > (large_enough ? kNearNs : kFarNs)) break;
    if (has_context_at(time_ns) != has_context_at(times[reading]) ||
        contexts_gone_at(time_ns) != contexts_gone_at(times[reading])) {
      continue;
    }
    if (rest_of(reading) < 0) continue;
    if (driver_rests_at(times[reading])) return reading;
    if (!large_enough) large_enough = reading;
  }
  return large_enough;
}

Ledger LedgerSource::at(int64_t time_ns, const MemoryTotals* exact) const {
  Ledger ledger;
  ledger.time_ns = time_ns;
  ledger.lines = recorded_lines(time_ns, exact);
  ledger.not_resident_bytes = residence_.asleep().at(time_ns);
  const std::optional<size_t> reading = usable_reading(time_ns);
  if (!reading) return ledger;
  ledger.reading = {used_.time_ns[*reading], used_.value[*reading]};
  const std::optional<uint64_t> others = others_at(*reading);
  ledger.shared_card = !others && may_be_shared();
  add(ledger.lines, "other_processes", static_cast<int64_t>(others.value_or(0)));
  int64_t rest = rest_of(*reading);
  // A context from before the recording is part of "pre_attach".
  const ConstantPart constant = constant_at(ledger.reading->time_ns);
  const int64_t context =
      contexts_gone_at(time_ns) ? 0 : std::clamp<int64_t>(constant.bytes, 0, rest);
  add(ledger.lines, late_ ? "pre_attach" : "context", context);
  rest -= context;
  // Code loaded since then takes about the size of its file; the driver does not report it.
  const auto code_at = [&](int64_t then) { return driver_.state_at(then).code_bytes; };
  const uint64_t now = code_at(ledger.reading->time_ns);
  const auto loaded = static_cast<int64_t>(now - std::min(now, code_at(constant.time_ns)));
  const int64_t code = std::clamp<int64_t>(loaded, 0, rest);
  add(ledger.lines, "code", code);
  ledger.lines.push_back({"unexplained", rest - code});
  ledger.device_used_bytes = static_cast<uint64_t>(sum_of(ledger.lines));
  return ledger;
}

Ledger ledger_at(const ProcessModel& process, int64_t device, int64_t time_ns,
                 const MemoryTotals* exact) {
  return LedgerSource(process, device).at(time_ns, exact);
}

Peak device_used_peak(const ProcessModel& process, int64_t device) {
  Peak peak;
  for (const Counter& c : process.counters) {
    if (c.device == device && c.kind == CounterKind::kDeviceUsed && c.value > peak.bytes) {
      peak = {c.value, c.time_ns, 0};
    }
  }
  return peak;
}

}  // namespace tidemark
