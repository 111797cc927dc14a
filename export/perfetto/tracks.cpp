#include "export/perfetto/tracks.h"

#include <fmt/format.h>

#include "export/row_names.h"
#include "export/utf8.h"

namespace tidemark {

namespace {

constexpr uint32_t kExplicitOrder = 3;
constexpr uint32_t kUnitBytes = 3;

}  // namespace

PerfettoTracks::PerfettoTracks(PerfettoPackets& packets, uint32_t sequence,
                               const ExportProcess& process)
    : packets_(packets),
      sequence_(sequence),
      process_(process),
      process_track_(packets.new_track()) {
  const Process& info = process.model->info;
  packet_.set_trusted_packet_sequence_id(sequence_);
  pb::TrackDescriptor& track = *packet_.mutable_track_descriptor();
  track.set_uuid(process_track_);
  track.set_child_ordering(kExplicitOrder);
  pb::ProcessDescriptor& described_process = *track.mutable_process();
  described_process.set_pid(fake_pid());
  described_process.set_process_name(process.label());
  if (const auto command = process.name(info.command); !command.empty()) {
    described_process.add_cmdline(utf8_text(command));
  }
  if (const auto host = process.name(info.host); !host.empty()) {
    described_process.add_process_labels("host " + utf8_text(host));
  }
  if (info.pid != 0) described_process.add_process_labels(fmt::format("pid {}", info.pid));
  packets_.put(packet_);
}

pb::TrackDescriptor& PerfettoTracks::described(uint64_t uuid, uint64_t parent,
                                               std::string_view name, int32_t order) {
  packet_.Clear();
  packet_.set_trusted_packet_sequence_id(sequence_);
  pb::TrackDescriptor& track = *packet_.mutable_track_descriptor();
  track.set_uuid(uuid);
  track.set_parent_uuid(parent);
  track.set_name(utf8_text(name));
  track.set_sibling_order_rank(order);
  return track;
}

uint64_t PerfettoTracks::add(uint64_t parent, std::string_view name, int32_t order) {
  const uint64_t uuid = packets_.new_track();
  described(uuid, parent, name, order).set_child_ordering(kExplicitOrder);
  packets_.put(packet_);
  return uuid;
}

uint64_t PerfettoTracks::add_counter(uint64_t parent, std::string_view name, int32_t order,
                                     std::string_view axis_key) {
  const uint64_t uuid = packets_.new_track();
  pb::CounterDescriptor& counter = *described(uuid, parent, name, order).mutable_counter();
  counter.set_unit(kUnitBytes);
  counter.set_y_axis_share_key(std::string(axis_key));
  packets_.put(packet_);
  return uuid;
}

uint64_t PerfettoTracks::device(int64_t ordinal) {
  uint64_t& track = devices_[ordinal];
  if (track != 0) return track;
  const auto order = static_cast<int32_t>(kDevice + (ordinal & 0xfff));
  return track = add(process_track_, fmt::format("cuda:{}", ordinal), order);
}

PerfettoNames::PerfettoNames(PerfettoPackets& packets, const Dictionary& names)
    : packets_(packets), names_(names), sequence_(packets.new_sequence()) {
  packet_.set_trusted_packet_sequence_id(sequence_);
  packet_.set_sequence_flags(kStateCleared);
  packets_.put(packet_);
}

pb::TracePacket& PerfettoNames::begin_packet(int64_t time_ns) {
  packet_.Clear();
  packet_.set_timestamp(static_cast<uint64_t>(time_ns));
  packet_.set_trusted_packet_sequence_id(sequence_);
  packet_.set_sequence_flags(kNeedsState);
  return packet_;
}

uint32_t PerfettoNames::new_string(uint32_t string) {
  const std::string_view text = names_.string(string);
  const uint32_t number = event(text.empty() ? std::string_view("(unnamed)") : text);
  // Ids beyond the dictionary come from damaged rows: they share one name and need no entry.
  if (!text.empty()) {
    if (string >= by_string_.size()) by_string_.resize(string + 1);
    by_string_[string] = number;
  }
  return number;
}

uint32_t PerfettoNames::new_kernel(uint32_t string) {
  const std::string_view text = names_.string(string);
  if (text.empty()) return event(string);
  const uint32_t number = event(kernel_name(text));
  if (string >= kernels_.size()) kernels_.resize(string + 1);
  return kernels_[string] = number;
}

uint32_t PerfettoNames::find(TextNumbers& numbers, std::string_view text, Kind kind) {
  if (const uint32_t* known = numbers.find(text); known != nullptr) return *known;
  const auto number = static_cast<uint32_t>(numbers.size()) + 1;
  numbers.add(text, number);
  // A separate packet: the caller may be in the middle of filling packet_.
  pb::TracePacket packet;
  packet.set_trusted_packet_sequence_id(sequence_);
  packet.set_sequence_flags(kNeedsState);
  pb::InternedData& data = *packet.mutable_interned_data();
  if (kind == kValue) {
    pb::InternedString* entry = data.add_debug_annotation_string_values();
    entry->set_iid(number);
    entry->set_str(utf8_text(text));
  } else {
    pb::InternedName* entry = kind == kEventName  ? data.add_event_names()
                              : kind == kCategory ? data.add_event_categories()
                                                  : data.add_debug_annotation_names();
    entry->set_iid(number);
    entry->set_name(utf8_text(text));
  }
  packets_.put(packet);
  return number;
}

pb::DebugAnnotation* PerfettoArgs::add(std::string_view name) {
  pb::DebugAnnotation* annotation = event_.add_debug_annotations();
  annotation->set_name_iid(names_.annotation(name));
  return annotation;
}

void PerfettoArgs::text(std::string_view name, std::string_view value) {
  if (!value.empty()) add(name)->set_string_value_iid(names_.value(value));
}

void PerfettoArgs::lines(std::string_view name, const std::vector<std::string>& values) {
  if (values.empty()) return;
  pb::DebugAnnotation* annotation = add(name);
  for (const std::string& value : values) {
    annotation->add_array_values()->set_string_value_iid(names_.value(value));
  }
}

}  // namespace tidemark
