#include "analysis/ledger.h"

#include <algorithm>
#include <optional>

#include "analysis/trace_model.h"

namespace tidemark {

namespace {

constexpr int64_t kNearNs = 2'000'000'000;  // a sample further away says nothing about the instant

std::vector<Counter> samples_of(const ProcessModel& process, int64_t device, CounterKind kind) {
  std::vector<Counter> samples;
  for (const Counter& c : process.counters) {
    if (c.device == device && c.kind == kind) samples.push_back(c);
  }
  return samples;
}

const Counter* nearest(const std::vector<Counter>& samples, int64_t time_ns) {
  const Counter* best = nullptr;
  for (const Counter& c : samples) {
    const int64_t distance = std::abs(c.time_ns - time_ns);
    if (distance <= kNearNs && (best == nullptr || distance < std::abs(best->time_ns - time_ns))) {
      best = &c;
    }
  }
  return best;
}

// The latest sample of each subject (pool, process) up to a time, added up.
uint64_t latest_sum(const ProcessModel& process, int64_t device, CounterKind kind,
                    int64_t time_ns) {
  std::map<uint64_t, uint64_t> latest;
  for (const Counter& c : process.counters) {
    if (c.device == device && c.kind == kind && c.time_ns <= time_ns) latest[c.subject] = c.value;
  }
  uint64_t sum = 0;
  for (const auto& [subject, value] : latest) sum += value;
  return sum;
}

// Bytes that recorded allocations and counters account for.
struct Known {
  DriverState driver;
  uint64_t pool_cached = 0;
  uint64_t graph_cached = 0;
  uint64_t own = 0;  // tidemark's

