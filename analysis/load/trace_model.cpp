#include "analysis/load/trace_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "analysis/events/input_limits.h"
#include "analysis/load/async_backend.h"
#include "analysis/load/driver_segments.h"
#include "analysis/load/event_replay.h"
#include "analysis/load/handled_refusals.h"
#include "analysis/load/tensor_tags.h"
#include "analysis/load/trace_index.h"
#include "analysis/names/resolver.h"
#include "proto/base/in_parallel.h"
#include "proto/base/work.h"
#include "proto/merged_file.h"
#include "proto/read/nccl_kernels.h"

namespace tidemark {

namespace {

bool known(BlockKind kind) {
  switch (kind) {
    case BlockKind::kNone:
      return false;
    default:
      return kind <= BlockKind::kNnModules ||
             (kind >= BlockKind::kDriverEvents && kind <= BlockKind::kSummaries);
  }
}

// A compressed file may expand to any size: reject what cannot fit before reading it.
Status check_memory(std::span<const TraceReader> readers, const IndexOptions& index) {
  constexpr uint64_t kBytesPerEvent = 30;  // measured: model columns plus a third of an allocation
  uint64_t rows = 0;
  for (const TraceReader& reader : readers) {
    if (is_indexable(reader, index)) continue;  // its columns are in files
    for (const BlockRef& ref : reader.blocks()) rows += ref.rows;
  }
  const auto physical = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (rows * kBytesPerEvent > physical) {
    return Error{
        fmt::format("{}: {} events need about {} GiB of memory, but this machine has {} GiB",
                    readers.front().path(), rows, (rows * kBytesPerEvent) >> 30, physical >> 30)};
  }
  return {};
}

template <typename Row>
std::vector<Row> collect(const TraceReader& reader, BlockDecoder& decoder, uint32_t process) {
  std::vector<Row> all;
  for_each_block<Row>(reader, decoder, process, [&](std::span<const Row> rows, const BlockRef&) {
    all.insert(all.end(), rows.begin(), rows.end());
  });
  if constexpr (requires(Row r) { r.time_ns; }) {
    for (Row& row : all) row.time_ns = sane(row.time_ns);
  }
  return all;
}

AllocatorRules rules_of(const ProcessModel& process) {
  AllocatorRules rules;
  for (const Setting& s : process.settings) {
    rules.apply_setting(process.names.string(s.key), process.names.string(s.value));
  }
  return rules;
}

// The file that it was merged from; empty: not merged, or it has a rank.
std::string merged_file(const ProcessModel& process) {
  const auto named =
      std::find_if(process.settings.begin(), process.settings.end(), [&](const Setting& s) {
        return s.scope == SettingScope::kImported && process.names.string(s.key) == kMergedFile;
      });
  return named == process.settings.end() ? "" : std::string(process.names.string(named->value));
}

class ProcessLoader {
 public:
  // `index` already has the events, or `writer` is to store them; at most one of the two is given.
  ProcessLoader(const TraceReader& reader, BlockDecoder& decoder, uint32_t id, TraceIndex* index,
                TraceIndexWriter* writer, std::function<void(uint64_t)> advance, bool splits_work,
                const EventWatch& watch)
      : reader_(reader),
        decoder_(decoder),
        id_(id),
        index_(index),
        writer_(writer),
        advance_(std::move(advance)),
        splits_work_(splits_work),
        watch_(watch) {}

  // Damage found in blocks that are not read when there is an index.
  Damage walk_damage() const {
    Damage sum = event_damage_;
    sum += walk_.damage();
    return sum;
  }

