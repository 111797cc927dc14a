#include "collector/snapshot/snapshot_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "collector/pickle/reader.h"
#include "collector/snapshot/event_encoder.h"
#include "collector/snapshot/host_traces.h"
#include "collector/snapshot/name_writer.h"
#include "collector/snapshot/snapshot_entry.h"
#include "proto/base/version.h"
#include "proto/snapshot_actions.h"

namespace tidemark {

namespace {

using Keys = std::span<const std::string_view>;

// The values of "category" from torch.profiler (its enum in lower case).
constexpr std::array<std::pair<std::string_view, Category>, 7> kCategories = {{
    {"input", Category::kInput},
    {"temporary", Category::kTemporary},
    {"activation", Category::kActivation},
    {"gradient", Category::kGradient},
    {"autograd_detail", Category::kAutogradDetail},
    {"parameter", Category::kParameter},
    {"optimizer_state", Category::kOptimizerState},
}};

constexpr std::array<std::string_view, 12> kSegmentKeys = {
    "device", "address",      "total_size",      "allocated_size", "active_size", "requested_size",
    "stream", "segment_type", "segment_pool_id", "is_expandable",  "frames",      "blocks"};
constexpr std::array<std::string_view, 6> kBlockKeys = {"address", "size",   "requested_size",
                                                        "state",   "frames", "history"};
constexpr std::array<std::string_view, 6> kRootKeys = {"segments",           "device_traces",
                                                       "allocator_settings", "external_annotations",
                                                       "host_segments",      "host_traces"};

constexpr int64_t kMaxMicroseconds = INT64_MAX / 1000;
constexpr size_t kMostDevices = 128;  // c10::DeviceIndex is an int8_t

// Snapshots of torch 2.0 to 2.13 have one value in 4 bytes or more and one container in 35; the
// limits leave ample space, and keep a crafted file from taking far more memory than its size.
PickleLimits limits_for(uint64_t bytes) {
  constexpr uint64_t kAnyway = uint64_t{1} << 16;
  PickleLimits limits;
  limits.max_containers = kAnyway + bytes / 8;
  limits.max_memo_entries = kAnyway + bytes / 4;
  limits.max_stack = kAnyway + bytes / 4;
  limits.max_values = 4 * kAnyway + bytes;
  return limits;
}

class SnapshotImporter {
 public:
  SnapshotImporter(const PickleDocument& document, TraceWriter& writer)
      : doc_(document),
        writer_(writer),
        names_(writer),
        ids_of_container_(document.container_count()) {}

  Result<ImportSummary> run(const std::string& name, int64_t rank) {
    PickleValue segments = doc_.find(doc_.root(), "segments");
    const PickleValue traces = doc_.find(doc_.root(), "device_traces");
    // torch.cuda.memory_snapshot(), unlike _snapshot(), returns only the list of segments.
    const auto listed = doc_.items(doc_.root());
    const bool of_dicts = std::all_of(listed.begin(), listed.end(), [](PickleValue item) {
      return item.kind() == PickleKind::kDict;
    });
    if (doc_.root().kind() == PickleKind::kList && of_dicts) segments = doc_.root();
    if (segments.is_absent() && traces.is_absent()) {
      return Error{name +
                   ": a pickle, but not a PyTorch memory snapshot (no \"segments\" and no "
                   "\"device_traces\" in it)"};
    }
    write_process(rank);
    note_unknown_keys(doc_.root(), kRootKeys);
    write_settings(doc_.find(doc_.root(), "allocator_settings"));
    const auto devices = doc_.items(traces);
    if (devices.size() > kMostDevices) {
      return Error{
          fmt::format("{}: \"device_traces\" has {} lists, one per device; PyTorch has at "
                      "most {} devices",
                      name, devices.size(), kMostDevices)};
    }
    for (size_t device = 0; device < devices.size(); ++device) {
      write_trace(static_cast<int64_t>(device), devices[device]);
    }
    writer_.flush();  // names before events: a truncated file still has the names of its events
    if (!events_.finish(writer_)) return Error{name + ": not enough memory to import it"};
    for (const PickleValue a : doc_.items(doc_.find(doc_.root(), "external_annotations"))) {
      write_annotation(a);
    }
    for (const PickleValue segment : doc_.items(segments)) write_segment(segment);
    const HostImport host =
        import_host_memory(doc_, writer_, [this](PickleValue frames) { return stack_of(frames); });
    summary_.events += host.events;
    summary_.skipped += host.skipped;
    write_health();
    return summary_;
  }

