// Numbers, texts and lists as bytes and back, by one description of each type for both directions:
//
//   template <typename Archive> void fields(Archive& a, Peak& p) { a(p.bytes, p.time_ns); }
//
// Integers are varints, signed ones in zigzag. Reading trusts nothing: lengths are checked against
// what is left, and after the first failure every value stays as it is.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tidemark {

class ArchiveWriter {
 public:
  static constexpr bool kReads = false;
  std::string bytes;

  template <typename... T>
  void operator()(T&... values) {
    (put(values), ...);
  }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  template <typename T>
  void put(T& value) {
    if constexpr (std::is_enum_v<T>) {
      varint(static_cast<uint64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      varint((static_cast<uint64_t>(wide) << 1) ^ static_cast<uint64_t>(wide >> 63));
    } else if constexpr (std::is_unsigned_v<T>) {
      varint(value);
    } else {
      fields(*this, value);
    }
  }
  void put(std::string& text) {
    varint(text.size());
    bytes += text;
  }
  template <typename T>
  void put(std::vector<T>& list) {
    varint(list.size());
    for (T& value : list) put(value);
  }
  template <typename T>
  void put(std::optional<T>& value) {
    bool there = value.has_value();
    put(there);
    if (there) put(*value);
  }
  template <typename A, typename B>
  void put(std::pair<A, B>& value) {
    put(value.first);
    put(value.second);
  }
};

class ArchiveReader {
 public:
  static constexpr bool kReads = true;
  explicit ArchiveReader(std::string_view bytes) : rest_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool good() const { return good_; }
  // Everything was read, and nothing is left.
  bool complete() const { return good_ && rest_.empty(); }

 private:
  void fail() {
    good_ = false;
    rest_ = {};
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(varint());
    } else if constexpr (std::is_floating_point_v<T>) {
      if (rest_.size() < sizeof value) return fail();
      std::memcpy(&value, rest_.data(), sizeof value);
      rest_.remove_prefix(sizeof value);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = varint() != 0;
    } else if constexpr (std::is_signed_v<T>) {
      const uint64_t raw = varint();
      value = static_cast<T>(static_cast<int64_t>((raw >> 1) ^ (~(raw & 1) + 1)));
    } else if constexpr (std::is_unsigned_v<T>) {
      value = static_cast<T>(varint());
    } else {
      fields(*this, value);
    }
  }
  void get(std::string& text) {
    const uint64_t size = varint();
    if (size > rest_.size()) return fail();
    text = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  template <typename T>
  void get(std::vector<T>& list) {
    const uint64_t count = varint();
    if (count > rest_.size()) return fail();  // each takes a byte at least
    list.clear();
    list.reserve(count);
    for (uint64_t i = 0; i < count && good_; ++i) get(list.emplace_back());
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <typename A, typename B>
  void get(std::pair<A, B>& value) {
    get(value.first);
    get(value.second);
  }

  std::string_view rest_;
  bool good_ = true;
};

// Lists of large numbers that resemble their predecessors.
template <typename Archive>
void differences(Archive& a, std::vector<uint64_t>& list) {
  std::vector<int64_t> steps;
  if constexpr (!Archive::kReads) {
    uint64_t last = 0;
    for (const uint64_t value : list) {
      steps.push_back(static_cast<int64_t>(value - last));
      last = value;
    }
    a(steps);
  } else {
    a(steps);
    list.clear();
    uint64_t last = 0;
    for (const int64_t step : steps) list.push_back(last += static_cast<uint64_t>(step));
  }
}

}  // namespace tidemark