  // Of everything that was recorded of the process.
  ProcessModel load(int64_t first_ns, int64_t last_ns) {
    ProcessModel p;
    p.first_ns = first_ns;
    p.last_ns = last_ns;
    if (const Alignment* clock = reader_.alignment(id_); clock != nullptr) p.clock = *clock;
    p.names = Dictionary::load(reader_, decoder_, id_);
    p.info.rank = -1;  // Without its row, it must not count as rank 0.
    const auto infos = collect<Process>(reader_, decoder_, id_);
    if (!infos.empty()) p.info = infos.back();  // the later one is more complete
    if (was_recorded_here(p.info, p.names)) {
      resolve_frames(p.names, [this](double) { advance_(0); });
    }
    p.devices = collect<Device>(reader_, decoder_, id_);
    if (p.devices.size() > kMostDevices) p.devices.resize(kMostDevices);
    p.settings = collect<Setting>(reader_, decoder_, id_);
    p.file = merged_file(p);
    p.marks = collect<Mark>(reader_, decoder_, id_);
    p.window = find_kept_window(p.marks, p.names);
    p.unrecorded = unrecorded_stretches(p.marks, first_ns, last_ns);
    const auto tags = collect<TensorTag>(reader_, decoder_, id_);
    p.labels = Labels(tags);
    p.health = collect<Health>(reader_, decoder_, id_);
    p.ooms = collect<OutOfMemory>(reader_, decoder_, id_);
    p.segment_states = collect<SegmentState>(reader_, decoder_, id_);
    p.counters = collect<Counter>(reader_, decoder_, id_);
    std::stable_sort(p.counters.begin(), p.counters.end(),
                     [](const Counter& a, const Counter& b) { return a.time_ns < b.time_ns; });
    p.summaries = collect<Summary>(reader_, decoder_, id_);
    std::stable_sort(p.summaries.begin(), p.summaries.end(),
                     [](const Summary& a, const Summary& b) { return a.time_ns < b.time_ns; });
    p.communicators = collect<Communicator>(reader_, decoder_, id_);
    auto driver_events = collect<DriverEvent>(reader_, decoder_, id_);
    EventReplay::OtherEvents others;
    if (p.info.source == Source::kCapture && index_ == nullptr) {
      others.segments = torch_segments(driver_events, p.names, bridge_time(p.marks, p.names));
      // Where the recording began with the allocator's state, that state has all its segments.
      const std::set<int64_t> with_state = devices_with_state(p.marks, p.names);
      std::erase_if(others.segments,
                    [&](const FrameworkEvent& e) { return with_state.contains(e.device); });
    }
    if (p.info.source == Source::kCapture && !has_framework_events()) {
      p.torch_pools = pools_of_torch(driver_events, p.names);
      if (index_ == nullptr) others.async = async_backend_events(driver_events, p);
    }
    // Exported from such a process: every block is a segment of its own (export/snapshot).
    if (p.info.source == Source::kTorchSnapshot &&
        p.setting("PYTORCH_CUDA_ALLOC_CONF").find("backend:cudaMallocAsync") != std::string::npos) {
      p.torch_pools.insert(0);
    }
    p.driver = build_driver_model(std::move(driver_events));
    p.rules = rules_of(p);
    const auto blocks = reader_.blocks_of(id_);
    for (const BlockRef& ref : blocks) {
      if (ref.kind == BlockKind::kKernels) p.kernels += ref.rows;
    }
    if (index_ != nullptr) {
      p.framework = index_->take(id_);
      KernelFacts kernels = index_->take_kernels(id_);
      p.compute = kernels.compute;
      p.nccl = std::move(kernels.nccl);
    } else {
      p.nccl = collect<NcclOperation>(reader_, walk_, id_);
      read_kernels(p);
      EventReplay events(reader_, id_, p, std::move(others), writer_, advance_, splits_work_,
                         watch_);
      p.framework = events.run();
      event_damage_ = events.damage();
      for (AllocationHistory& model : p.framework) apply_tags(model, tags);
    }
    if (!p.torch_pools.empty()) apply_pool_marks(p);
    set_aside_handled_refusals(p);
    return p;
  }

 private:
  bool has_framework_events() const {
    const auto& blocks = reader_.blocks_of(id_);
    return std::any_of(blocks.begin(), blocks.end(),
                       [](const BlockRef& ref) { return ref.kind == BlockKind::kFrameworkEvents; });
  }

  // Names are few, kernels are many: each name is examined once.
  void read_kernels(ProcessModel& p) {
    struct Known {
      Precision precision = Precision::kUnknown;
      bool of_nccl = false;
    };
    std::unordered_map<uint32_t, Known> names;
    std::vector<Kernel> kernels;
    for_each_block<Kernel>(reader_, walk_, id_, [&](auto rows, const BlockRef&) {
      for (const Kernel& kernel : rows) {
        const auto [known, fresh] = names.try_emplace(kernel.name);
        if (fresh) {
          const std::string_view name = p.names.string(kernel.name);
          known->second = {precision_of(name), is_nccl_kernel(name)};
        }
        p.compute.add(known->second.precision, kernel.duration_ns);
        if (known->second.of_nccl && kernel.graph_node == 0) kernels.push_back(kernel);
      }
    });
    join_nccl_kernels(p.nccl, kernels, p.unrecorded);
  }

