// CRC-32 as in zlib, gzip and PNG (polynomial 0xEDB88320), eight bytes per step: the checksum of
// frames. Not taken from zlib because the injector links nothing that a host process may also have
// loaded; most languages have this function in their standard library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tidemark {

namespace crc32_detail {
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0xEDB88320U : 0U);
    t[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (size_t k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  return t;
}
inline constexpr auto kTables = make_tables();
}  // namespace crc32_detail

inline uint32_t crc32(const void* data, size_t size) noexcept {
  const auto& t = crc32_detail::kTables;
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t c = 0xFFFFFFFFU;
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);  // little-endian machines only, as frame.h asserts
    word ^= c;
    c = t[7][word & 0xff] ^ t[6][(word >> 8) & 0xff] ^ t[5][(word >> 16) & 0xff] ^
        t[4][(word >> 24) & 0xff] ^ t[3][(word >> 32) & 0xff] ^ t[2][(word >> 40) & 0xff] ^
        t[1][(word >> 48) & 0xff] ^ t[0][word >> 56];
  }
  for (; size > 0; --size, ++p) c = (c >> 8) ^ t[0][(c ^ *p) & 0xff];
  return ~c;
}

}  // namespace tidemark
