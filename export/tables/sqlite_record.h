// One row as SQLite stores it: a header of types, then the values
// (https://sqlite.org/fileformat2.html, section 2.1).
//
//   record = header bytes, type*, value*      numbers are big-endian and as short as possible
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tidemark {

// Groups of seven bits, the highest first; a ninth byte has eight. Returns the end.
inline uint8_t* put_sqlite_varint(uint8_t* p, uint64_t value) {
  if (value < 0x80) {
    *p = static_cast<uint8_t>(value);
    return p + 1;
  }
  if (value >> 56 != 0) {
    for (int i = 0; i < 8; ++i) p[i] = static_cast<uint8_t>(0x80 | value >> (57 - 7 * i));
    p[8] = static_cast<uint8_t>(value);
    return p + 9;
  }
  const int groups = (static_cast<int>(std::bit_width(value)) + 6) / 7;
  for (int i = groups - 1; i >= 0; --i) *p++ = static_cast<uint8_t>(0x80 | value >> (7 * i));
  p[-1] &= 0x7f;
  return p;
}

inline uint8_t* put_big_endian(uint8_t* p, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) *p++ = static_cast<uint8_t>(value >> (8 * i));
  return p;
}

class SqliteRecord {
 public:
  SqliteRecord() : header_(256), body_(4096) {}

  void clear() { header_used_ = body_used_ = 0; }
  void null() { type(0); }
  void integer(int64_t value) {
    if (value == 0 || value == 1) return type(8 + static_cast<uint64_t>(value));
    // By the number of bits besides the sign.
    const auto magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
    const int bits = static_cast<int>(std::bit_width(magnitude)) + 1;
    static constexpr uint8_t kType[9] = {0, 1, 2, 3, 4, 5, 5, 6, 6};
    static constexpr uint8_t kBytes[7] = {0, 1, 2, 3, 4, 6, 8};
    const uint8_t kind = kType[(bits + 7) / 8];
    type(kind);
    uint8_t* p = body(kBytes[kind]);
    put_big_endian(p, static_cast<uint64_t>(value), kBytes[kind]);
  }
  void text(std::string_view value) {
    type(13 + 2 * value.size());
    if (!value.empty()) std::memcpy(body(value.size()), value.data(), value.size());
  }

  // Valid until the next change.
  std::span<const uint8_t> bytes() {
    // The length includes itself: one byte up to 127, else two.
    const size_t length = header_used_ + (header_used_ + 1 < 0x80 ? 1 : 2);
    whole_.resize(length + body_used_);
    uint8_t* p = put_sqlite_varint(whole_.data(), length);
    std::memcpy(p, header_.data(), header_used_);
    std::memcpy(p + header_used_, body_.data(), body_used_);
    return whole_;
  }

 private:
  void type(uint64_t serial) {
    if (header_used_ + 9 > header_.size()) header_.resize(header_.size() * 2);
    uint8_t* begin = header_.data() + header_used_;
    header_used_ += static_cast<size_t>(put_sqlite_varint(begin, serial) - begin);
  }
  uint8_t* body(size_t bytes) {
    if (body_used_ + bytes > body_.size()) body_.resize(2 * (body_used_ + bytes));
    uint8_t* at = body_.data() + body_used_;
    body_used_ += bytes;
    return at;
  }

  std::vector<uint8_t> header_;
  std::vector<uint8_t> body_;
  std::vector<uint8_t> whole_;
  size_t header_used_ = 0;
  size_t body_used_ = 0;
};

}  // namespace tidemark