  const TraceReader& reader_;
  BlockDecoder& decoder_;
  uint32_t id_;
  TraceIndex* index_;
  TraceIndexWriter* writer_;
  std::function<void(uint64_t)> advance_;
  bool splits_work_;
  const EventWatch& watch_;
  BlockDecoder walk_{reader_};
  Damage event_damage_;
};

}  // namespace

const Device* ProcessModel::device(int64_t ordinal) const {
  const auto it = std::find_if(devices.begin(), devices.end(),
                               [&](const Device& d) { return d.ordinal == ordinal; });
  return it == devices.end() ? nullptr : &*it;
}

const AllocationHistory* ProcessModel::framework_on(int64_t ordinal) const {
  const auto it = std::find_if(framework.begin(), framework.end(),
                               [&](const AllocationHistory& m) { return m.device == ordinal; });
  return it == framework.end() ? nullptr : &*it;
}

bool ProcessModel::is_state_only() const {
  // What `tidemark snapshot` wrote; a busy process may have allocated something meanwhile.
  if (setting("history") == "none") return true;
  if (framework.empty()) return false;
  // Before 0.2 it had no such mark.
  const bool snapshot =
      info.source == Source::kTorchSnapshot || (!setting("attached").empty() && !records_driver());
  // PyTorch adds an entry of its own for the dump; neither that nor a single event is a history.
  return snapshot && std::none_of(framework.begin(), framework.end(), [](const auto& m) {
           return m.event_count() > m.seed_events + 1 || !m.failures.empty();
         });
}

bool ProcessModel::records_driver() const {
  return info.source != Source::kTorchSnapshot &&
         std::none_of(health.begin(), health.end(), [this](const Health& h) {
           return (h.kind == HealthKind::kSourceMissing || h.kind == HealthKind::kSourceDisabled) &&
                  names.string(h.detail).starts_with("cupti:");
         });
}

bool ProcessModel::was_killed() const {
  return std::any_of(health.begin(), health.end(),
                     [](const Health& h) { return h.kind == HealthKind::kRecovered; });
}

uint32_t ProcessModel::nn_module_of(const Allocation& a) const {
  const uint32_t owner = labels.owner_of(a.address, a.birth_ns(), a.death_ns());
  return owner != 0 ? owner : a.nn_module;
}

std::string_view ProcessModel::setting(std::string_view key) const {
  std::string_view value;
  for (const Setting& s : settings) {
    if (names.string(s.key) == key) value = names.string(s.value);
  }
  return value;
}

std::vector<int64_t> ProcessModel::device_ordinals() const {
  std::set<int64_t> ordinals;
  for (const Device& d : devices) ordinals.insert(d.ordinal);
  for (const AllocationHistory& m : framework) ordinals.insert(m.device);
  for (const auto& [ordinal, device] : driver.devices) {
    if (ordinal >= 0) ordinals.insert(ordinal);  // host memory belongs to no device
  }
  while (ordinals.size() > kMostDevices) ordinals.erase(std::prev(ordinals.end()));
  return {ordinals.begin(), ordinals.end()};
}

namespace {

struct RecordedTime {
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
};
using ProcessTimes = std::map<uint32_t, RecordedTime>;

// Counts the rows of a file and returns its processes.
ProcessTimes survey(const TraceReader& reader, TraceModel& model) {
  ProcessTimes times;
  for (const BlockRef& ref : reader.blocks()) {
    if (!known(ref.kind)) {
      ++model.unknown_blocks;
      continue;
    }
    RecordedTime& time = times[ref.process];
    model.rows_by_kind[ref.kind] += ref.rows;
    if (ref.kind >= BlockKind::kDriverEvents && ref.kind < BlockKind::kAlignments) {
      time.first_ns = std::min(time.first_ns, sane(ref.first_ns));
      time.last_ns = std::max(time.last_ns, sane(ref.last_ns));
      // The state of a snapshot without events has no time, beside others that have one.
      const bool state =
          ref.kind == BlockKind::kSegmentStates || ref.kind == BlockKind::kBlockStates;
      if (state && ref.first_ns == 0 && ref.last_ns == 0) continue;
      model.start_ns = std::min(model.start_ns, time.first_ns);
      model.end_ns = std::max(model.end_ns, time.last_ns);
    }
  }
  return times;
}

// Finishes an index in the background: the disk may take as long as the replay did.
class IndexOnItsWay {
 public:
  IndexOnItsWay(std::unique_ptr<TraceIndexWriter> writer, const Damage& damage)
      : writer_(std::move(writer)), work_({[this, damage] {
          // Without an index the trace just opens more slowly next time.
          static_cast<void>(writer_->finish(damage));
        }}) {}

