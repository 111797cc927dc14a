#include "proto/column_codec.h"

#include <gtest/gtest.h>

#include "tests/support/random_rows.h"

namespace tidemark {
namespace {

template <typename Row>
class Codec : public testing::Test {};

template <typename List>
struct AsTypes;
template <typename... Rows>
struct AsTypes<RowList<Rows...>> {
  using type = testing::Types<Rows..., IndexEntry>;
};
TYPED_TEST_SUITE(Codec, AsTypes<RecordedRows>::type);

TYPED_TEST(Codec, RandomRowsComeBack) {
  std::mt19937_64 rng(1);
  for (const size_t count : std::initializer_list<size_t>{0, 1, 2, 255, 256, 257, 1000}) {
    const auto rows = random_rows<TypeParam>(count, rng);
    const auto bytes = encoded<TypeParam>(rows);
    std::vector<TypeParam> back(count);
    ASSERT_TRUE(decode_rows<TypeParam>(bytes, back));
    EXPECT_TRUE(same<TypeParam>(rows, back));
  }
}

TYPED_TEST(Codec, EveryCutIsRefusedOrHarmless) {
  std::mt19937_64 rng(2);
  const auto rows = random_rows<TypeParam>(20, rng);
  const auto bytes = encoded<TypeParam>(rows);
  for (size_t size = 0; size < bytes.size(); ++size) {
    // An exact copy, so that the sanitizers see reads past the end.
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    std::vector<TypeParam> back(rows.size());
    if (decode_rows<TypeParam>(cut, back)) {
      EXPECT_FALSE(same<TypeParam>(rows, back)) << "a cut message cannot be whole";
    }
  }
}

TYPED_TEST(Codec, WrongNumberOfRowsIsRefused) {
  std::mt19937_64 rng(3);
  const auto rows = random_rows<TypeParam>(20, rng);
  const auto bytes = encoded<TypeParam>(rows);
  std::vector<TypeParam> fewer(19), more(21);
  EXPECT_FALSE(decode_rows<TypeParam>(bytes, fewer));
  EXPECT_FALSE(decode_rows<TypeParam>(bytes, more));
}

TEST(ColumnCodec, MembersThatAreNotAskedForAreZero) {
  std::mt19937_64 rng(4);
  const auto rows = random_rows<FrameworkEvent>(1000, rng);
  const auto bytes = encoded<FrameworkEvent>(rows);
  auto back = random_rows<FrameworkEvent>(1000, rng);
  ASSERT_TRUE((
      decode_rows<FrameworkEvent, &FrameworkEvent::address, &FrameworkEvent::action>(bytes, back)));
  std::vector<FrameworkEvent> expected(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    expected[i].address = rows[i].address;
    expected[i].action = rows[i].action;
  }
  EXPECT_TRUE(same<FrameworkEvent>(expected, back));
}

TEST(ColumnCodec, ZerosTakeOneByteARow) {
  const std::vector<FrameworkEvent> rows(1000);
  const auto bytes = encoded<FrameworkEvent>(rows);
  EXPECT_LE(bytes.size(), 1000U + 16);
  EXPECT_GE(bytes.size(), 1000U);  // the first column is always stored
}

TEST(ColumnCodec, ValuesTooWideForTheirMemberAreRefused) {
  // field 1 rows = 1; field 2 "id" of Stack as a delta of 2^33.
  std::vector<uint8_t> bytes = {0x08, 0x01, 0x12};
  uint8_t varint[10];
  const auto size = wire::put_varint(varint, wire::zigzag(int64_t{1} << 33)) - varint;
  bytes.push_back(static_cast<uint8_t>(size));
  bytes.insert(bytes.end(), varint, varint + size);
  std::vector<Stack> rows(1);
  EXPECT_FALSE(decode_rows<Stack>(bytes, rows));
}

TEST(ColumnCodec, UnknownFieldsAreSkippedAndRepeatedColumnsRefused) {
  const std::vector<Stack> rows = {{1, 0, 5}, {2, 1, 6}};
  auto bytes = encoded<Stack>(rows);
  const auto known = bytes;
  bytes.insert(bytes.end(), {0x9a, 0x06, 3, 'n', 'e', 'w'});        // field 99, bytes
  bytes.insert(bytes.end(), {0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8});  // field 100, fixed64
  bytes.insert(bytes.end(), {0xad, 0x06, 1, 2, 3, 4});              // field 101, fixed32
  std::vector<Stack> back(2);
  ASSERT_TRUE(decode_rows<Stack>(bytes, back));
  EXPECT_TRUE(same<Stack>(rows, back));

  auto twice = known;
  twice.insert(twice.end(), known.begin() + 2, known.end());
  EXPECT_FALSE(decode_rows<Stack>(twice, back));
}

}  // namespace
}  // namespace tidemark
