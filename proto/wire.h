// The parts of protobuf's wire format that a trace uses: varints, tags, lengths.
//
// Writers check for space once per column, not per value; readers get untrusted bytes and never
// read past `end`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::wire {

inline constexpr size_t kMaxVarint = 10;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint64_t zigzag(int64_t v) {
  return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63);
}
constexpr int64_t unzigzag(uint64_t v) {
  return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1));
}

// Needs space for kMaxVarint bytes.
inline uint8_t* put_varint(uint8_t* p, uint64_t v) {
  while (v >= 0x80) {
    *p++ = static_cast<uint8_t>(v | 0x80);
    v >>= 7;
  }
  *p++ = static_cast<uint8_t>(v);
  return p;
}

inline uint8_t* put_tag(uint8_t* p, uint32_t field, WireType type) {
  return put_varint(p, (uint64_t{field} << 3) | type);
}

// A length is always written as four bytes (its value is below 2^28), so that it can be filled in
// after the bytes it counts. Every protobuf parser accepts such padded varints.
inline constexpr size_t kPaddedLength = 4;
inline void put_padded_length(uint8_t* p, size_t length) {
  for (size_t i = 0; i < kPaddedLength - 1; ++i) {
    p[i] = static_cast<uint8_t>((length & 0x7f) | 0x80);
    length >>= 7;
  }
  p[kPaddedLength - 1] = static_cast<uint8_t>(length & 0x7f);
}

// Returns the byte after the varint, or nullptr if it is truncated or longer than ten bytes.
inline const uint8_t* get_varint(const uint8_t* p, const uint8_t* end, uint64_t& out) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (p == end) return nullptr;
    const uint64_t byte = *p++;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      out = value;
      return p;
    }
  }
  return nullptr;
}

// The same without a check for the end: kMaxVarint bytes must be readable at p.
inline const uint8_t* get_varint_unchecked(const uint8_t* p, uint64_t& out) {
  uint64_t value = *p++;
  if (value < 0x80) {
    out = value;
    return p;
  }
  value &= 0x7f;
  for (unsigned shift = 7; shift < 70; shift += 7) {
    const uint64_t byte = *p++;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      out = value;
      return p;
    }
  }
  return nullptr;
}

struct Field {
  uint32_t number = 0;
  WireType type = kVarint;
  uint64_t varint = 0;            // kVarint
  const uint8_t* data = nullptr;  // kBytes
  size_t size = 0;                // kBytes
};

// Parses the first field of [p, end). Returns the byte after it, or nullptr if the bytes are not
// protobuf.
inline const uint8_t* get_field(const uint8_t* p, const uint8_t* end, Field& field) {
  uint64_t tag = 0;
  p = get_varint(p, end, tag);
  if (p == nullptr || (tag >> 3) == 0 || (tag >> 3) > 0x1fffffff) return nullptr;
  field = {.number = static_cast<uint32_t>(tag >> 3), .type = static_cast<WireType>(tag & 7)};
  const auto left = static_cast<size_t>(end - p);
  switch (field.type) {
    case kVarint:
      return get_varint(p, end, field.varint);
    case kFixed64:
      return left < 8 ? nullptr : p + 8;
    case kFixed32:
      return left < 4 ? nullptr : p + 4;
    case kBytes: {
      uint64_t size = 0;
      p = get_varint(p, end, size);
      if (p == nullptr || size > static_cast<uint64_t>(end - p)) return nullptr;
      field.data = p;
      field.size = static_cast<size_t>(size);
      return p + size;
    }
  }
  return nullptr;
}

}  // namespace tidemark::wire
