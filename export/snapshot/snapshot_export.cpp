#include "export/snapshot/snapshot_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "analysis/load/tensor_tags.h"
#include "analysis/wording.h"
#include "export/snapshot/snapshot_events.h"
#include "export/snapshot/snapshot_pickle.h"
#include "export/snapshot/snapshot_state.h"
#include "proto/base/leading_number.h"
#include "proto/base/output_file.h"
#include "proto/snapshot_actions.h"

namespace tidemark {

namespace {

constexpr std::array<std::string_view, 4> kBlockStates = {"inactive", "active_allocated",
                                                          "active_pending_free", "inactive"};

// Keys that torch adds to frames (augment_with_fx_traces); their values may hold many lines.
constexpr std::array<std::string_view, 4> kFrameDetails = {
    "fx_node_op=", "fx_node_name=", "fx_node_target=", "fx_original_trace="};

// As torch begins the name of an optimizer's step; the recorder does not know whose it was.
constexpr std::string_view kOptimizerStepName = "Optimizer.step";

class SnapshotWriter {
 public:
  SnapshotWriter(const ExportProcess& process, const ExportOptions& options, ByteSink& sink,
                 const Progress& progress)
      : process_(process),
        names_(process.model->names),
        options_(options),
        progress_(progress),
        pickle_(sink) {}

  Result<ExportSummary> run() {
    read_pools();
    has_times_ = recorded_times();
    pickle_.begin_dict();
    pickle_.key("segments");
    write_segments();
    pickle_.key("device_traces");
    write_traces();
    pickle_.key("allocator_settings");
    write_settings();
    pickle_.key("external_annotations");
    write_annotations();
    pickle_.end_dict();
    if (Status status = pickle_.finish(); !status) return status.error();
    summary_.bytes = pickle_.bytes();
    return summary_;
  }

 private:
  void read_pools() {
    BlockDecoder decoder(*process_.reader);
    for_each_block<Pool>(*process_.reader, decoder, process_.id, [&](auto rows, const BlockRef&) {
      for (const Pool& pool : rows) pools_[pool.id] = {pool.first, pool.second};
    });
  }

  bool recorded_times() const {
    const auto& health = process_.model->health;
    return std::none_of(health.begin(), health.end(), [this](const Health& h) {
      return h.kind == HealthKind::kSourceMissing && names_.string(h.detail) == kNoTimes;
    });
  }

  void write_pool(uint32_t id) {
    const auto known = pools_.find(id);
    if (known == pools_.end()) {
      pickle_.pair(0, 0);
    } else {
      pickle_.pair(known->second.first, known->second.second);
    }
  }

  void write_segments() {
    pickle_.begin_list();
    for (const SnapshotSegment& s : snapshot_state(process_, options_.time)) {
      pickle_.item();
      write_segment(s);
      devices_ = std::max(devices_, s.segment.device + 1);
      ++summary_.records;
    }
    pickle_.end_list();
  }

  void write_segment(const SnapshotSegment& s) {
    pickle_.begin_dict();
    put("device", s.segment.device);
    put_unsigned("address", s.segment.address);
    put_unsigned("total_size", s.segment.size_bytes);
    put_unsigned("allocated_size", s.segment.allocated_bytes);
    put_unsigned("active_size", s.segment.active_bytes);
    put_unsigned("requested_size", s.segment.requested_bytes);
    put_unsigned("stream", s.segment.stream);
    pickle_.key("segment_type");
    pickle_.text((s.segment.flags & kSegmentSmall) != 0 ? "small" : "large");
    pickle_.key("segment_pool_id");
    write_pool(s.segment.pool);
    pickle_.key("is_expandable");
    pickle_.boolean((s.segment.flags & kSegmentExpandable) != 0);
    pickle_.key("frames");
    write_stack(s.segment.stack);
    pickle_.key("blocks");
    pickle_.begin_list();
    for (const BlockState& b : s.blocks) {
      pickle_.item();
      pickle_.begin_dict();
      put_unsigned("address", b.address);
      put_unsigned("size", b.size_bytes);
      put_unsigned("requested_size", b.requested_bytes);
      pickle_.key("state");
      pickle_.text(kBlockStates[std::min<size_t>(size_t(b.condition), kBlockStates.size() - 1)]);
      pickle_.key("frames");
      write_stack(b.stack);
      pickle_.end_dict();
    }
    pickle_.end_list();
    pickle_.end_dict();
  }

