#include "export/perfetto/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/wording.h"

namespace tidemark {

namespace {

struct SampledCounter {
  CounterKind kind;
  std::string_view name;
  bool of_host;  // host memory: not on the device's axis
};

// One entry per kind of sample.
constexpr std::array<SampledCounter, 16> kSampledCounters = {{
    {CounterKind::kDeviceUsed, "device used", false},
    {CounterKind::kDeviceFree, "device free", false},
    {CounterKind::kDeviceReserved, "device reserved by the driver", false},
    {CounterKind::kProcessUsed, "used by process", false},
    {CounterKind::kPoolReserved, "driver pool reserved", false},
    {CounterKind::kPoolUsed, "driver pool used", false},
    {CounterKind::kGraphReserved, "graph memory reserved", false},
    {CounterKind::kGraphUsed, "graph memory used", false},
    {CounterKind::kTorchAllocated, "torch allocated (sampled)", false},
    {CounterKind::kTorchReserved, "torch reserved (sampled)", false},
    {CounterKind::kHostResident, "host resident", true},
    {CounterKind::kHostPinned, "host pinned", true},
    {CounterKind::kOwnDevice, "tidemark's own (device)", false},
    {CounterKind::kOwnHost, "tidemark's own (host)", true},
    {CounterKind::kTorchPinned, "torch pinned host memory", true},
    {CounterKind::kTorchPinnedInUse, "torch pinned host memory in use", true},
}};

const SampledCounter* sampled_counter(CounterKind kind) {
  const auto it = std::find_if(kSampledCounters.begin(), kSampledCounters.end(),
                               [&](const SampledCounter& c) { return c.kind == kind; });
  return it == kSampledCounters.end() ? nullptr : &*it;
}

// Adds the ends of the curves of processes. All processes on a card are listed at one time: one
// that is no longer among them uses nothing.
std::vector<Counter> with_ends_of_processes(const std::vector<Counter>& rows) {
  std::vector<Counter> all;
  std::map<int64_t, std::set<uint64_t>> users;  // by device
  for (auto row = rows.begin(); row != rows.end();) {
    const int64_t time_ns = row->time_ns;
    std::map<int64_t, std::set<uint64_t>> listed;
    for (; row != rows.end() && row->time_ns == time_ns; ++row) {
      all.push_back(*row);
      if (row->kind == CounterKind::kProcessUsed) listed[row->device].insert(row->subject);
    }
    for (auto& [device, pids] : listed) {
      for (const uint64_t pid : users[device]) {
        if (pids.contains(pid)) continue;
        all.push_back({time_ns, 0, pid, device, CounterKind::kProcessUsed});
      }
      users[device] = std::move(pids);
    }
  }
  return all;
}

// Counters of one process in time order, clipped to a range: each counter gets a sample with its
// value at the beginning of the range.
template <typename Key>
class RangedCounters {
 public:
  RangedCounters(PerfettoPackets& packets, PerfettoNames& names, const TimeRange& range)
      : packets_(packets), names_(names), range_(range) {}

  template <typename NewTrack>
  void add(const Key& key, int64_t time_ns, uint64_t value, NewTrack&& new_track) {
    if (time_ns > range_.end_ns) return;
    if (time_ns >= range_.begin_ns) tell_earlier();
    Held& curve = curves_[key];
    if (curve.track == 0) curve.track = new_track();
    curve.value = value;
    if (time_ns >= range_.begin_ns) put(curve, time_ns);
  }
  void finish() { tell_earlier(); }

 private:
  struct Held {
    uint64_t track = 0;
    uint64_t value = 0;
  };
  void tell_earlier() {
    if (inside_) return;
    inside_ = true;
    for (const auto& [key, curve] : curves_) put(curve, range_.begin_ns);
  }
  void put(const Held& curve, int64_t time_ns) {
    packets_.put_counter(names_.sequence(), static_cast<uint64_t>(time_ns), curve.track,
                         curve.value);
  }

