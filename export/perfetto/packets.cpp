#include "export/perfetto/packets.h"

#include <cerrno>
#include <cstring>

namespace tidemark {

namespace {

size_t varint_bytes(uint64_t value) {
  size_t bytes = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++bytes;
  }
  return bytes;
}

}  // namespace

PerfettoPackets::PerfettoPackets(ByteSink& sink) : sink_(sink), buffer_(kBufferBytes) {}

size_t PerfettoPackets::counter_bytes(uint32_t sequence, uint64_t time, uint64_t track,
                                      uint64_t value) {
  constexpr size_t kTagsAndLengths = 13;
  return kTagsAndLengths + varint_bytes(time) + varint_bytes(sequence) + varint_bytes(track) +
         varint_bytes(value);
}

void PerfettoPackets::put(const pb::TracePacket& packet) {
  message_.clear();
  packet.AppendToString(&message_);
  uint8_t head[1 + wire::kMaxVarint];
  head[0] = 0x0a;
  const uint8_t* end = wire::put_varint(head + 1, message_.size());
  write(head, static_cast<size_t>(end - head));
  write(reinterpret_cast<const uint8_t*>(message_.data()), message_.size());
  ++packets_;
}

void PerfettoPackets::write(const uint8_t* data, size_t size) {
  if (size > kBufferBytes - used_) flush();
  if (size > kBufferBytes) {
    if (errno_ == 0 && !sink_.write({data, size})) errno_ = errno;
    flushed_ += size;
    return;
  }
  std::memcpy(buffer_.data() + used_, data, size);
  used_ += size;
}

void PerfettoPackets::flush() {
  if (errno_ == 0 && used_ != 0 && !sink_.write({buffer_.data(), used_})) errno_ = errno;
  flushed_ += used_;
  used_ = 0;
}

Status PerfettoPackets::finish() {
  flush();
  if (errno_ != 0) return Error{std::string("cannot write: ") + std::strerror(errno_)};
  return {};
}

}  // namespace tidemark