  uint64_t sum() const { return driver.card_bytes + pool_cached + graph_cached + own; }
};

Known known_at(const ProcessModel& process, int64_t device, int64_t time_ns) {
  Known k;
  k.driver = driver_state_at(process.driver, device, time_ns);
  const auto cached = [&](CounterKind reserved, MemoryKind kind) {
    const uint64_t held = latest_sum(process, device, reserved, time_ns);
    const uint64_t used = k.driver.by_kind[static_cast<size_t>(kind)];
    return held > used ? held - used : 0;
  };
  k.pool_cached = cached(CounterKind::kPoolReserved, MemoryKind::kStreamOrdered);
  k.graph_cached = cached(CounterKind::kGraphReserved, MemoryKind::kGraph);
  k.own = latest_sum(process, device, CounterKind::kOwnDevice, time_ns);
  return k;
}

// Bytes of other processes, as far as NVML tells them apart.
std::optional<uint64_t> others_at(const ProcessModel& process, int64_t device, uint64_t used,
                                  int64_t time_ns) {
  const auto samples = samples_of(process, device, CounterKind::kProcessUsed);
  const Counter* ours = nullptr;
  for (const Counter& c : samples) {
    if (c.subject != process.info.pid) continue;
    // A program that was over before the second sample may have its first one only after.
    const bool first_after = ours == nullptr && c.time_ns - time_ns <= kNearNs;
    if (c.time_ns <= time_ns || first_after) ours = &c;
  }
  if (ours == nullptr) return std::nullopt;
  uint64_t others = 0;
  for (const Counter& c : samples) {
    if (c.subject != process.info.pid && c.time_ns == ours->time_ns) others += c.value;
  }
  return std::min(used, others);
}

// What is used beyond the known, where it is least over all samples after the first allocation.
// That part is there from the start and never goes: context, firmware's share, code loaded at once.
struct ConstantPart {
  int64_t bytes = 0;
  int64_t time_ns = 0;
};

ConstantPart constant_part(const ProcessModel& process, int64_t device,
                           const std::vector<Counter>& used) {
  ConstantPart least{INT64_MAX, 0};
  // A long run has a hundred thousand samples, each costing a pass: a thousand tell enough.
  const size_t stride = used.size() / 1000 + 1;
  for (size_t i = 0; i < used.size(); i += stride) {
    const Known k = known_at(process, device, used[i].time_ns);
    if (k.driver.card_bytes == 0) continue;  // before the context, or after its end
    const uint64_t others = others_at(process, device, used[i].value, used[i].time_ns).value_or(0);
    const int64_t rest = static_cast<int64_t>(used[i].value) - static_cast<int64_t>(others) -
                         static_cast<int64_t>(k.sum());
    // A sample taken while the driver was at work may lack what it had just given out.
    if (rest >= 0 && rest < least.bytes) least = {rest, used[i].time_ns};
  }
  return least.bytes == INT64_MAX ? ConstantPart{} : least;
}

void add(Ledger& ledger, std::string owner, int64_t bytes) {
  if (bytes != 0) ledger.lines.push_back({std::move(owner), bytes});
}

// The framework's segments are shown as what it handed on and what it keeps. Returns their bytes.
uint64_t add_framework(Ledger& ledger, const MemoryTotals& totals) {
  ledger.lines.push_back({"torch.allocated", static_cast<int64_t>(totals.allocated)});
  ledger.lines.push_back(
      {"torch.cached", static_cast<int64_t>(totals.reserved - totals.allocated)});
  return totals.reserved;
}

std::optional<MemoryTotals> framework_totals(const ProcessModel& process, int64_t device,
                                             int64_t time_ns) {
  const FrameworkModel* model = process.framework_on(device);
  uint32_t event = 0;
  if (model == nullptr || !model->event_at(time_ns, event)) return std::nullopt;
  return model->totals_after(event);
}

}  // namespace

Ledger ledger_at(const ProcessModel& process, int64_t device, int64_t time_ns,
                 const MemoryTotals* exact) {
  Ledger ledger;
  const auto used = samples_of(process, device, CounterKind::kDeviceUsed);
  const Counter* sample = nearest(used, time_ns);
  ledger.time_ns = sample != nullptr ? sample->time_ns : time_ns;
  auto totals = framework_totals(process, device, ledger.time_ns);
  if (sample == nullptr && exact != nullptr) totals = *exact;
  const uint64_t reserved = totals ? add_framework(ledger, *totals) : 0;
  const Known k = known_at(process, device, ledger.time_ns);
  for (const auto& [owner, bytes] : k.driver.card_by_owner) {
    std::string name(process.names.string(owner));
    if (name.empty()) name = "unknown";
    // Segments are the torch lines above; what torch took beyond them stays under its own name.
    const uint64_t shown = name == "torch" ? bytes - std::min(bytes, reserved) : bytes;
    add(ledger, name == "torch" && reserved != 0 ? "torch.other" : name,
        static_cast<int64_t>(shown));
  }
  add(ledger, "pool.cached", static_cast<int64_t>(k.pool_cached));
  add(ledger, "graph.cached", static_cast<int64_t>(k.graph_cached));
  add(ledger, "tidemark", static_cast<int64_t>(k.own));
  if (sample == nullptr) return ledger;

  ledger.device_used_bytes = sample->value;
  const auto others = others_at(process, device, sample->value, sample->time_ns);
  ledger.shared_card = !others.has_value();
  add(ledger, "other_processes", static_cast<int64_t>(others.value_or(0)));
  int64_t rest = static_cast<int64_t>(sample->value);
  for (const LedgerLine& line : ledger.lines) rest -= line.bytes;
  const ConstantPart constant = constant_part(process, device, used);
  const int64_t context = std::clamp<int64_t>(constant.bytes, 0, std::max<int64_t>(0, rest));
  add(ledger, "context", context);
  rest -= context;
  // Code loaded since then takes about what it takes in its file; the driver does not tell.
  const uint64_t before = driver_state_at(process.driver, device, constant.time_ns).code_bytes;
  const auto loaded =
      static_cast<int64_t>(k.driver.code_bytes - std::min(k.driver.code_bytes, before));
  const int64_t code = std::clamp<int64_t>(loaded, 0, std::max<int64_t>(0, rest));
  add(ledger, "code", code);
  ledger.lines.push_back({"unexplained", rest - code});
  return ledger;
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
