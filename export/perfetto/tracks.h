// The tracks of a Perfetto trace, and names that are written once per sequence.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "export/export_input.h"
#include "export/perfetto/packets.h"
#include "export/text_numbers.h"

namespace tidemark {

// Tracks of one process. Each is described in the file when it is first used.
//
//   rank 0 on node-a, pid 4711
//   ├── cuda:0
//   │   ├── allocated, requested, reserved, device used …   counters on one axis
//   │   ├── out of memory
//   │   └── stream 7 …                                      kernels and copies
//   ├── NCCL …, steps, NVTX …, driver calls
//   └── findings
class PerfettoTracks {
 public:
  // The order of siblings.
  enum Order : int32_t {
    kFindings = 0,
    kSteps = 10,
    kMarks = 20,
    kDevice = 100,
    kCounters = 0,
    kOutOfMemory = 50,
    kStreams = 100,
    kNccl = 10000,
    kDriver = 20000,
  };

  PerfettoTracks(PerfettoPackets& packets, uint32_t sequence, const ExportProcess& process);

  uint64_t process_track() const { return process_track_; }
  // Perfetto's process ids must differ even if ranks of several hosts share one.
  int32_t fake_pid() const { return static_cast<int32_t>(process_.number); }
  uint64_t device(int64_t ordinal);
  uint64_t add(uint64_t parent, std::string_view name, int32_t order);
  // A counter in bytes; those with the same key share one y axis.
  uint64_t add_counter(uint64_t parent, std::string_view name, int32_t order,
                       std::string_view axis_key);

 private:
  pb::TrackDescriptor& described(uint64_t uuid, uint64_t parent, std::string_view name,
                                 int32_t order);

  PerfettoPackets& packets_;
  uint32_t sequence_;
  const ExportProcess& process_;
  uint64_t process_track_;
  std::map<int64_t, uint64_t> devices_;
  pb::TracePacket packet_;
};

// Names on one sequence: the first use of a name writes it, later uses refer to its number.
class PerfettoNames {
 public:
  PerfettoNames(PerfettoPackets& packets, const Dictionary& names);

  uint32_t sequence() const { return sequence_; }
  // The name of an event, by the id of a string in the trace or by its text.
  uint32_t event(uint32_t string) {
    if (string < by_string_.size() && by_string_[string] != 0) return by_string_[string];
    return new_string(string);
  }
  uint32_t event(std::string_view text) { return find(events_, text, kEventName); }
  // The name of a kernel, as its source spells it.
  uint32_t kernel(uint32_t string) {
    if (string < kernels_.size() && kernels_[string] != 0) return kernels_[string];
    return new_kernel(string);
  }
  uint32_t category(std::string_view text) { return find(categories_, text, kCategory); }
  uint32_t annotation(std::string_view text) { return find(annotations_, text, kAnnotation); }
  // The text of an argument: the same stack texts repeat with every call.
  uint32_t value(std::string_view text) { return find(values_, text, kValue); }

  // A packet of this sequence that uses names, ready for its payload.
  pb::TracePacket& begin_packet(int64_t time_ns);
  void end_packet() { packets_.put(packet_); }

 private:
  enum Kind : uint8_t { kEventName, kCategory, kAnnotation, kValue };

  uint32_t new_string(uint32_t string);
  uint32_t new_kernel(uint32_t string);
  uint32_t find(TextNumbers& numbers, std::string_view text, Kind kind);

  PerfettoPackets& packets_;
  const Dictionary& names_;
  uint32_t sequence_;
  std::vector<uint32_t> by_string_;
  std::vector<uint32_t> kernels_;
  TextNumbers events_;
  TextNumbers categories_;
  TextNumbers annotations_;
  TextNumbers values_;
  pb::TracePacket packet_;
};

// Adds "name: value" to an event. The caller leaves out empty texts and zeros that mean "unknown".
class PerfettoArgs {
 public:
  PerfettoArgs(PerfettoNames& names, pb::TrackEvent& event) : names_(names), event_(event) {}

  void number(std::string_view name, uint64_t value) { add(name)->set_uint_value(value); }
  void signed_number(std::string_view name, int64_t value) { add(name)->set_int_value(value); }
  void address(std::string_view name, uint64_t value) { add(name)->set_pointer_value(value); }
  void text(std::string_view name, std::string_view value);
  void lines(std::string_view name, const std::vector<std::string>& values);
  // A list whose entries have named parts: "name[0].part".
  pb::DebugAnnotation* list(std::string_view name) { return add(name); }

 private:
  pb::DebugAnnotation* add(std::string_view name);

  PerfettoNames& names_;
  pb::TrackEvent& event_;
};

}  // namespace tidemark