  // One list per device, ordered by device number, as torch writes it.
  void write_traces() {
    for (const Device& d : process_.model->devices) devices_ = std::max(devices_, d.ordinal + 1);
    for (const AllocationHistory& m : process_.model->framework) {
      devices_ = std::max(devices_, m.device + 1);
    }
    devices_ = std::min<int64_t>(devices_, kMaxDevices);
    pickle_.begin_list();
    for (int64_t device = 0; device < devices_; ++device) {
      pickle_.item();
      pickle_.begin_list();
      write_trace(device);
      pickle_.end_list();
      if (progress_) progress_(static_cast<double>(device + 1) / static_cast<double>(devices_));
    }
    pickle_.end_list();
  }

  // What the recorder knew of single blocks, which its events do not say.
  using Birth = std::pair<uint64_t, int64_t>;  // address, time
  std::map<Birth, Category> recorded_categories(int64_t device) const {
    std::map<Birth, Category> categories;
    const AllocationHistory* history = process_.model->framework_on(device);
    if (history == nullptr) return categories;
    std::vector<TensorTag> tags;
    BlockDecoder decoder(*process_.reader);
    for_each_block<TensorTag>(
        *process_.reader, decoder, process_.id,
        [&](auto rows, const BlockRef&) { tags.insert(tags.end(), rows.begin(), rows.end()); });
    for (const auto& [row, category] : tagged_rows(*history, std::move(tags))) {
      const Allocation a = history->allocations[row];
      categories[{a.address, a.birth_ns()}] = category;
    }
    return categories;
  }

  void write_trace(int64_t device) {
    SnapshotSizes sizes;
    const std::map<Birth, Category> tags = recorded_categories(device);
    for_each_event(process_, [&](FrameworkEvent event) {
      if (event.device != device) return;
      sizes.fill_in(event);
      if (event.action == FrameworkAction::kAlloc && event.category == Category::kUnknown) {
        const auto tag = tags.find({event.address, event.time_ns});
        if (tag != tags.end()) event.category = tag->second;
      }
      if (options_.time.contains(event.time_ns)) write_entry(event);
    });
  }

  void write_entry(const FrameworkEvent& event) {
    const auto action = static_cast<size_t>(event.action);
    if (action == 0 || action >= kSnapshotActions.size()) return;
    pickle_.item();
    pickle_.begin_dict();
    pickle_.key("action");
    pickle_.text(kSnapshotActions[action]);
    put_unsigned(event.action == FrameworkAction::kOutOfMemory ? "device_free" : "addr",
                 event.address);
    put_unsigned("size", event.size_bytes);
    put_unsigned("stream", event.stream);
    if (has_times_) put("time_us", event.time_ns / 1000);
    if (event.pool != 0) {  // torch 2.12 and later; without the key it is the default pool
      pickle_.key("pool_id");
      write_pool(event.pool);
    }
    pickle_.key("compile_context");
    const std::string_view context = names_.string(event.compile_context);
    pickle_.text(context.empty() ? "N/A" : context);
    pickle_.key("user_metadata");
    pickle_.text(names_.string(event.metadata));
    if (event.category != Category::kUnknown) {
      pickle_.key("category");
      pickle_.text(category_name(event.category));
    }
    if (event.forward_stack != 0) {
      pickle_.key("forward_frames");
      write_forward_stack(event.forward_stack);
    }
    if (names_.stack_count() > 1) {  // torch omits the key when no stacks are recorded
      pickle_.key("frames");
      write_stack(event.stack);
    }
    pickle_.end_dict();
    ++summary_.records;
  }

  // True when the value was written before; then it writes a reference to it.
  bool referred(std::unordered_map<uint32_t, uint32_t>& known, uint32_t id) {
    if (const auto it = known.find(id); it != known.end()) {
      pickle_.refer(it->second);
      return true;
    }
    known[id] = pickle_.remember_next();
    return false;
  }

  void write_stack(uint32_t stack) {
    if (stack == 0) {
      pickle_.begin_list();
      pickle_.end_list();
      return;
    }
    if (referred(stacks_, stack)) return;
    pickle_.begin_list();
    for (const uint32_t frame : names_.frames_of(stack)) {
      pickle_.item();
      write_frame(frame);
    }
    pickle_.end_list();
  }

