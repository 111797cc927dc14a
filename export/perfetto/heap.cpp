#include "export/perfetto/heap.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "export/utf8.h"

namespace tidemark {

namespace {

// Fills the tables of a profile packet; ids count from 1.
class ProfileTables {
 public:
  ProfileTables(pb::ProfilePacket& profile, const Dictionary& names)
      : profile_(profile), names_(names) {
    empty_ = string("");  // build ids: trace_processor drops a mapping whose build id is unknown
  }

  uint64_t callstack(uint64_t key) {
    pb::Callstack* stack = profile_.add_callstacks();
    stack->set_iid(static_cast<uint64_t>(profile_.callstacks_size()));
    if (key == kNoStack || key == kBeforeHistory) {
      stack->add_frame_ids(
          text_frame(key == kNoStack ? "[no stack recorded]" : "[allocated before the recording]"));
      return stack->iid();
    }
    std::vector<uint32_t> frames = names_.frames_of(static_cast<uint32_t>(key));
    std::reverse(frames.begin(), frames.end());  // outermost first
    for (const uint32_t id : frames) stack->add_frame_ids(frame(id));
    if (frames.empty()) stack->add_frame_ids(text_frame("[unknown stack]"));
    return stack->iid();
  }

 private:
  uint64_t string(std::string_view text) {
    uint64_t& id = strings_[std::string(text)];
    if (id != 0) return id;
    pb::InternedString* entry = profile_.add_strings();
    id = static_cast<uint64_t>(profile_.strings_size());
    entry->set_iid(id);
    entry->set_str(utf8_text(text));
    return id;
  }

  uint64_t mapping(std::string_view path) {
    uint64_t& id = mappings_[std::string(path)];
    if (id != 0) return id;
    const uint64_t path_id = string(path);
    pb::Mapping* entry = profile_.add_mappings();
    id = static_cast<uint64_t>(profile_.mappings_size());
    entry->set_iid(id);
    entry->set_build_id(empty_);
    entry->add_path_string_ids(path_id);
    return id;
  }

  // rel_pc keeps lines of one function apart.
  uint64_t new_frame(std::string_view text, std::string_view file, uint64_t rel_pc) {
    const uint64_t name = string(text);
    const uint64_t place = mapping(file.empty() ? "[unknown]" : file);
    pb::Frame* entry = profile_.add_frames();
    entry->set_iid(static_cast<uint64_t>(profile_.frames_size()));
    entry->set_function_name_id(name);
    entry->set_mapping_id(place);
    entry->set_rel_pc(rel_pc);
    return entry->iid();
  }

  uint64_t text_frame(std::string_view text) { return new_frame(text, "[tidemark]", 0); }

  uint64_t frame(uint32_t id) {
    uint64_t& known = frames_[id];
    if (known != 0) return known;
    const Frame& f = names_.frame(id);
    const uint64_t line = f.line > 0 ? static_cast<uint64_t>(f.line) : f.offset;
    return known = new_frame(names_.frame_text(id), names_.string(f.file), line);
  }

  pb::ProfilePacket& profile_;
  const Dictionary& names_;
  uint64_t empty_ = 0;
  std::unordered_map<std::string, uint64_t> strings_;
  std::unordered_map<std::string, uint64_t> mappings_;
  std::unordered_map<uint32_t, uint64_t> frames_;
};

}  // namespace

HeapSums sums_by_stack(const AllocationHistory& model, const MemoryState& state) {
  HeapSums sums;
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const Allocation& a = model.allocations[i];
    HeapSum& sum = sums[a.stack != 0 ? a.stack : a.seeded ? kBeforeHistory : kNoStack];
    sum.bytes += a.block_bytes;
    ++sum.count;
  }
  return sums;
}

HeapSums sums_by_stack(const DriverModel& driver, int64_t device, int64_t time_ns) {
  HeapSums sums;
  for (const DriverAllocation& a : driver.allocations) {
    const bool there = a.device == device && a.birth_ns <= time_ns && a.death_ns > time_ns;
    if (!there || !a.on_card()) continue;
    const bool seeded = (a.flags & kDriverSeeded) != 0;
    HeapSum& sum = sums[a.stack != 0 ? a.stack : seeded ? kBeforeHistory : kNoStack];
    sum.bytes += a.size_bytes;
    ++sum.count;
  }
  return sums;
}

void write_heap_dump(PerfettoPackets& packets, const ExportProcess& process, int32_t fake_pid,
                     const HeapSums& sums, std::string_view heap_name, int64_t time_ns) {
  pb::TracePacket packet;
  packet.set_trusted_packet_sequence_id(packets.new_sequence());
  packet.set_sequence_flags(kStateCleared);
  packet.set_timestamp(static_cast<uint64_t>(time_ns));
  pb::ProfilePacket& profile = *packet.mutable_profile_packet();
  profile.set_index(0);
  ProfileTables tables(profile, process.model->names);
  pb::ProfilePacket::ProcessHeapSamples& dump = *profile.add_process_dumps();
  dump.set_pid(static_cast<uint64_t>(fake_pid));
  // Of the clock MONOTONIC_COARSE, which the first snapshot equates with real time.
  dump.set_timestamp(static_cast<uint64_t>(time_ns));
  dump.set_heap_name(std::string(heap_name));
  dump.set_sampling_interval_bytes(1);
  dump.set_orig_sampling_interval_bytes(1);
  for (const auto& [key, sum] : sums) {
    pb::ProfilePacket::HeapSample* sample = dump.add_samples();
    sample->set_callstack_id(tables.callstack(key));
    sample->set_self_allocated(sum.bytes);
    sample->set_alloc_count(sum.count);
  }
  packets.put(packet);
}

}  // namespace tidemark