 private:
  void write_process(int64_t rank) {
    Process process{};
    process.rank = rank;
    process.local_rank = -1;
    process.framework = names_.string("torch");
    process.tool_version = names_.string(kVersion);
    process.source = Source::kTorchSnapshot;
    writer_.append(process);
  }

  void write_settings(PickleValue settings) {
    const auto keys = doc_.keys(settings);
    const auto values = doc_.values(settings);
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::string key(doc_.as_string(keys[i]).value_or(""));
      if (values[i].kind() != PickleKind::kDict) {
        write_setting(key, values[i]);
        continue;
      }
      const auto inner = doc_.keys(values[i]);
      for (size_t k = 0; k < inner.size(); ++k) {
        write_setting(key + "." + std::string(doc_.as_string(inner[k]).value_or("")),
                      doc_.values(values[i])[k]);
      }
    }
  }

  void write_setting(std::string_view key, PickleValue value) {
    Setting setting{};
    setting.key = names_.string(key);
    setting.value = names_.string(text_of(value));
    setting.scope = SettingScope::kAllocator;
    writer_.append(setting);
  }

  // A scalar as Python prints it.
  std::string text_of(PickleValue value) const {
    if (const auto b = doc_.as_bool(value)) return *b ? "True" : "False";
    if (const auto n = doc_.as_i64(value)) return std::to_string(*n);
    if (const auto u = doc_.as_u64(value)) return std::to_string(*u);
    if (const auto d = doc_.as_f64(value)) return fmt::format("{}", *d);
    return std::string(doc_.as_string(value).value_or(""));
  }

  // Dicts of a snapshot have 14 keys at most. One with very many, referred to very often, would
  // take very long.
  bool is_plausible(PickleValue dict) const {
    constexpr size_t kMostKeys = 256;
    return doc_.keys(dict).size() <= kMostKeys;
  }

  void write_trace(int64_t device, PickleValue trace) {
    EntryReader reader;
    int64_t ordinal = 0;
    const auto entries = doc_.items(trace);
    if (!entries.empty() && !read_lists_.is_first(trace)) {
      ++summary_.skipped;
      return;
    }
    for (const PickleValue entry : entries) {
      if (!is_plausible(entry)) {
        ++summary_.skipped;
        continue;
      }
      reader.read(doc_, entry);
      if (is_note(reader)) {
        write_note_on_tensor(device, reader);
        continue;
      }
      FrameworkEvent event{};
      event.action = action_of(reader.get(EntryKey::kAction));
      const auto bytes = doc_.as_u64(reader.get(EntryKey::kSize));
      const PickleValue time = reader.get(EntryKey::kTime);
      const auto us = time.is_absent() ? std::optional(ordinal) : doc_.as_i64(time);
      if (event.action == FrameworkAction::kNone || !bytes || !us || *us < 0 ||
          *us > kMaxMicroseconds) {
        ++summary_.skipped;
        continue;
      }
      ++ordinal;
      times_missing_ |= time.is_absent();
      event.time_ns = *us * 1000;
      event.size_bytes = *bytes;
      event.device = device;
      fill_event(event, reader);
      events_.append(event);
      ++summary_.events;
      last_ns_ = std::max(last_ns_, event.time_ns);
      note_unknown_keys(entry, kEntryKeys);
    }
  }

  // torch.cuda.memory._annotate_tensor (2.14): a text about a block, which changes nothing.
  bool is_note(const EntryReader& reader) const {
    return doc_.as_string(reader.get(EntryKey::kAction)).value_or("") == "annotate";
  }

  void write_note_on_tensor(int64_t device, const EntryReader& reader) {
    const auto us = doc_.as_i64(reader.get(EntryKey::kTime));
    const auto text = doc_.as_string(reader.get(EntryKey::kMetadata));
    if (!us || *us < 0 || *us > kMaxMicroseconds || !text) {
      ++summary_.skipped;
      return;
    }
    Mark mark{};
    mark.time_ns = *us * 1000;
    mark.device = device;
    mark.name = names_.string(*text);
    mark.domain = names_.string("torch annotate");
    mark.phase = MarkPhase::kInstant;
    mark.kind = MarkKind::kUser;
    writer_.append(mark);
    last_ns_ = std::max(last_ns_, mark.time_ns);
  }

