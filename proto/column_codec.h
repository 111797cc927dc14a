// Converts rows to columns and back: the body of one message of tidemark.proto.
//
//   rows field   column          column             …
//   08 varint    tag len4 bytes  tag len4 bytes
//
// Both directions process the rows in tiles that fit the L1 cache: every column of a tile is done
// before the next tile begins. Encoding uses no memory except the scratch buffer it is given;
// decoding trusts nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "proto/tables.h"
#include "proto/wire.h"

namespace tidemark {

namespace codec_detail {

inline constexpr size_t kTileRows = 256;

template <typename ColumnType>
struct MemberOf;
template <typename Row, typename T, T Row::*Member, uint32_t Field, Coding How, MemberName Name>
struct MemberOf<Column<Member, Field, How, Name>> {
  using type = T;
};

template <typename T>
constexpr uint64_t to_bits(T v) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<uint64_t>(static_cast<std::underlying_type_t<T>>(v));
  } else {
    return static_cast<uint64_t>(v);
  }
}

// Upper limit of the encoded bytes of a value. Differences of narrow members need one bit more.
template <typename ColumnType>
constexpr size_t max_value_bytes() {
  const size_t bits = 8 * sizeof(typename MemberOf<ColumnType>::type) +
                      (ColumnType::coding == Coding::kDelta ? 1 : 0);
  return std::min(wire::kMaxVarint, (bits + 6) / 7);
}

template <typename Row>
inline constexpr size_t kColumns = std::tuple_size_v<typename Table<Row>::Columns>;

template <typename Row, size_t... I>
constexpr size_t max_row_bytes(std::index_sequence<I...>) {
  return (max_value_bytes<std::tuple_element_t<I, typename Table<Row>::Columns>>() + ...);
}

inline constexpr size_t kMaxColumnHead = 5 + wire::kPaddedLength;

// Position in the bytes of one column, kept between tiles.
struct EncodeCursor {
  uint8_t* begin = nullptr;
  uint8_t* at = nullptr;
  uint64_t previous = 0;
  uint64_t any = 0;  // OR of all values so far: 0 means that the column is not stored
};

struct DecodeCursor {
  const uint8_t* at = nullptr;  // nullptr: column absent
  const uint8_t* end = nullptr;
  uint64_t previous = 0;
};

template <typename ColumnType, typename Row>
void encode_tile(EncodeCursor& cursor, std::span<const Row> tile) {
  uint8_t* p = cursor.at;
  uint64_t previous = cursor.previous;
  uint64_t any = cursor.any;
  for (const Row& row : tile) {
    uint64_t v = to_bits(row.*ColumnType::member);
    if constexpr (ColumnType::coding == Coding::kDelta) {
      const uint64_t difference = v - previous;
      previous = v;
      v = wire::zigzag(static_cast<int64_t>(difference));
    } else if constexpr (ColumnType::coding == Coding::kZigzag) {
      v = wire::zigzag(static_cast<int64_t>(v));
    }
    any |= v;
    p = wire::put_varint(p, v);
  }
  cursor = {cursor.begin, p, previous, any};
}

// Converts one varint back to the member's value. False if it does not fit.
template <typename ColumnType, typename Row>
bool store(Row& row, uint64_t v, uint64_t& previous) {
  using T = typename MemberOf<ColumnType>::type;
  if constexpr (ColumnType::coding == Coding::kDelta) {
    v = previous += static_cast<uint64_t>(wire::unzigzag(v));
  } else if constexpr (ColumnType::coding == Coding::kZigzag) {
    v = static_cast<uint64_t>(wire::unzigzag(v));
  }
  row.*ColumnType::member = static_cast<T>(v);
  return sizeof(T) == 8 || (v >> (8 * (sizeof(T) % 8))) == 0;
}

template <auto A, auto B>
constexpr bool same_member() {
  if constexpr (std::is_same_v<decltype(A), decltype(B)>) {
    return A == B;
  } else {
    return false;
  }
}

// Whether a column is among these members; if none are given, every column is.
template <typename ColumnType, auto... Members>
inline constexpr bool kIsWanted = sizeof...(Members) == 0 ||
                                  (same_member<ColumnType::member, Members>() || ...);

template <typename ColumnType, typename Row>
bool decode_tile(DecodeCursor& cursor, std::span<Row> tile) {
  if (cursor.at == nullptr) return true;
  const uint8_t* p = cursor.at;
  uint64_t previous = cursor.previous;
  bool fits = true;
  uint64_t v = 0;
  if (static_cast<size_t>(cursor.end - p) >= tile.size() * wire::kMaxVarint) {
    for (Row& row : tile) {
      p = wire::get_varint_unchecked(p, v);
      if (p == nullptr) return false;
      fits &= store<ColumnType>(row, v, previous);
    }
  } else {
    for (Row& row : tile) {
      p = wire::get_varint(p, cursor.end, v);
      if (p == nullptr) return false;
      fits &= store<ColumnType>(row, v, previous);
    }
  }
  cursor.at = p;
  cursor.previous = previous;
  return fits;
}

}  // namespace codec_detail

