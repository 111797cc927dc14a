#include "proto/wire.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <vector>

#include "proto/base/crc32.h"

namespace tidemark {
namespace {

TEST(Wire, VarintsComeBack) {
  for (unsigned shift = 0; shift < 64; ++shift) {
    for (const uint64_t v :
         {uint64_t{1} << shift, (uint64_t{1} << shift) - 1, ~(uint64_t{1} << shift)}) {
      uint8_t buffer[16] = {};
      const uint8_t* end = wire::put_varint(buffer, v);
      uint64_t back = 0;
      EXPECT_EQ(wire::get_varint(buffer, end, back), end);
      EXPECT_EQ(back, v);
      EXPECT_EQ(wire::get_varint_unchecked(buffer, back), end);
      EXPECT_EQ(back, v);
    }
  }
}

TEST(Wire, CutAndOverlongVarintsAreRefused) {
  const std::vector<uint8_t> endless(11, 0x80);
  uint64_t v = 0;
  EXPECT_EQ(wire::get_varint(endless.data(), endless.data() + 11, v), nullptr);
  EXPECT_EQ(wire::get_varint_unchecked(endless.data(), v), nullptr);
  for (size_t size = 0; size < 10; ++size) {
    EXPECT_EQ(wire::get_varint(endless.data(), endless.data() + size, v), nullptr);
  }
}

TEST(Wire, ZigzagKeepsEveryNumber) {
  for (const int64_t v : {int64_t{0}, int64_t{-1}, int64_t{1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(wire::unzigzag(wire::zigzag(v)), v);
  }
  EXPECT_EQ(wire::zigzag(-1), 1U);
  EXPECT_EQ(wire::zigzag(1), 2U);
}

TEST(Wire, PaddedLengthIsAnOrdinaryVarint) {
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, (size_t{1} << 28) - 1}) {
    uint8_t buffer[wire::kPaddedLength];
    wire::put_padded_length(buffer, length);
    uint64_t back = 0;
    EXPECT_EQ(wire::get_varint(buffer, buffer + sizeof buffer, back), buffer + sizeof buffer);
    EXPECT_EQ(back, length);
  }
}

TEST(Wire, FieldsThatAreNoProtobufAreRefused) {
  wire::Field field;
  const auto parse = [&](std::vector<uint8_t> bytes) {
    return wire::get_field(bytes.data(), bytes.data() + bytes.size(), field) != nullptr;
  };
  EXPECT_TRUE(parse({0x08, 0x05}));         // field 1, varint
  EXPECT_FALSE(parse({0x00, 0x05}));        // field 0
  EXPECT_FALSE(parse({0x0b}));              // group
  EXPECT_FALSE(parse({0x0a, 0x05, 1, 2}));  // length beyond the end
  EXPECT_FALSE(parse({0x09, 1, 2, 3}));     // cut fixed64
  EXPECT_FALSE(parse({0x0d, 1}));           // cut fixed32
  EXPECT_FALSE(parse({0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
}

TEST(Crc32, AgreesWithZlib) {
  std::mt19937_64 rng(7);
  for (size_t size = 0; size < 200; ++size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
    EXPECT_EQ(crc32(bytes.data(), size),
              ::crc32(0, size == 0 ? Z_NULL : bytes.data(), static_cast<uInt>(size)));
  }
}

}  // namespace
}  // namespace tidemark
