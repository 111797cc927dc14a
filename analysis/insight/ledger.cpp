#include "analysis/insight/ledger.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "analysis/load/trace_model.h"

namespace tidemark {

namespace {

constexpr int64_t kNearNs = 2'000'000'000;   // farther samples are not used
constexpr int64_t kOnItsWayNs = 50'000'000;  // delay between driver and allocator events

// The index of the sample nearest to the time; none if it is too far away.
std::optional<size_t> nearest(const StepSeries& samples, int64_t time_ns) {
  const auto& times = samples.time_ns;
  if (times.empty()) return std::nullopt;
  const auto after = std::lower_bound(times.begin(), times.end(), time_ns);
  auto best = static_cast<size_t>(after - times.begin());
  if (best == times.size() || (best > 0 && time_ns - times[best - 1] <= times[best] - time_ns)) {
    --best;
  }
  if (std::abs(times[best] - time_ns) > kNearNs) return std::nullopt;
  return best;
}

// The last of several samples of the same instant is kept.
void put(StepSeries& series, int64_t time_ns, uint64_t value) {
  if (!series.empty() && series.time_ns.back() == time_ns) {
    series.value.back() = value;
    return;
  }
  series.time_ns.push_back(time_ns);
  series.value.push_back(value);
}

void add(Ledger& ledger, std::string owner, int64_t bytes) {
  if (bytes != 0) ledger.lines.push_back({std::move(owner), bytes});
}

// Shows the framework's segments as allocated and cached memory, and returns their bytes. Without
// the bridge, blocks of a late recording are in segments that were not recorded: then less is
// reserved than allocated, and the cache of those segments is part of "pre_attach".
uint64_t add_framework(Ledger& ledger, const MemoryTotals& totals, uint64_t reserved) {
  ledger.lines.push_back({"torch.allocated", static_cast<int64_t>(totals.allocated)});
  const uint64_t cached = reserved - std::min(reserved, totals.allocated);
  ledger.lines.push_back({"torch.cached", static_cast<int64_t>(cached)});
  return reserved;
}

std::optional<MemoryTotals> framework_totals(const ProcessModel& process, int64_t device,
                                             int64_t time_ns) {
  const AllocationHistory* model = process.framework_on(device);
  uint32_t event = 0;
  if (model == nullptr || !model->event_at(time_ns, event)) return std::nullopt;
  return model->totals_after(event);
}

}  // namespace

// Bytes that recorded allocations and counters account for.
struct LedgerSource::Known {
  DriverState driver;
  uint64_t pool_cached = 0;
  uint64_t graph_cached = 0;
  uint64_t own = 0;  // tidemark's

