// Writes the packets of a Perfetto trace into a sink.
//
//   file   = packet*
//   packet = 0x0a, length, fields of TracePacket
//
// Packets that occur by the million (counter samples, beginnings and ends of slices) are encoded by
// hand; they are short enough for a length of one byte. All others are messages of perfetto.proto.
// The first failure of the sink is kept and returned by finish().
#pragma once

#include <perfetto.pb.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/base/byte_sink.h"
#include "proto/base/result.h"
#include "proto/wire.h"

namespace tidemark {

namespace pb = tidemark::perfetto;

// Builtin clocks of the format, and the first of the clocks that belong to one sequence.
enum PerfettoClock : uint32_t {
  kClockRealtime = 1,
  kClockMonotonic = 3,
  kClockMonotonicCoarse = 4,
  kClockBoottime = 6,
  kClockSequence = 64,
};
enum PerfettoSequenceFlags : uint32_t { kStateCleared = 1, kNeedsState = 2 };
enum PerfettoEventType : uint32_t { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };

class PerfettoPackets {
 public:
  explicit PerfettoPackets(ByteSink& sink);

  void put(const pb::TracePacket& packet);

  // `time` on the sequence's clock: nanoseconds, or nanoseconds since the previous packet.
  void put_counter(uint32_t sequence, uint64_t time, uint64_t track, uint64_t value) {
    uint8_t* p = begin_short(sequence, time);
    p = put_type_and_track(p, kCounter, track);
    *p++ = 0xf0;  // counter_value = 30
    *p++ = 0x01;
    end_short(wire::put_varint(p, value));
  }
  static size_t counter_bytes(uint32_t sequence, uint64_t time, uint64_t track, uint64_t value);

  void put_slice_begin(uint32_t sequence, int64_t time_ns, uint64_t track, uint32_t name_iid,
                       uint32_t category_iid) {
    uint8_t* p = begin_short(sequence, static_cast<uint64_t>(time_ns));
    p = put_type_and_track(p, kSliceBegin, track);
    p = wire::put_varint(wire::put_tag(p, 10, wire::kVarint), name_iid);
    p = wire::put_varint(wire::put_tag(p, 3, wire::kVarint), category_iid);
    end_short(p);
  }
  void put_slice_end(uint32_t sequence, int64_t time_ns, uint64_t track) {
    uint8_t* p = begin_short(sequence, static_cast<uint64_t>(time_ns));
    end_short(put_type_and_track(p, kSliceEnd, track));
  }

  // A number for a sequence of packets or for a track; each is unique.
  uint32_t new_sequence() { return ++last_sequence_; }
  uint64_t new_track() { return ++last_track_; }

  uint64_t bytes() const { return flushed_ + used_; }
  uint64_t packets() const { return packets_; }
  // Writes the rest to the sink. An Error if any write failed.
  Status finish();

 private:
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr size_t kShortPacket = 128;

  uint8_t* begin_short(uint32_t sequence, uint64_t time) {
    if (used_ + kShortPacket > kBufferBytes) flush();
    uint8_t* p = buffer_.data() + used_;
    p += 2;       // tag and length of the packet
    *p++ = 0x40;  // timestamp = 8
    p = wire::put_varint(p, time);
    *p++ = 0x50;  // trusted_packet_sequence_id = 10
    p = wire::put_varint(p, sequence);
    *p++ = 0x68;  // sequence_flags = 13
    *p++ = kNeedsState;
    *p++ = 0x5a;  // track_event = 11
    event_ = p;
    return p + 1;
  }
  static uint8_t* put_type_and_track(uint8_t* p, PerfettoEventType type, uint64_t track) {
    *p++ = 0x48;  // type = 9
    *p++ = static_cast<uint8_t>(type);
    *p++ = 0x58;  // track_uuid = 11
    return wire::put_varint(p, track);
  }
  void end_short(uint8_t* end) {
    uint8_t* begin = buffer_.data() + used_;
    *event_ = static_cast<uint8_t>(end - event_ - 1);
    begin[0] = 0x0a;
    begin[1] = static_cast<uint8_t>(end - begin - 2);
    used_ = static_cast<size_t>(end - buffer_.data());
    ++packets_;
  }
  void flush();
  void write(const uint8_t* data, size_t size);

  ByteSink& sink_;
  std::vector<uint8_t> buffer_;
  std::string message_;
  size_t used_ = 0;
  uint8_t* event_ = nullptr;  // where the length of the open packet's event goes
  uint64_t flushed_ = 0;
  uint64_t packets_ = 0;
  uint64_t last_track_ = 0;
  uint32_t last_sequence_ = 0;
  int errno_ = 0;
};

}  // namespace tidemark