 private:
  std::unique_ptr<TraceIndexWriter> writer_;
  Work work_;  // last: joined before the other members are destroyed
};

// Older recorders kept the framework's state of a time before the window's first instant.
// INT64_MIN: everything was kept.
int64_t first_of_window(const ProcessModel& p, int64_t last_ns) {
  if (!p.window.exists() || p.window.from_ns > last_ns) return INT64_MIN;
  int64_t first_ns = p.window.from_ns;
  for (const AllocationHistory& model : p.framework) {
    if (model.event_count() != 0) first_ns = std::min(first_ns, model.time_ns[0]);
  }
  return first_ns;
}

void load_file(const TraceReader& reader, const ProcessTimes& times, const IndexOptions& options,
               const std::function<void(uint64_t)>& advance, bool splits_work,
               const EventWatch& watch, TraceModel& model) {
  std::optional<TraceIndex> index = TraceIndex::open(reader, options);
  auto writer = index ? nullptr : TraceIndexWriter::create(reader, options);
  BlockDecoder decoder(reader);
  Damage walk_damage = index ? index->damage() : Damage{};
  for (const auto& [id, time] : times) {
    ProcessLoader loader(reader, decoder, id, index ? &*index : nullptr, writer.get(), advance,
                         splits_work, watch);
    ProcessModel& p = model.processes.emplace_back(loader.load(time.first_ns, time.last_ns));
    p.first_ns = std::max(time.first_ns, first_of_window(p, time.last_ns));
    walk_damage += loader.walk_damage();
    if (writer == nullptr) continue;
    writer->keep(id, p.framework, p.compute, p.nccl);
    for (const AllocationHistory& m : p.framework) m.release_pages();
  }
  model.damage += reader.damage();
  model.damage += decoder.damage();
  model.damage += walk_damage;
  if (writer != nullptr) {
    model.indexing.push_back(std::make_shared<IndexOnItsWay>(std::move(writer), walk_damage));
  }
}

}  // namespace

Result<TraceModel> load_trace(std::span<const TraceReader> readers, const Progress& progress,
                              const IndexOptions& options, const EventWatch& watch) {
  if (readers.empty()) return Error{"no trace to load"};
  if (Status fits = check_memory(readers, options); !fits) return fits.error();
  TraceModel model;
  model.path = readers.front().path();
  model.start_ns = INT64_MAX;
  model.end_ns = INT64_MIN;
  std::vector<ProcessTimes> times;
  for (const TraceReader& reader : readers) times.push_back(survey(reader, model));
  if (model.start_ns > model.end_ns) model.start_ns = model.end_ns = 0;

  const uint64_t total = 2 * model.rows_by_kind[BlockKind::kFrameworkEvents];
  uint64_t done = 0;
  std::mutex lock;
  const auto advance = [&](uint64_t rows) {
    const std::lock_guard guard(lock);
    done += rows;
    if (progress && total != 0) progress(static_cast<double>(done) / static_cast<double>(total));
  };
  const bool splits_work = !kInBrowser && readers.size() < worker_count();
  std::vector<TraceModel> parts(readers.size());
  in_parallel(readers.size(), [&](size_t i) {
    load_file(readers[i], times[i], options, advance, splits_work, watch, parts[i]);
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    TraceModel& part = parts[i];
    for (ProcessModel& p : part.processes) {
      if (parts.size() == 1 || p.info.rank >= 0 || !p.file.empty()) continue;
      p.file = std::filesystem::path(readers[i].path()).filename().string();
    }
    std::move(part.processes.begin(), part.processes.end(), std::back_inserter(model.processes));
    std::move(part.indexing.begin(), part.indexing.end(), std::back_inserter(model.indexing));
    model.damage += part.damage;
  }
  int64_t first_ns = INT64_MAX;
  for (const ProcessModel& p : model.processes) first_ns = std::min(first_ns, p.first_ns);
  if (first_ns <= model.end_ns) model.start_ns = std::max(model.start_ns, first_ns);
  return model;
}

}  // namespace tidemark