  uint64_t sum() const { return driver.card_bytes + pool_cached + graph_cached + own; }
};

LedgerSource::LedgerSource(const ProcessModel& process, int64_t device)
    : process_(process),
      device_(device),
      late_(process.driver.began_late.contains(device)),
      driver_(process.driver, device) {
  for (const Counter& c : counters_of(CounterKind::kDeviceUsed)) put(used_, c.time_ns, c.value);
  pool_reserved_ = sum_of_latest(CounterKind::kPoolReserved);
  graph_reserved_ = sum_of_latest(CounterKind::kGraphReserved);
  own_ = sum_of_latest(CounterKind::kOwnDevice);
  others_ = sum_of_others();
  find_constant_part();
}

std::vector<Counter> LedgerSource::counters_of(CounterKind kind) const {
  std::vector<Counter> samples;
  for (const Counter& c : process_.counters) {
    if (c.device == device_ && c.kind == kind) samples.push_back(c);
  }
  return samples;
}

// The latest sample of each subject (pool, process) up to a time, added up.
StepSeries LedgerSource::sum_of_latest(CounterKind kind) const {
  StepSeries sums;
  std::map<uint64_t, uint64_t> latest;
  uint64_t sum = 0;
  for (const Counter& c : counters_of(kind)) {
    uint64_t& value = latest[c.subject];
    sum += c.value - value;
    value = c.value;
    put(sums, c.time_ns, sum);
  }
  return sums;
}

// NVML lists the processes of one instant together; a sample that does not list this process is
// unusable.
StepSeries LedgerSource::sum_of_others() const {
  StepSeries others;
  const std::vector<Counter> samples = counters_of(CounterKind::kProcessUsed);
  for (size_t first = 0; first < samples.size();) {
    size_t last = first;
    uint64_t sum = 0;
    bool ours = false;
    for (; last < samples.size() && samples[last].time_ns == samples[first].time_ns; ++last) {
      const bool own = samples[last].subject == process_.info.pid;
      ours |= own;
      if (!own) sum += samples[last].value;
    }
    if (ours) put(others, samples[first].time_ns, sum);
    first = last;
  }
  return others;
}

LedgerSource::Known LedgerSource::known_at(int64_t time_ns) const {
  Known k;
  k.driver = driver_.state_at(time_ns);
  const auto cached = [&](const StepSeries& reserved, MemoryKind kind) {
    const uint64_t held = reserved.at(time_ns);
    const uint64_t used = k.driver.by_kind[static_cast<size_t>(kind)];
    return held > used ? held - used : 0;
  };
  k.pool_cached = cached(pool_reserved_, MemoryKind::kStreamOrdered);
  k.graph_cached = cached(graph_reserved_, MemoryKind::kGraph);
  k.own = own_.at(time_ns);
  return k;
}

// Bytes of other processes, where NVML distinguishes them; false where it does not.
bool LedgerSource::others_at(int64_t time_ns, uint64_t used, uint64_t& bytes) const {
  if (others_.empty()) return false;
  uint64_t sum = others_.at(time_ns);
  if (time_ns < others_.time_ns.front()) {
    // A program that ended before the second sample may have its first one only afterwards.
    if (others_.time_ns.front() - time_ns > kNearNs) return false;
    sum = others_.value.front();
  }
  bytes = std::min(used, sum);
  return true;
}

void LedgerSource::find_constant_part() {
  ConstantPart least{INT64_MAX, 0};
  // A thousand samples of a long run are enough.
  const size_t stride = used_.time_ns.size() / 1000 + 1;
  for (size_t i = 0; i < used_.time_ns.size(); i += stride) {
    const Known k = known_at(used_.time_ns[i]);
    // Before the context, or after its end; a late recording needs no known allocation.
    if (k.driver.card_bytes == 0 && !late_) continue;
    uint64_t others = 0;
    others_at(used_.time_ns[i], used_.value[i], others);
    const int64_t rest = static_cast<int64_t>(used_.value[i]) - static_cast<int64_t>(others) -
                         static_cast<int64_t>(k.sum());
    // A sample taken during a driver call may lack what the driver had just allocated.
    if (rest < 0 || rest >= least.bytes) continue;
    least = {rest, used_.time_ns[i]};
    if (late_) put(before_, least.time_ns, static_cast<uint64_t>(rest));
  }
  if (least.bytes != INT64_MAX) constant_ = least;
}

LedgerSource::ConstantPart LedgerSource::constant_at(int64_t time_ns) const {
  if (!late_ || before_.empty()) return constant_;
  return {static_cast<int64_t>(before_.at(time_ns)), before_.time_ns.front()};
}

uint64_t LedgerSource::torch_driver_at(int64_t time_ns) const {
  uint64_t bytes = 0;
  for (const auto& [owner, series] : driver_.owners()) {
    if (process_.names.string(owner) == "torch") bytes += series.at(time_ns);
  }
  return bytes;
}

// The driver reports a segment a moment before the allocator does, and frees it a moment after: two
// threads may record it, and the card may be sampled in between. The smallest difference around the
// instant is real; the rest is segments in transit.
uint64_t LedgerSource::reserved_at(int64_t time_ns, const MemoryTotals& totals) const {
  const auto difference = [&](int64_t time, const MemoryTotals& then) {
    return static_cast<int64_t>(torch_driver_at(time)) - static_cast<int64_t>(then.reserved);
  };
  const int64_t now = difference(time_ns, totals);
  if (now == 0 || torch_driver_at(time_ns) == 0) return totals.reserved;
  int64_t least = now;
  const auto look = [&](int64_t time) {
    const auto then = framework_totals(process_, device_, time);
    if (!then || torch_driver_at(time) == 0) return;
    const int64_t other = difference(time, *then);
    if (std::abs(other) < std::abs(least)) least = other;
  };
  constexpr size_t kMostSteps = 64;  // on each side
  for (const auto& [owner, series] : driver_.owners()) {
    if (process_.names.string(owner) != "torch") continue;
    const auto& times = series.time_ns;
    const auto here =
        static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time_ns) - times.begin());
    // Right before a step, segments in transit have arrived.
    for (size_t i = here; i < times.size() && i < here + kMostSteps; ++i) {
      if (times[i] - time_ns > kOnItsWayNs) break;
      look(times[i] - 1);
    }
    for (size_t i = here; i > 0 && i + kMostSteps > here; --i) {
      if (time_ns - times[i - 1] > kOnItsWayNs) break;
      look(times[i - 1] - 1);
    }
  }
  look(time_ns + kOnItsWayNs);
  look(time_ns - kOnItsWayNs);
  const int64_t reserved = static_cast<int64_t>(totals.reserved) + now - least;
  return static_cast<uint64_t>(std::max<int64_t>(reserved, 0));
}

