// The outer structure of a trace file: a file header, frames, and a trailer that locates the index.
//
//   file    = FileHeader frame* [index frame, Trailer]
//   frame   = FrameHeader payload
//   payload = one message of tidemark.proto, compressed with zstd when kFrameCompressed is set
//
// All numbers are little-endian. A frame can be found by its magic and trusted by its checksum, so
// a reader that meets damage continues at the next frame.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/base/crc32.h"

namespace tidemark {

static_assert(std::endian::native == std::endian::little, "trace files are written as they lie");

inline constexpr uint64_t kFileMagic = 0x4b52414d45444954;  // "TIDEMARK"
inline constexpr uint32_t kFrameMagic = 0x464b4d54;         // "TMKF"
inline constexpr uint32_t kTrailerMagic = 0x454b4d54;       // "TMKE"
inline constexpr uint16_t kFormatMajor = 1;
inline constexpr uint16_t kFormatMinor = 0;

// The limits of a frame, whatever its header says: they bound the memory of a reader.
inline constexpr uint32_t kMaxPayloadBytes = 32U << 20;
inline constexpr uint32_t kMaxFrameRows = 1U << 20;

inline constexpr uint16_t kFrameCompressed = 1;

struct FileHeader {
  uint64_t magic = kFileMagic;
  uint16_t major = kFormatMajor;
  uint16_t minor = kFormatMinor;
  uint32_t generation = 0;  // how often a recording with a limited window began a new file
};
static_assert(sizeof(FileHeader) == 16);

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t kind = 0;  // BlockKind
  uint16_t flags = 0;
  uint32_t stored_bytes = 0;  // of the payload as stored in the file
  uint32_t raw_bytes = 0;     // of the message
  uint32_t rows = 0;
  uint32_t process = 0;  // which process of the file, from 1
  int64_t first_ns = 0;  // least and greatest time of its rows
  int64_t last_ns = 0;
  uint64_t sequence = 0;  // number of the frame among those of its process, from 0
  uint32_t payload_crc = 0;
  uint32_t header_crc = 0;  // of the 52 bytes before
};
static_assert(sizeof(FrameHeader) == 56);

struct Trailer {
  uint64_t index_offset = 0;
  uint32_t crc = 0;  // of index_offset
  uint32_t magic = kTrailerMagic;
};
static_assert(sizeof(Trailer) == 16);

inline uint32_t header_crc(const FrameHeader& h) noexcept {
  return crc32(&h, offsetof(FrameHeader, header_crc));
}

inline bool plausible(const FrameHeader& h) noexcept {
  return h.magic == kFrameMagic && h.header_crc == header_crc(h) &&
         h.stored_bytes <= kMaxPayloadBytes && h.raw_bytes <= kMaxPayloadBytes &&
         h.rows <= kMaxFrameRows && h.rows <= h.raw_bytes;
}

}  // namespace tidemark
