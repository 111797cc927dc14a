// Converts characters to UTF-8, for texts in other encodings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tidemark::injector {

// Number of bytes written; 0 if `room` is too small for all of them.
inline size_t put_utf8(uint32_t c, char* out, size_t room) noexcept {
  char bytes[4];
  size_t count = 0;
  const auto tail = [&](uint32_t shift) {
    bytes[count++] = static_cast<char>(0x80 | ((c >> shift) & 0x3f));
  };
  if (c < 0x80) {
    bytes[count++] = static_cast<char>(c);
  } else if (c < 0x800) {
    bytes[count++] = static_cast<char>(0xc0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    bytes[count++] = static_cast<char>(0xe0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    bytes[count++] = static_cast<char>(0xf0 | ((c >> 18) & 7));
    tail(12);
    tail(6);
    tail(0);
  }
  if (count > room) return 0;
  std::memcpy(out, bytes, count);
  return count;
}

}  // namespace tidemark::injector