  PerfettoPackets& packets_;
  PerfettoNames& names_;
  TimeRange range_;
  std::map<Key, Held> curves_;
  bool inside_ = false;
};

}  // namespace

std::string axis_of(const ExportProcess& process, int64_t device) {
  return fmt::format("memory {} cuda:{}", process.number, device);
}

CounterCurves::CounterCurves(PerfettoPackets& packets, PerfettoTracks& tracks,
                             const ExportProcess& process, const AllocationHistory& model,
                             const TimeRange& range, int64_t clock_start_ns)
    : packets_(packets),
      model_(model),
      range_(range),
      clock_start_ns_(clock_start_ns),
      clock_ns_(clock_start_ns),
      sequence_(packets.new_sequence()) {
  const uint64_t device = tracks.device(model.device);
  const bool pools = !process.model->torch_pools.empty();  // then only blocks are known
  for (uint32_t c = 0; c < kFrameworkCounters.size(); ++c) {
    const std::string name(kFrameworkCounters[c].name);
    tracks_[c] = tracks.add_counter(
        device, pools && name == "reserved" ? "reserved (blocks, without the driver's pool)" : name,
        static_cast<int32_t>(PerfettoTracks::kCounters + c), axis_of(process, model.device));
  }
}

template <typename Use>
void CounterCurves::for_each_kept(uint64_t stretches, Use&& use) const {
  if (model_.time_ns.empty()) return;
  if (stretches == 0) return for_each_sample(model_, range_, use);
  // When the range begins inside the history, the first samples are at its beginning.
  const int64_t start =
      events_in(model_, range_).first == 0 ? model_.time_ns.front() : range_.begin_ns;
  const int64_t end = std::max(start, std::min(range_.end_ns, model_.time_ns.back()));
  const uint64_t width = static_cast<uint64_t>(end - start) / stretches + 1;
  SampleThinner thinner(start, static_cast<int64_t>(width));
  for_each_sample(model_, range_, [&](const CounterSample& sample) { thinner.add(sample, use); });
  thinner.flush(use);
}

CounterCurves::Size CounterCurves::measure(uint64_t stretches) const {
  Size size;
  int64_t before_ns = clock_start_ns_;
  for_each_kept(stretches, [&](const CounterSample& sample) {
    const int64_t now_ns = std::max(before_ns, sample.time_ns);
    size.bytes +=
        PerfettoPackets::counter_bytes(sequence_, static_cast<uint64_t>(now_ns - before_ns),
                                       tracks_[sample.counter], sample.value);
    ++size.samples;
    before_ns = now_ns;
  });
  return size;
}

void CounterCurves::begin_sequence() {
  pb::TracePacket packet;
  packet.set_trusted_packet_sequence_id(sequence_);
  packet.set_sequence_flags(kStateCleared);
  packet.mutable_trace_packet_defaults()->set_timestamp_clock_id(kClockSequence);
  packets_.put(packet);
  packet.Clear();
  packet.set_trusted_packet_sequence_id(sequence_);
  pb::ClockSnapshot& clocks = *packet.mutable_clock_snapshot();
  pb::ClockSnapshot::Clock* own = clocks.add_clocks();
  own->set_clock_id(kClockSequence);
  own->set_timestamp(static_cast<uint64_t>(clock_start_ns_));
  own->set_is_incremental(true);
  pb::ClockSnapshot::Clock* realtime = clocks.add_clocks();
  realtime->set_clock_id(kClockRealtime);
  realtime->set_timestamp(static_cast<uint64_t>(clock_start_ns_));
  clocks.set_primary_trace_clock(kClockRealtime);
  packets_.put(packet);
}

void CounterCurves::put(const CounterSample& sample) {
  const int64_t now_ns = std::max(clock_ns_, sample.time_ns);
  packets_.put_counter(sequence_, static_cast<uint64_t>(now_ns - clock_ns_),
                       tracks_[sample.counter], sample.value);
  clock_ns_ = now_ns;
}

uint64_t CounterCurves::most_bytes() const {
  constexpr uint64_t kLargestSample = 53;   // tags and lengths, and four varints of ten bytes
  constexpr uint64_t kSamplesPerEvent = 2;  // an allocation changes two counters, other events one
  return (kSamplesPerEvent * model_.event_count() + kFrameworkCounters.size()) * kLargestSample;
}

uint64_t CounterCurves::write(uint64_t stretches, const Progress& progress) {
  constexpr uint64_t kSamplesBetween = 1 << 18;
  begin_sequence();
  uint64_t written = 0;
  const double first = static_cast<double>(clock_start_ns_);
  const double span = std::max(
      1.0, static_cast<double>(model_.time_ns.empty() ? 0 : model_.time_ns.back()) - first);
  for_each_kept(stretches, [&](const CounterSample& sample) {
    put(sample);
    if (++written % kSamplesBetween == 0) {
      progress((static_cast<double>(sample.time_ns) - first) / span);
    }
  });
  return written;
}

void write_sampled_counters(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                            const ExportProcess& process, const TimeRange& range) {
  RangedCounters<std::tuple<CounterKind, int64_t, uint64_t>> counters(packets, names, range);
  for (const Counter& row : with_ends_of_processes(trusted_counters(*process.model))) {
    const SampledCounter* counter = sampled_counter(row.kind);
    if (counter == nullptr) continue;
    const auto new_track = [&] {
      const std::string name = row.subject == 0 ? std::string(counter->name)
                                                : fmt::format("{} {}", counter->name, row.subject);
      const auto order = static_cast<int32_t>(PerfettoTracks::kCounters + 10 +
                                              (counter - kSampledCounters.data()));
      return counter->of_host ? tracks.add_counter(tracks.process_track(), name, order,
                                                   fmt::format("host memory {}", process.number))
                              : tracks.add_counter(tracks.device(row.device), name, order,
                                                   axis_of(process, row.device));
    };
    counters.add({row.kind, row.device, row.subject}, row.time_ns, row.value, new_track);
  }
  counters.finish();
}

void write_category_counters(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                             const ExportProcess& process, const CategoryCurve& curve) {
  for (size_t g = 0; g < kCategoryOrder.size(); ++g) {
    uint64_t track = 0;
    uint64_t last = 0;
    for (const CategoryCurve::Column& column : curve.columns) {
      if (column.bytes[g] == last) continue;
      last = column.bytes[g];
      if (track == 0) {
        std::string name(category_name(kCategoryOrder[g]));
        std::replace(name.begin(), name.end(), '_', ' ');
        track = tracks.add_counter(tracks.device(curve.device), "category: " + name,
                                   static_cast<int32_t>(PerfettoTracks::kCounters + 31 + g),
                                   axis_of(process, curve.device));
      }
      packets.put_counter(names.sequence(), static_cast<uint64_t>(column.time_ns), track, last);
    }
  }
}

void write_owner_counters(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                          const ExportProcess& process, const TimeRange& range) {
  struct Step {
    int64_t time_ns;
    int64_t device;
    uint32_t owner;
    int64_t bytes;
  };
  std::vector<Step> steps;
  for (const DriverAllocation& a : process.model->driver.allocations) {
    if (!a.on_card()) continue;
    const auto bytes = static_cast<int64_t>(a.size_bytes);
    steps.push_back({a.birth_ns, a.device, a.owner, bytes});
    if (a.death_ns != INT64_MAX) steps.push_back({a.death_ns, a.device, a.owner, -bytes});
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.time_ns < b.time_ns; });
  std::map<std::pair<int64_t, uint32_t>, int64_t> held;
  RangedCounters<std::pair<int64_t, uint32_t>> counters(packets, names, range);
  for (const Step& step : steps) {
    const std::pair key(step.device, step.owner);
    const int64_t bytes = held[key] += step.bytes;
    counters.add(key, step.time_ns, static_cast<uint64_t>(bytes), [&] {
      const std::string_view owner = process.name(step.owner);
      return tracks.add_counter(tracks.device(step.device),
                                fmt::format("driver: {}", owner.empty() ? "other" : owner),
                                PerfettoTracks::kCounters + 30, axis_of(process, step.device));
    });
  }
  counters.finish();
}

}  // namespace tidemark
