// A bounds-checked cursor over bytes of a module. After a read past the end `ok()` is false and
// every value is 0. Internal to the call frame reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tidemark::injector {

class CfiReader {
 public:
  CfiReader(const uint8_t* at, const uint8_t* begin, const uint8_t* end) noexcept
      : at_(at), end_(end), ok_(at >= begin && at <= end) {}

  bool ok() const noexcept { return ok_; }
  bool at_end() const noexcept { return !ok_ || at_ == end_; }
  const uint8_t* position() const noexcept { return at_; }
  uintptr_t address() const noexcept { return reinterpret_cast<uintptr_t>(at_); }

  template <typename T>
  T fixed() noexcept {
    T value{};
    if (!has(sizeof(T))) return value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  uint64_t uleb() noexcept {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      const auto byte = fixed<uint8_t>();
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }

  int64_t sleb() noexcept {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      const auto byte = fixed<uint8_t>();
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        if (shift + 7 < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << (shift + 7);
        return static_cast<int64_t>(value);
      }
    }
    ok_ = false;
    return 0;
  }

  void skip(uint64_t bytes) noexcept {
    if (has(bytes)) at_ += bytes;
  }

  // A reader of the next `bytes` bytes; this reader continues after them.
  CfiReader take(uint64_t bytes) noexcept {
    CfiReader part(at_, at_, at_);
    if (!has(bytes)) {
      part.ok_ = false;
      return part;
    }
    part.end_ = at_ + bytes;
    at_ += bytes;
    return part;
  }

  // A pointer in a DW_EH_PE_* encoding. Indirect pointers (personality routines) are read but not
  // followed.
  uint64_t encoded(uint8_t coding, uintptr_t data_base) noexcept {
    const uintptr_t here = address();
    uint64_t value = 0;
    switch (coding & 0x0f) {
      case 0x00:
        value = fixed<uint64_t>();
        break;
      case 0x01:
        value = uleb();
        break;
      case 0x02:
        value = fixed<uint16_t>();
        break;
      case 0x03:
        value = fixed<uint32_t>();
        break;
      case 0x04:
        value = fixed<uint64_t>();
        break;
      case 0x09:
        value = static_cast<uint64_t>(sleb());
        break;
      case 0x0a:
        value = static_cast<uint64_t>(int64_t{fixed<int16_t>()});
        break;
      case 0x0b:
        value = static_cast<uint64_t>(int64_t{fixed<int32_t>()});
        break;
      case 0x0c:
        value = fixed<uint64_t>();
        break;
      default:
        ok_ = false;
        return 0;
    }
    switch (coding & 0x70) {
      case 0x00:
        return value;
      case 0x10:
        return value + here;
      case 0x30:
        return value + data_base;
      default:
        ok_ = false;
        return 0;
    }
  }

 private:
  bool has(uint64_t bytes) noexcept {
    if (ok_ && bytes <= static_cast<uint64_t>(end_ - at_)) return true;
    ok_ = false;
    return false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_;
};

}  // namespace tidemark::injector
