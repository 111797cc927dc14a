// Checksums would reject nearly all inputs, so they are corrected in every frame that can be found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/frame.h"

namespace tidemark {

inline void mend_checksums(std::vector<uint8_t>& bytes) {
  for (size_t at = sizeof(FileHeader); at + sizeof(FrameHeader) <= bytes.size();) {
    FrameHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (header.magic != kFrameMagic) {
      ++at;
      continue;
    }
    const size_t payload = at + sizeof header;
    const size_t stored = std::min<size_t>(header.stored_bytes, bytes.size() - payload);
    header.payload_crc = crc32(bytes.data() + payload, stored);
    header.header_crc = header_crc(header);
    std::memcpy(bytes.data() + at, &header, sizeof header);
    at = payload + stored;
  }
}

}  // namespace tidemark
