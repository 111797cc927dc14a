#include "proto/write/block_encoder.h"

#define ZSTD_STATIC_LINKING_ONLY  // for the custom allocator
#include <zstd.h>

#include <cstring>

namespace tidemark {

namespace {

// zstd's tables, in pages as well. Each begins with its size, which zstd does not pass to free.
constexpr size_t kSizeBytes = 64;

void* zstd_alloc(void*, size_t bytes) {
  auto* const p = static_cast<uint8_t*>(map_pages(bytes + kSizeBytes));
  if (p == nullptr) return nullptr;
  const size_t size = bytes + kSizeBytes;
  std::memcpy(p, &size, sizeof size);
  return p + kSizeBytes;
}

void zstd_free(void*, void* address) {
  if (address == nullptr) return;
  uint8_t* const p = static_cast<uint8_t*>(address) - kSizeBytes;
  size_t size = 0;
  std::memcpy(&size, p, sizeof size);
  unmap_pages(p, size);
}

// Where the next column ends; short ones go with those after them. Each text of a table of strings
// is a field of its own, all with one number.
size_t end_of_part(std::span<const uint8_t> message, size_t begin) {
  constexpr size_t kLeastBytes = 1024;
  const uint8_t* const end = message.data() + message.size();
  const uint8_t* const first = message.data() + begin;
  wire::Field field;
  uint32_t number = 0;
  for (const uint8_t* p = first; p != end;) {
    const uint8_t* const next = wire::get_field(p, end, field);
    if (next == nullptr) break;
    const bool is_long = static_cast<size_t>(p - first) >= kLeastBytes;
    if (is_long && field.number != number) return static_cast<size_t>(p - message.data());
    number = field.number;
    p = next;
  }
  return message.size();
}

}  // namespace

BlockEncoder::BlockEncoder(int zstd_level) noexcept : level_(zstd_level) {}

BlockEncoder::~BlockEncoder() {
  ZSTD_freeCCtx(zstd_);
}

std::span<const uint8_t> BlockEncoder::encode_strings(std::span<const StringRow> strings,
                                                      uint32_t process,
                                                      uint64_t sequence) noexcept {
  size_t bound = 32;
  for (const StringRow& s : strings) bound += s.size + 2 * wire::kMaxVarint;
  if (!raw_.reserve(bound) || bound > kMaxPayloadBytes) return {};
  uint8_t* const raw = raw_.get();

  uint8_t* p = wire::put_varint(wire::put_tag(raw, 1, wire::kVarint), strings.size());
  p = wire::put_tag(p, 2, wire::kBytes);
  uint8_t* const length = p;
  p += wire::kPaddedLength;
  uint64_t previous = 0;
  for (const StringRow& s : strings) {
    p = wire::put_varint(p, wire::zigzag(static_cast<int64_t>(s.id - previous)));
    previous = s.id;
  }
  wire::put_padded_length(length, static_cast<size_t>(p - length) - wire::kPaddedLength);
  for (const StringRow& s : strings) {
    p = wire::put_varint(wire::put_tag(p, 3, wire::kBytes), s.size);
    std::memcpy(p, s.text, s.size);
    p += s.size;
  }

  FrameHeader header;
  header.kind = static_cast<uint16_t>(BlockKind::kStrings);
  header.rows = static_cast<uint32_t>(strings.size());
  header.process = process;
  header.sequence = sequence;
  return seal(header, static_cast<size_t>(p - raw));
}

// zstd describes the bytes of a block by one code. Columns differ, so each begins a block of its
// own, which takes a tenth less.
size_t BlockEncoder::compress(std::span<const uint8_t> message, std::span<uint8_t> out) noexcept {
  ZSTD_CCtx_reset(zstd_, ZSTD_reset_session_only);
  ZSTD_CCtx_setParameter(zstd_, ZSTD_c_compressionLevel, level_);
  ZSTD_CCtx_setPledgedSrcSize(zstd_, message.size());
  ZSTD_outBuffer to = {out.data(), out.size(), 0};
  ZSTD_inBuffer from = {message.data(), 0, 0};
  while (from.size < message.size()) {
    from.size = end_of_part(message, from.size);
    const bool is_last = from.size == message.size();
    // All of it fits, or it is no smaller than the message.
    if (ZSTD_compressStream2(zstd_, &to, &from, is_last ? ZSTD_e_end : ZSTD_e_flush) != 0) return 0;
  }
  return to.pos < message.size() ? to.pos : 0;
}

std::span<const uint8_t> BlockEncoder::seal(FrameHeader& header, size_t raw_size) noexcept {
  if (zstd_ == nullptr) zstd_ = ZSTD_createCCtx_advanced({zstd_alloc, zstd_free, nullptr});
  const size_t bound = sizeof(FrameHeader) + ZSTD_compressBound(raw_size);
  if (zstd_ == nullptr || !frame_.reserve(bound) || raw_size > kMaxPayloadBytes) return {};

  uint8_t* const frame = frame_.get();
  const uint8_t* const raw = raw_.get();
  uint8_t* payload = frame + sizeof(FrameHeader);
  const size_t stored = compress({raw, raw_size}, {payload, ZSTD_compressBound(raw_size)});
  if (stored == 0) {
    std::memcpy(payload, raw, raw_size);
  } else {
    header.flags |= kFrameCompressed;
  }
  header.raw_bytes = static_cast<uint32_t>(raw_size);
  header.stored_bytes = static_cast<uint32_t>(stored == 0 ? raw_size : stored);
  header.payload_crc = crc32(payload, header.stored_bytes);
  header.header_crc = header_crc(header);
  std::memcpy(frame, &header, sizeof header);
  return {frame, sizeof header + header.stored_bytes};
}

}  // namespace tidemark