  void fill_event(FrameworkEvent& event, const EntryReader& reader) {
    PickleValue address = reader.get(EntryKey::kAddress);
    if (address.is_absent()) address = reader.get(EntryKey::kDeviceFree);
    event.address = doc_.as_address(address).value_or(0);
    event.stream = doc_.as_address(reader.get(EntryKey::kStream)).value_or(0);
    event.stack = stack_of(reader.get(EntryKey::kFrames));
    event.forward_stack = forward_stack_of(reader.get(EntryKey::kForwardFrames));
    event.pool = pool_of(reader.get(EntryKey::kPool));
    event.compile_context = compile_context_.id(*this, reader.get(EntryKey::kCompileContext));
    event.metadata = metadata_.id(*this, reader.get(EntryKey::kMetadata));
    event.category = category_of(reader.get(EntryKey::kCategory));
  }

  FrameworkAction action_of(PickleValue value) {
    // The pickler writes each action's name once and refers to it afterwards.
    for (const auto& [known, action] : known_actions_) {
      if (known == value) return action;
    }
    const auto name = doc_.as_string(value).value_or("");
    const auto it = std::find(kSnapshotActions.begin() + 1, kSnapshotActions.end(), name);
    if (it == kSnapshotActions.end()) return FrameworkAction::kNone;
    const auto action = static_cast<FrameworkAction>(it - kSnapshotActions.begin());
    if (known_actions_.size() < 16) known_actions_.emplace_back(value, action);
    return action;
  }

  Category category_of(PickleValue value) const {
    if (value.is_absent()) return Category::kUnknown;
    const auto name = doc_.as_string(value).value_or("");
    for (const auto& [known, category] : kCategories) {
      if (known == name) return category;
    }
    return Category::kUnknown;
  }

  uint32_t pool_of(PickleValue id) {
    const auto halves = doc_.items(id);
    if (halves.size() != 2) return 0;
    return names_.pool(doc_.as_u64(halves[0]).value_or(0), doc_.as_u64(halves[1]).value_or(0));
  }

  // Frames are listed innermost first. torch writes most lists again for every entry, but shares
  // the frames in them: equal lists contain the same values and are converted to a stack once.
  uint32_t stack_of(PickleValue frames) {
    const auto items = doc_.items(frames);
    if (items.empty()) return 0;
    // A list that entries share is hashed once, however long it is.
    uint32_t& of_list = ids_of_container_[frames.container_id()];
    if (of_list != 0 && (of_list & kForwardStack) == 0) return of_list - 1;
    const uint32_t stack = stacks_.id(items, [&] {
      uint32_t made = 0;
      for (auto frame = items.rbegin(); frame != items.rend(); ++frame) {
        const uint32_t id = frame_of(*frame);
        if (id != 0) made = names_.stack(made, id);
      }
      return made;
    });
    of_list = stack + 1;
    return stack;
  }

  static FrameKind kind_of(std::string_view file) {
    if (file == kAutogradFile) return FrameKind::kAutograd;
    if (file == kThreadFile) return FrameKind::kThread;
    return file.ends_with(".py") || file.starts_with('<') ? FrameKind::kPython : FrameKind::kNative;
  }

  uint32_t frame_of(PickleValue value) {
    if (value.kind() != PickleKind::kDict) return 0;
    uint32_t& known = ids_of_container_[value.container_id()];
    if (known != 0) return known;
    Frame frame{};
    std::string detail;
    const auto keys = doc_.keys(value);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto key = doc_.as_string(keys[i]).value_or("");
      const PickleValue item = doc_.values(value)[i];
      if (key == "name") {
        frame.function = names_.string(doc_.as_string(item).value_or(""));
      } else if (key == "filename") {
        const auto file = doc_.as_string(item).value_or("");
        frame.kind = kind_of(file);
        const bool has_file =
            frame.kind != FrameKind::kAutograd && frame.kind != FrameKind::kThread;
        if (has_file) frame.file = names_.string(file);
      } else if (key == "line") {
        frame.line = doc_.as_i64(item).value_or(0);
      } else {
        detail += fmt::format("{}={}\n", key, text_of(item));
      }
    }
    frame.detail = names_.string(detail);
    return known = names_.frame(frame);
  }

