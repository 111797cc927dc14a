// Thrift's compact protocol, as far as the headers and the footer of a Parquet file need it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark {

class ThriftStruct {
 public:
  ThriftStruct& i32(int16_t id, int64_t value) { return number(id, 5, value); }
  ThriftStruct& i64(int16_t id, int64_t value) { return number(id, 6, value); }
  ThriftStruct& binary(int16_t id, std::string_view value) {
    header(id, 8);
    add_binary(out_, value);
    return *this;
  }
  ThriftStruct& structure(int16_t id, const ThriftStruct& value) {
    header(id, 12);
    out_ += value.bytes();
    return *this;
  }
  // `elements`: one after the other, without a header.
  ThriftStruct& list_of_structs(int16_t id, size_t count, std::string_view elements) {
    return list(id, 12, count, elements);
  }
  ThriftStruct& list_of_i32(int16_t id, size_t count, std::string_view elements) {
    return list(id, 5, count, elements);
  }
  ThriftStruct& list_of_binary(int16_t id, size_t count, std::string_view elements) {
    return list(id, 8, count, elements);
  }

  std::string bytes() const { return out_ + '\0'; }

  static void add_varint(std::string& out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }
  static void add_zigzag(std::string& out, int64_t value) {
    add_varint(out, (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  static void add_binary(std::string& out, std::string_view value) {
    add_varint(out, value.size());
    out += value;
  }

 private:
  void header(int16_t id, uint8_t type) {
    const int step = id - last_;
    last_ = id;
    if (step >= 1 && step <= 15) {
      out_ += static_cast<char>(step << 4 | type);
      return;
    }
    out_ += static_cast<char>(type);
    add_zigzag(out_, id);
  }
  ThriftStruct& number(int16_t id, uint8_t type, int64_t value) {
    header(id, type);
    add_zigzag(out_, value);
    return *this;
  }
  ThriftStruct& list(int16_t id, uint8_t type, size_t count, std::string_view elements) {
    header(id, 9);
    if (count < 15) {
      out_ += static_cast<char>(count << 4 | type);
    } else {
      out_ += static_cast<char>(0xF0 | type);
      add_varint(out_, count);
    }
    out_ += elements;
    return *this;
  }

  std::string out_;
  int16_t last_ = 0;
};

}  // namespace tidemark
