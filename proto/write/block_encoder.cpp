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

std::span<const uint8_t> BlockEncoder::seal(FrameHeader& header, size_t raw_size) noexcept {
  if (zstd_ == nullptr) zstd_ = ZSTD_createCCtx_advanced({zstd_alloc, zstd_free, nullptr});
  const size_t bound = sizeof(FrameHeader) + ZSTD_compressBound(raw_size);
  if (zstd_ == nullptr || !frame_.reserve(bound) || raw_size > kMaxPayloadBytes) return {};

  uint8_t* const frame = frame_.get();
  const uint8_t* const raw = raw_.get();
  uint8_t* payload = frame + sizeof(FrameHeader);
  size_t stored =
      ZSTD_compressCCtx(zstd_, payload, ZSTD_compressBound(raw_size), raw, raw_size, level_);
  if (ZSTD_isError(stored) != 0 || stored >= raw_size) {
    std::memcpy(payload, raw, raw_size);
    stored = raw_size;
  } else {
    header.flags |= kFrameCompressed;
  }
  header.raw_bytes = static_cast<uint32_t>(raw_size);
  header.stored_bytes = static_cast<uint32_t>(stored);
  header.payload_crc = crc32(payload, stored);
  header.header_crc = header_crc(header);
  std::memcpy(frame, &header, sizeof header);
  return {frame, sizeof header + stored};
}

}  // namespace tidemark