  void write_frame(uint32_t id) {
    if (referred(frames_, id)) return;
    const Frame& frame = names_.frame(id);
    pickle_.begin_dict();
    pickle_.key("name");
    // A native frame without symbols is identified by its module and offset.
    const std::string_view function = names_.string(frame.function);
    if (function.empty() && frame.module != 0) {
      pickle_.text(names_.frame_text(id));
    } else {
      pickle_.text(function);
    }
    pickle_.key("filename");
    pickle_.text(frame.kind == FrameKind::kAutograd ? kAutogradFile
                 : frame.kind == FrameKind::kThread ? kThreadFile
                                                    : names_.recorded_file(frame));
    put("line", frame.line);
    write_details(names_.string(frame.detail));
    pickle_.end_dict();
  }

  // "key=value" lines; a value continues until the next known key.
  void write_details(std::string_view detail) {
    const auto starts_key = [](std::string_view line) {
      return std::any_of(kFrameDetails.begin(), kFrameDetails.end(),
                         [&](std::string_view key) { return line.starts_with(key); });
    };
    while (!detail.empty()) {
      size_t end = detail.find('\n');
      while (end != std::string_view::npos && end + 1 < detail.size() &&
             !starts_key(detail.substr(end + 1))) {
        end = detail.find('\n', end + 1);
      }
      const std::string_view entry = detail.substr(0, end);
      if (const size_t equals = entry.find('='); equals != std::string_view::npos) {
        pickle_.key(entry.substr(0, equals));
        pickle_.text(entry.substr(equals + 1));
      }
      if (end == std::string_view::npos) return;
      detail.remove_prefix(end + 1);
    }
  }

  void write_forward_stack(uint32_t stack) {
    if (referred(forward_stacks_, stack)) return;
    pickle_.begin_list();
    for (const uint32_t frame : names_.frames_of(stack)) {
      pickle_.item();
      pickle_.text(names_.string(names_.frame(frame).function));
    }
    pickle_.end_list();
  }

  bool maps_segments() const {
    const auto maps = [](const SegmentChange& change) { return change.expandable; };
    const auto& devices = process_.model->framework;
    return std::any_of(devices.begin(), devices.end(), [&](const AllocationHistory& history) {
      return std::any_of(history.segment_changes.begin(), history.segment_changes.end(), maps);
    });
  }

  bool has_allocator_settings() const {
    const auto& settings = process_.model->settings;
    return std::any_of(settings.begin(), settings.end(),
                       [](const Setting& s) { return s.scope == SettingScope::kAllocator; });
  }

  // Settings are stored as text, with "outer.inner" for a nested dictionary.
  void write_settings() {
    const auto& settings = process_.model->settings;
    pickle_.begin_dict();
    // Its allocator has no settings to record. Readers must know that the segments are not torch's.
    if (process_.model->info.source == Source::kCapture && !process_.model->torch_pools.empty()) {
      pickle_.key("PYTORCH_CUDA_ALLOC_CONF");
      pickle_.text("backend:cudaMallocAsync");
    }
    // A capture without the bridge does not have them. This one changes how blocks are split.
    const bool capture = process_.model->info.source == Source::kCapture;
    if (capture && maps_segments() && !has_allocator_settings()) {
      pickle_.key("expandable_segments");
      pickle_.boolean(true);
    }
    for (size_t i = 0; i < settings.size(); ++i) {
      if (settings[i].scope != SettingScope::kAllocator) continue;
      const std::string_view key = names_.string(settings[i].key);
      const size_t dot = key.find('.');
      if (dot == std::string_view::npos) {
        pickle_.key(key);
        write_setting(key, names_.string(settings[i].value));
        continue;
      }
      const std::string_view outer = key.substr(0, dot);
      pickle_.key(outer);
      pickle_.begin_dict();
      for (; i < settings.size(); ++i) {
        const std::string_view inner = names_.string(settings[i].key);
        if (!inner.starts_with(outer) || inner.find('.') != dot) break;
        pickle_.key(inner.substr(dot + 1));
        write_setting(inner, names_.string(settings[i].value));
      }
      --i;
      pickle_.end_dict();
    }
    pickle_.end_dict();
  }

  void write_setting(std::string_view key, std::string_view text) {
    const char* end = text.data() + text.size();
    if (key == "PYTORCH_CUDA_ALLOC_CONF") return pickle_.text(text);
    if (text == "True" || text == "False") return pickle_.boolean(text == "True");
    int64_t number = 0;
    const bool real_key = key == "garbage_collection_threshold";
    if (const auto [stop, error] = std::from_chars(text.data(), end, number);
        error == std::errc() && stop == end && !real_key) {
      return pickle_.number(number);
    }
    if (const auto real = leading_number(text); real && real->rest.empty()) {
      return pickle_.real(real->value);
    }
    pickle_.text(text);
  }