  // The forward operation of a backward allocation: a list of strings, one per line of its trace.
  uint32_t forward_stack_of(PickleValue lines) {
    if (!lines.is_container()) return 0;
    uint32_t& known = ids_of_container_[lines.container_id()];
    if ((known & kForwardStack) != 0) return known & ~kForwardStack;
    const auto items = doc_.items(lines);
    uint32_t stack = 0;
    for (auto line = items.rbegin(); line != items.rend(); ++line) {
      Frame frame{};
      frame.function = names_.string(doc_.as_string(*line).value_or(""));
      frame.kind = FrameKind::kAutograd;
      stack = names_.stack(stack, names_.frame(frame));
    }
    known = stack | kForwardStack;
    return stack;
  }

  void write_annotation(PickleValue value) {
    if (!is_plausible(value)) {
      ++summary_.skipped;
      return;
    }
    const auto stage = doc_.as_string(doc_.find(value, "stage")).value_or("");
    const auto us = doc_.as_i64(doc_.find(value, "time_us"));
    if ((stage != "START" && stage != "END") || !us || *us < 0 || *us > kMaxMicroseconds) {
      ++summary_.skipped;
      return;
    }
    Mark mark{};
    mark.time_ns = *us * 1000;
    mark.device = doc_.as_i64(doc_.find(value, "device")).value_or(0);
    mark.name = names_.string(doc_.as_string(doc_.find(value, "name")).value_or(""));
    mark.phase = stage == "START" ? MarkPhase::kBegin : MarkPhase::kEnd;
    mark.kind = MarkKind::kAnnotation;
    writer_.append(mark);
    last_ns_ = std::max(last_ns_, mark.time_ns);
  }

  void write_segment(PickleValue value) {
    const bool plausible = is_plausible(value);
    const auto address = plausible ? doc_.as_address(doc_.find(value, "address")) : std::nullopt;
    const auto size = plausible ? doc_.as_u64(doc_.find(value, "total_size")) : std::nullopt;
    if (!address || !size) {
      ++summary_.skipped;
      return;
    }
    SegmentState segment{};
    segment.time_ns = last_ns_;
    segment.address = *address;
    segment.size_bytes = *size;
    segment.allocated_bytes = number(value, "allocated_size");
    segment.active_bytes = number(value, "active_size");
    segment.requested_bytes = number(value, "requested_size");
    segment.stream = doc_.as_address(doc_.find(value, "stream")).value_or(0);
    segment.device = doc_.as_i64(doc_.find(value, "device")).value_or(0);
    segment.pool = pool_of(doc_.find(value, "segment_pool_id"));
    segment.stack = stack_of(doc_.find(value, "frames"));
    if (doc_.as_bool(doc_.find(value, "is_expandable")).value_or(false)) {
      segment.flags |= kSegmentExpandable;
    }
    if (doc_.as_string(doc_.find(value, "segment_type")).value_or("") == "small") {
      segment.flags |= kSegmentSmall;
    }
    writer_.append(segment);
    ++summary_.segments;
    note_unknown_keys(value, kSegmentKeys);
    uint64_t next = segment.address;
    const PickleValue blocks = doc_.find(value, "blocks");
    if (!read_lists_.is_first(blocks)) {
      ++summary_.skipped;
      return;
    }
    for (const PickleValue block : doc_.items(blocks)) next = write_block(block, segment, next);
  }

  uint64_t number(PickleValue dict, std::string_view key) const {
    return doc_.as_u64(doc_.find(dict, key)).value_or(0);
  }

  // Returns where the next block begins: torch 2.0 writes no addresses, only sizes in order.
  uint64_t write_block(PickleValue value, const SegmentState& segment, uint64_t expected) {
    if (!is_plausible(value)) {
      ++summary_.skipped;
      return expected;
    }
    const auto size = doc_.as_u64(doc_.find(value, "size"));
    const auto state = doc_.as_string(doc_.find(value, "state")).value_or("");
    if (!size) {
      ++summary_.skipped;
      return expected;
    }
    BlockState block{};
    block.time_ns = last_ns_;
    block.address = doc_.as_address(doc_.find(value, "address")).value_or(expected);
    block.size_bytes = *size;
    block.device = segment.device;
    block.condition = state == "active_allocated" ? BlockCondition::kAllocated
                      : state == "inactive"       ? BlockCondition::kFree
                                                  : BlockCondition::kPendingFree;
    block.requested_bytes = number(value, "requested_size");
    PickleValue frames = doc_.find(value, "frames");
    // torch 2.0: the latest use of the block comes first in its history.
    if (const auto history = doc_.items(doc_.find(value, "history")); !history.empty()) {
      frames = doc_.find(history.front(), "frames");
      if (block.condition != BlockCondition::kFree && block.requested_bytes == 0) {
        block.requested_bytes = number(history.front(), "real_size");
      }
    }
    block.stack = stack_of(frames);
    writer_.append(block);
    ++summary_.blocks;
    note_unknown_keys(value, kBlockKeys);
    return block.address + block.size_bytes;
  }

