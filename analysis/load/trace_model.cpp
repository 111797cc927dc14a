#include "analysis/load/trace_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "analysis/history/history_replay.h"
#include "analysis/load/async_backend.h"
#include "analysis/load/capture_order.h"
#include "analysis/load/driver_segments.h"
#include "analysis/load/event_blocks.h"
#include "analysis/load/handled_refusals.h"
#include "analysis/load/tensor_tags.h"
#include "analysis/load/trace_index.h"
#include "analysis/names/resolver.h"
#include "proto/base/in_parallel.h"
#include "proto/base/work.h"
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

// Times from a forged file are clamped so that their differences cannot overflow. Real ones are far
// below: 2^61 ns are 73 years after 1970.
constexpr int64_t kLatestNs = int64_t{1} << 61;
// Too few to be worth a second thread.
constexpr uint64_t kFewRows = 50'000;
// Of one process. The driver itself supports fewer.
constexpr size_t kMostDevices = 1024;
int64_t sane(int64_t time_ns) {
  return std::clamp(time_ns, -kLatestNs, kLatestNs);
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

// Replays the allocator of every device of one process.
class ProcessLoader {
 public:
  // `index` already has the events, or `writer` is to store them; at most one of the two is given.
  // `splits_work`: decoding, replaying and storing are done by three threads.
  ProcessLoader(const TraceReader& reader, BlockDecoder& decoder, uint32_t id, TraceIndex* index,
                TraceIndexWriter* writer, std::function<void(uint64_t)> advance, bool splits_work)
      : reader_(reader),
        decoder_(decoder),
        id_(id),
        index_(index),
        writer_(writer),
        advance_(std::move(advance)),
        splits_work_(splits_work) {}

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
    if (p.names.nn_module_count() != 0) read_meanings(p.names);
    const auto infos = collect<Process>(reader_, decoder_, id_);
    if (!infos.empty()) p.info = infos.back();  // the later one is more complete
    if (was_recorded_here(p.info, p.names)) {
      resolve_frames(p.names, [this](double) { advance_(0); });
    }
    p.devices = collect<Device>(reader_, decoder_, id_);
    if (p.devices.size() > kMostDevices) p.devices.resize(kMostDevices);
    p.settings = collect<Setting>(reader_, decoder_, id_);
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
    if (p.info.source == Source::kCapture && index_ == nullptr) {
      segments_ = torch_segments(driver_events, p.names, bridge_time(p.marks, p.names));
      // Where the recording began with the allocator's state, that state has all its segments.
      const std::set<int64_t> with_state = devices_with_state(p.marks, p.names);
      std::erase_if(segments_,
                    [&](const FrameworkEvent& e) { return with_state.contains(e.device); });
    }
    if (p.info.source == Source::kCapture && !has_framework_events()) {
      p.torch_pools = pools_of_torch(driver_events, p.names);
      if (index_ == nullptr) async_events_ = async_backend_events(driver_events, p);
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
      load_events(p);
      for (AllocationHistory& model : p.framework) apply_tags(model, tags);
    }
    if (!p.torch_pools.empty()) apply_pool_marks(p);
    set_aside_handled_refusals(p);
    return p;
  }

 private:
  void read_meanings(const Dictionary& names) {
    meanings_.resize(names.stack_count());
    for (uint32_t id = 0; id < meanings_.size(); ++id) {
      meanings_[id] = {names.plain_stack(id), names.stack(id).nn_module};
    }
  }

  bool has_framework_events() const {
    const auto& blocks = reader_.blocks_of(id_);
    return std::any_of(blocks.begin(), blocks.end(),
                       [](const BlockRef& ref) { return ref.kind == BlockKind::kFrameworkEvents; });
  }

  void load_events(ProcessModel& p) {
    uint64_t rows = 0;
    for (const BlockRef& ref : reader_.blocks_of(id_)) {
      if (ref.kind != BlockKind::kFrameworkEvents) continue;
      event_blocks_.push_back(ref);
      rows += ref.rows;
    }
    splits_work_ &= rows > kFewRows;
    read_seeds(p.info.source);
    replay(p);
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

  void read_seeds(Source source) {
    for_each_block<SegmentState>(reader_, walk_, id_, [&](auto rows, const BlockRef&) {
      for (const SegmentState& s : rows) {
        if (!accepts(s.device)) continue;
        seeds_[s.device].add(s);
        int64_t& state_ns = state_ns_.try_emplace(s.device, INT64_MIN).first->second;
        state_ns = std::max(state_ns, sane(s.time_ns));
      }
    });
    std::map<int64_t, int64_t> blocks_ns;
    for_each_block<BlockState>(reader_, walk_, id_, [&](auto rows, const BlockRef&) {
      for (const BlockState& b : rows) {
        if (!accepts(b.device)) continue;
        seeds_[b.device].add(b);
        blocks_ns[b.device] = sane(b.time_ns);
      }
    });
    if (source == Source::kCapture) seed_segments_of_driver(blocks_ns);
    if (event_blocks_.empty()) return;
    first_ns_ = INT64_MAX;
    for (const BlockRef& ref : event_blocks_) first_ns_ = std::min(first_ns_, sane(ref.first_ns));
    // A snapshot shows every device at its end; one without segments held nothing then.
    const bool ends_with_state = source != Source::kCapture;
    const bool newer = ends_with_state ||
                       std::any_of(state_ns_.begin(), state_ns_.end(),
                                   [&](const auto& state) { return state.second >= first_ns_; });
    if (!newer) return;  // the state is older than the history
    // Their damage is counted on the forward pass.
    EventBlocks backwards(reader_, {event_blocks_.rbegin(), event_blocks_.rend()}, splits_work_);
    for (auto ref = event_blocks_.rbegin(); ref != event_blocks_.rend(); ++ref) {
      const auto rows = backwards.next();
      for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
        if (!accepts(row->device)) continue;
        first_of_device_[row->device] = sane(row->time_ns);
        if (ends_with_state) state_ns_.try_emplace(row->device, INT64_MAX);
        if (row->time_ns > state_of(row->device)) continue;
        seeds_[row->device].undo(*row);
      }
      advance_(ref->rows);
    }
  }

  // A kept window that was recorded without the bridge has the blocks that are older than it, but
  // their segments as those of the driver.
  void seed_segments_of_driver(const std::map<int64_t, int64_t>& blocks_ns) {
    for (const auto& [device, time_ns] : blocks_ns) {
      if (!state_ns_.try_emplace(device, time_ns).second) continue;
      const auto is_older = [device = device, time_ns = time_ns](const FrameworkEvent& e) {
        return e.device == device && e.time_ns <= time_ns;
      };
      std::map<uint64_t, FrameworkEvent> older;
      for (const FrameworkEvent& e : segments_) {
        if (!is_older(e)) continue;
        const bool grows =
            e.action == FrameworkAction::kSegmentAlloc || e.action == FrameworkAction::kSegmentMap;
        if (grows) {
          older[e.address] = e;
        } else {
          older.erase(e.address);
        }
      }
      std::erase_if(segments_, is_older);
      for (const auto& [address, e] : older) {
        const bool expandable = e.action == FrameworkAction::kSegmentMap;
        SegmentState s{};
        s.time_ns = time_ns;
        s.address = address;
        s.size_bytes = e.size_bytes;
        s.device = device;
        s.stack = e.stack;
        s.flags = (expandable ? kSegmentExpandable : 0U) |
                  (e.size_bytes == 2 * kSmallBytes ? kSegmentSmall : 0U);
        seeds_[device].add(s);
      }
    }
  }

  // When the state of a device was read; INT64_MIN when it was not.
  int64_t state_of(int64_t device) const {
    const auto state = state_ns_.find(device);
    return state != state_ns_.end() ? state->second : INT64_MIN;
  }

  int64_t seed_time(int64_t device) const {
    const auto known = first_of_device_.find(device);
    const int64_t first_ns = known != first_of_device_.end() ? known->second : first_ns_;
    const auto state = state_ns_.find(device);
    if (state == state_ns_.end()) return first_ns;
    return event_blocks_.empty() ? state->second : std::min(first_ns, state->second);
  }

  // A few bytes of a forged file could name millions of devices.
  bool accepts(int64_t device) {
    if (accepted_any_ && device == last_accepted_) return true;
    if (accepted_.size() >= kMostDevices && !accepted_.contains(device)) return false;
    accepted_.insert(device);
    accepted_any_ = true;
    last_accepted_ = device;
    return true;
  }

  HistoryReplay& replay_of(int64_t device, const AllocatorRules& rules) {
    if (last_ != nullptr && last_device_ == device) return *last_;
    const auto [known, fresh] =
        replays_.try_emplace(device, device, rules, meanings_, columns_ ? &*columns_ : nullptr);
    if (fresh && writer_ != nullptr) writer_->adopt(known->second.model(), id_);
    last_ = &known->second;
    last_device_ = device;
    return *last_;
  }

  // The state at the end tells which segments belong to private pools, and may be the only one to
  // tell the stacks of blocks.
  void complete_from_state(FrameworkEvent& event) {
    const auto seed = seeds_.find(event.device);
    if (seed == seeds_.end()) return;
    if (event.action == FrameworkAction::kSegmentAlloc ||
        event.action == FrameworkAction::kSegmentMap) {
      const uint32_t pool = seed->second.take_pool_of_growth();
      if (event.pool == 0) event.pool = pool;
    } else if (event.action == FrameworkAction::kAlloc) {
      const uint32_t stack = seed->second.take_stack_of_allocation();
      if (event.stack == 0) event.stack = stack;
    }
  }

  void replay(ProcessModel& p) {
    if (splits_work_) columns_.emplace();
    for (const auto& [device, seed] : seeds_) {
      replay_of(device, p.rules).seed(seed, seed_time(device));
    }
    const bool is_snapshot = p.info.source != Source::kCapture;
    uint64_t segment_bytes = 0;
    const auto take = [&](FrameworkEvent event) {
      event.time_ns = sane(event.time_ns);
      if (is_snapshot && !p.torch_pools.empty()) {  // each block fills the segment before it
        if (event.action == FrameworkAction::kSegmentAlloc) segment_bytes = event.size_bytes;
        if (event.action == FrameworkAction::kAlloc) event.block_bytes = segment_bytes;
      }
      if (!accepts(event.device)) {
        ++refused_rows_;
        return;
      }
      replay_of(event.device, p.rules).apply(event);
    };
    for (const FrameworkEvent& event : async_events_) take(event);
    EventBlocks blocks(reader_, event_blocks_, splits_work_);
    // A snapshot lists its events in their true order, but with coarser times.
    if (is_snapshot) {
      for (const BlockRef& ref : event_blocks_) {
        for (FrameworkEvent event : blocks.next()) {
          if (event.time_ns <= state_of(event.device)) complete_from_state(event);
          take(event);
        }
        advance_(ref.rows);
      }
    } else if (!event_blocks_.empty()) {
      CaptureOrder order(std::move(segments_), take);
      for (const BlockRef& ref : event_blocks_) {
        order.add(blocks.next());
        advance_(ref.rows);
      }
      order.finish();
    }
    event_damage_ = blocks.damage();
    event_damage_.rows += refused_rows_;
    for (auto& [device, replay] : replays_) p.framework.push_back(std::move(replay).finish());
  }

  const TraceReader& reader_;
  BlockDecoder& decoder_;
  uint32_t id_;
  TraceIndex* index_;
  TraceIndexWriter* writer_;
  std::function<void(uint64_t)> advance_;
  bool splits_work_;
  BlockDecoder walk_{reader_};
  std::vector<StackMeaning> meanings_;  // empty: no stack names an nn.Module
  Damage event_damage_;
  std::vector<BlockRef> event_blocks_;
  std::vector<FrameworkEvent> segments_;      // of an allocator that does not report them
  std::vector<FrameworkEvent> async_events_;  // of the backend cudaMallocAsync
  std::map<int64_t, SeedState> seeds_;
  std::map<int64_t, HistoryReplay> replays_;
  std::optional<HistoryThread> columns_;  // of a long history; ends before the replays are destroyed
  std::set<int64_t> accepted_;  // devices
  int64_t last_accepted_ = 0;
  bool accepted_any_ = false;
  uint64_t refused_rows_ = 0;
  HistoryReplay* last_ = nullptr;
  int64_t last_device_ = 0;
  int64_t first_ns_ = 0;
  std::map<int64_t, int64_t> first_of_device_;  // the time of its first event, in file order
  std::map<int64_t, int64_t> state_ns_;         // of the full state of a device, where there is one
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
  return snapshot && std::none_of(framework.begin(), framework.end(),
                                  [](const auto& m) { return m.recorded_events != 0; });
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
  const uint32_t owner = labels.owner_of(a.address, a.birth_ns, a.death_ns);
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
               const std::function<void(uint64_t)>& advance, bool splits_work, TraceModel& model) {
  std::optional<TraceIndex> index = TraceIndex::open(reader, options);
  auto writer = index ? nullptr : TraceIndexWriter::create(reader, options);
  BlockDecoder decoder(reader);
  Damage walk_damage = index ? index->damage() : Damage{};
  for (const auto& [id, time] : times) {
    ProcessLoader loader(reader, decoder, id, index ? &*index : nullptr, writer.get(), advance,
                         splits_work);
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
                              const IndexOptions& options) {
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
    load_file(readers[i], times[i], options, advance, splits_work, parts[i]);
  });
  for (TraceModel& part : parts) {
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