  // Torch counts microseconds: one that leaves the mark between the same events, if there is one.
  int64_t mark_us(int64_t time_ns) const {
    int64_t us = time_ns / 1000;
    for (const AllocationHistory& history : process_.model->framework) {
      uint32_t before = 0;
      if (!history.event_at(time_ns, before) || before + 1 == history.event_count()) continue;
      if (history.time_ns[before + 1] / 1000 > us) continue;
      us = std::max(history.time_ns[before] / 1000, history.time_ns[before + 1] / 1000 - 1);
    }
    return us;
  }

  // Annotations are recorded by torch; other marks of a capture are written in the same form.
  void write_annotations() {
    pickle_.begin_list();
    std::map<std::pair<MarkKind, uint64_t>, uint32_t> begun;  // ends of such ranges have no name
    for (Mark mark : process_.model->marks) {
      if (mark.kind == MarkKind::kOptimizerStep && mark.phase == MarkPhase::kInstant) {
        write_annotation(mark, "START", kOptimizerStepName);
        write_annotation(mark, "END", kOptimizerStepName);
      }
      if (mark.phase != MarkPhase::kBegin && mark.phase != MarkPhase::kEnd) continue;
      if (mark.correlation != 0) {
        uint32_t& name = begun[{mark.kind, mark.correlation}];
        if (mark.phase == MarkPhase::kBegin) name = mark.name;
        mark.name = name;
      }
      write_annotation(mark, mark.phase == MarkPhase::kBegin ? "START" : "END",
                       names_.string(mark.name));
    }
    pickle_.end_list();
  }

  void write_annotation(const Mark& mark, std::string_view stage, std::string_view name) {
    if (!options_.time.contains(mark.time_ns)) return;
    pickle_.item();
    pickle_.begin_dict();
    pickle_.key("stage");
    pickle_.text(stage);
    pickle_.key("name");
    pickle_.text(name);
    put("device", mark.device);
    put("time_us", mark_us(mark.time_ns));
    pickle_.end_dict();
  }

  void put(std::string_view key, int64_t value) {
    pickle_.key(key);
    pickle_.number(value);
  }
  void put_unsigned(std::string_view key, uint64_t value) {
    pickle_.key(key);
    pickle_.unsigned_number(value);
  }

  static constexpr int64_t kMaxDevices = 1024;

  const ExportProcess& process_;
  const Dictionary& names_;
  const ExportOptions& options_;
  const Progress& progress_;
  PickleWriter pickle_;
  std::unordered_map<uint32_t, std::pair<uint64_t, uint64_t>> pools_;
  std::unordered_map<uint32_t, uint32_t> stacks_;  // id -> remembered
  std::unordered_map<uint32_t, uint32_t> frames_;
  std::unordered_map<uint32_t, uint32_t> forward_stacks_;
  int64_t devices_ = 0;
  bool has_times_ = true;
  ExportSummary summary_;
};

}  // namespace

Result<ExportSummary> export_snapshot(const ExportInput& input, const ExportOptions& options,
                                      const std::string& path, const Progress& progress) {
  const Result<std::vector<ExportProcess>> processes = chosen_processes(input, options);
  if (!processes) return processes.error();
  if (processes->size() != 1) {
    return Error{fmt::format("{}: a snapshot holds one process, this trace has {}; {}",
                             input.model.path, processes->size(), ways_to_choose(*processes))};
  }
  const ProcessModel& process = *processes->front().model;
  if (process.framework.empty() && process.info.source == Source::kCapture) {
    return Error{
        fmt::format("{}: nothing of PyTorch's allocator was recorded, so there is no "
                    "PyTorch snapshot of it; perfetto, sqlite and csv have the rest",
                    input.model.path)};
  }
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  FdSink sink(file->fd());
  Result<ExportSummary> summary = SnapshotWriter(processes->front(), options, sink, progress).run();
  if (!summary) return Error{path + ": " + summary.error().message};
  if (summary->bytes > options.max_bytes) {
    return Error{fmt::format("{}: {} would exceed the limit of {}; choose a part with --time", path,
                             size_text(summary->bytes), size_text(options.max_bytes))};
  }
  if (Status status = file->commit(); !status) return status.error();
  return summary;
}

}  // namespace tidemark