  // Checks each distinct set of keys once.
  void note_unknown_keys(PickleValue dict, Keys known) {
    const auto keys = doc_.keys(dict);
    if (keys.empty() || keys.data() == last_keys_) return;
    last_keys_ = keys.data();
    if (std::find(seen_keys_.begin(), seen_keys_.end(), last_keys_) != seen_keys_.end()) return;
    if (seen_keys_.size() < 64) seen_keys_.push_back(last_keys_);
    for (const PickleValue key : keys) {
      const std::string name(doc_.as_string(key).value_or("?"));
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (std::find(unknown_keys_.begin(), unknown_keys_.end(), name) == unknown_keys_.end() &&
          unknown_keys_.size() < 32) {
        unknown_keys_.push_back(name);
      }
    }
  }

  void write_health() {
    if (summary_.skipped != 0) {
      write_note(
          HealthKind::kInputSkipped, summary_.skipped,
          summary_.skipped == 1
              ? std::string("1 entry of the snapshot was not understood")
              : fmt::format("{} entries of the snapshot were not understood", summary_.skipped));
    }
    for (const std::string& key : unknown_keys_) {
      write_note(HealthKind::kInputSkipped, 0,
                 fmt::format("the snapshot's key \"{}\" is unknown and was skipped", key));
    }
    if (times_missing_) write_note(HealthKind::kSourceMissing, 0, kNoTimes);
  }

  void write_note(HealthKind kind, uint64_t value, std::string_view text) {
    Health health{};
    health.time_ns = last_ns_;
    health.value = value;
    health.detail = names_.string(text);
    health.kind = kind;
    writer_.append(health);
  }

  // The string id of a text that is the same in most entries. Each may have a copy of its own.
  struct RepeatedText {
    PickleValue last;
    std::string_view last_text;
    uint32_t last_id = 0;

    uint32_t id(SnapshotImporter& importer, PickleValue value) {
      if (value == last) return last_id;
      last = value;
      const std::string_view text = importer.doc_.as_string(value).value_or("");
      if (text == last_text) return last_id;
      last_text = text;
      return last_id = text == "N/A" ? 0 : importer.names_.string(text);
    }
  };

  const PickleDocument& doc_;
  TraceWriter& writer_;
  NameWriter names_;
  EventEncoder events_;
  // By container: the id of a frame, a stack + 1, or a forward stack with the bit kForwardStack.
  static constexpr uint32_t kForwardStack = uint32_t{1} << 31;
  std::vector<uint32_t> ids_of_container_;
  ReadLists read_lists_;
  KnownLists stacks_;
  std::vector<std::pair<PickleValue, FrameworkAction>> known_actions_;
  RepeatedText compile_context_;
  RepeatedText metadata_;
  const PickleValue* last_keys_ = nullptr;
  std::vector<const PickleValue*> seen_keys_;
  std::vector<std::string> unknown_keys_;
  ImportSummary summary_;
  int64_t last_ns_ = 0;
  bool times_missing_ = false;
};

}  // namespace

bool looks_like_pickle(std::span<const uint8_t> bytes) {
  constexpr uint8_t kProto = 0x80;
  return bytes.size() >= 2 && bytes[0] == kProto && bytes[1] >= 2 && bytes[1] <= 5;
}

Result<ImportSummary> import_snapshot(std::span<const uint8_t> pickle, const std::string& name,
                                      TraceWriter& writer, int64_t rank) {
  Result<PickleDocument> document = parse_pickle(pickle, limits_for(pickle.size()));
  if (!document) return Error{name + ": " + document.error().message};
  return SnapshotImporter(*document, writer).run(name, rank);
}

}  // namespace tidemark