Ledger LedgerSource::at(int64_t time_ns, const MemoryTotals* exact) const {
  const std::optional<size_t> first = nearest(used_, time_ns);
  if (!first) return draw(time_ns, std::nullopt, exact);
  // A sample taken during a driver call may lack what the driver had just allocated: then the next
  // nearest one on either side is tried.
  size_t before = *first;
  size_t after = *first + 1;
  const auto distance = [&](size_t sample) { return std::abs(used_.time_ns[sample] - time_ns); };
  const auto near = [&](size_t sample) {
    return sample < used_.time_ns.size() && distance(sample) <= kNearNs;
  };
  for (size_t sample = *first; near(sample);) {
    Ledger ledger = draw(used_.time_ns[sample], sample, nullptr);
    if (ledger.lines.back().bytes >= 0) return ledger;
    if (sample == before) --before;  // below zero it wraps and is no longer near
    if (sample == after) ++after;
    const bool left = near(before) && (!near(after) || distance(before) <= distance(after));
    sample = left ? before : after;
  }
  return draw(time_ns, std::nullopt, exact);  // the samples contradict the recording
}

Ledger LedgerSource::draw(int64_t time_ns, std::optional<size_t> sample,
                          const MemoryTotals* exact) const {
  Ledger ledger;
  ledger.time_ns = time_ns;
  auto totals = framework_totals(process_, device_, time_ns);
  if (!sample && exact != nullptr) totals = *exact;
  const uint64_t reserved =
      totals ? add_framework(ledger, *totals, reserved_at(time_ns, *totals)) : 0;
  const Known k = known_at(ledger.time_ns);
  for (const auto& [owner, bytes] : k.driver.card_by_owner) {
    std::string name(process_.names.string(owner));
    if (name.empty()) name = "unknown";
    // Segments are the torch lines above; other memory of torch stays under its own name.
    const uint64_t shown = name == "torch" ? bytes - std::min(bytes, reserved) : bytes;
    add(ledger, name == "torch" && reserved != 0 ? "torch.other" : name,
        static_cast<int64_t>(shown));
  }
  add(ledger, "pool.cached", static_cast<int64_t>(k.pool_cached));
  add(ledger, "graph.cached", static_cast<int64_t>(k.graph_cached));
  add(ledger, "tidemark", static_cast<int64_t>(k.own));
  if (!sample) return ledger;

  ledger.device_used_bytes = used_.value[*sample];
  uint64_t others = 0;
  ledger.shared_card = !others_at(ledger.time_ns, ledger.device_used_bytes, others);
  add(ledger, "other_processes", static_cast<int64_t>(others));
  auto rest = static_cast<int64_t>(ledger.device_used_bytes);
  for (const LedgerLine& line : ledger.lines) rest -= line.bytes;
  // A context from before the recording is part of "pre_attach".
  const ConstantPart constant = constant_at(ledger.time_ns);
  const int64_t context = std::clamp<int64_t>(constant.bytes, 0, std::max<int64_t>(0, rest));
  add(ledger, late_ ? "pre_attach" : "context", context);
  rest -= context;
  // Code loaded since then takes about the size of its file; the driver does not report it.
  const uint64_t before = driver_.state_at(constant.time_ns).code_bytes;
  const auto loaded =
      static_cast<int64_t>(k.driver.code_bytes - std::min(k.driver.code_bytes, before));
  const int64_t code = std::clamp<int64_t>(loaded, 0, std::max<int64_t>(0, rest));
  add(ledger, "code", code);
  ledger.lines.push_back({"unexplained", rest - code});
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