// Upper limit of the scratch bytes and of the message bytes for `rows` rows.
template <typename Row>
constexpr size_t max_encoded_bytes(size_t rows) {
  using namespace codec_detail;
  return 8 + kColumns<Row> * kMaxColumnHead +
         rows * max_row_bytes<Row>(std::make_index_sequence<kColumns<Row>>());
}

// Writes the message for `rows` to `out` and returns its size. `scratch` and `out` each hold
// max_encoded_bytes(rows.size()).
template <typename Row>
size_t encode_rows(std::span<const Row> rows, uint8_t* scratch, uint8_t* out) noexcept {
  using namespace codec_detail;
  using Columns = typename Table<Row>::Columns;
  std::array<EncodeCursor, kColumns<Row>> cursors;
  [&]<size_t... I>(std::index_sequence<I...>) {
    uint8_t* region = scratch;
    ((cursors[I].begin = cursors[I].at = region,
      region += rows.size() * max_value_bytes<std::tuple_element_t<I, Columns>>()),
     ...);
    for (size_t first = 0; first < rows.size(); first += kTileRows) {
      const auto tile = rows.subspan(first, std::min(kTileRows, rows.size() - first));
      (encode_tile<std::tuple_element_t<I, Columns>>(cursors[I], tile), ...);
    }
  }
  (std::make_index_sequence<kColumns<Row>>());

  uint8_t* p = wire::put_varint(wire::put_tag(out, 1, wire::kVarint), rows.size());
  [&]<size_t... I>(std::index_sequence<I...>) {
    // The first column is always stored: a frame never has more rows than bytes, so what a reader
    // must allocate stays in proportion to its input.
    const auto put_column = [&](uint32_t field, const EncodeCursor& cursor) {
      if (cursor.any == 0 && &cursor != cursors.data()) return;
      const auto size = static_cast<size_t>(cursor.at - cursor.begin);
      p = wire::put_tag(p, field, wire::kBytes);
      wire::put_padded_length(p, size);
      std::memcpy(p + wire::kPaddedLength, cursor.begin, size);
      p += wire::kPaddedLength + size;
    };
    (put_column(std::tuple_element_t<I, Columns>::field, cursors[I]), ...);
  }
  (std::make_index_sequence<kColumns<Row>>());
  return static_cast<size_t>(p - out);
}

// Decodes a message into `rows`, as many as the frame header announced, whatever they held before.
// False if the bytes are not such a message; unknown fields are skipped. If members are given, only
// their columns are read, and all other members are 0.
template <typename Row, auto... Members>
bool decode_rows(std::span<const uint8_t> message, std::span<Row> rows) noexcept {
  using namespace codec_detail;
  using Columns = typename Table<Row>::Columns;
  std::array<DecodeCursor, kColumns<Row>> cursors;
  uint64_t announced = 0;
  const uint8_t* const end = message.data() + message.size();
  for (const uint8_t* p = message.data(); p != end;) {
    wire::Field field;
    p = wire::get_field(p, end, field);
    if (p == nullptr) return false;
    if (field.number == 1 && field.type == wire::kVarint) announced = field.varint;
    if (field.type != wire::kBytes) continue;
    bool twice = false;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((std::tuple_element_t<I, Columns>::field == field.number &&
                kIsWanted<std::tuple_element_t<I, Columns>, Members...>
            ? (twice = cursors[I].at != nullptr,
               void(cursors[I] = {field.data, field.data + field.size, 0}))
            : void()),
       ...);
    }
    (std::make_index_sequence<kColumns<Row>>());
    if (twice) return false;
  }
  if (announced != rows.size()) return false;
  return [&]<size_t... I>(std::index_sequence<I...>) {
    for (size_t first = 0; first < rows.size(); first += kTileRows) {
      const auto tile = rows.subspan(first, std::min(kTileRows, rows.size() - first));
      std::fill(tile.begin(), tile.end(), Row{});  // columns of zeros are absent
      if (!(decode_tile<std::tuple_element_t<I, Columns>>(cursors[I], tile) && ...)) return false;
    }
    return ((cursors[I].at == cursors[I].end) && ...);
  }
  (std::make_index_sequence<kColumns<Row>>());
}

}  // namespace tidemark
