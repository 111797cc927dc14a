// Random rows of any table, for round trips.
#pragma once

#include <random>
#include <vector>

#include "proto/column_codec.h"

namespace tidemark {

// Mixes zeros, small and full-width numbers, so that every varint length occurs.
template <typename T>
T random_member(std::mt19937_64& rng) {
  uint64_t v = 0;
  switch (rng() % 4) {
    case 0:
      v = 0;
      break;
    case 1:
      v = rng() % 100;
      break;
    default:
      v = rng() >> (rng() % 64);
  }
  if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(static_cast<std::underlying_type_t<T>>(v & 0x7f));
  } else {
    return static_cast<T>(v);
  }
}

template <typename Row>
std::vector<Row> random_rows(size_t count, std::mt19937_64& rng) {
  std::vector<Row> rows(count);
  for (Row& row : rows) {
    [&]<typename... C>(std::tuple<C...>*) {
      ((row.*C::member = random_member<typename codec_detail::MemberOf<C>::type>(rng)), ...);
    }(static_cast<typename Table<Row>::Columns*>(nullptr));
  }
  return rows;
}

template <typename Row>
bool same(const Row& a, const Row& b) {
  return [&]<typename... C>(std::tuple<C...>*) {
    return ((a.*C::member == b.*C::member) && ...);
  }(static_cast<typename Table<Row>::Columns*>(nullptr));
}

template <typename Row>
bool same(std::span<const Row> a, std::span<const Row> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Row& x, const Row& y) { return same(x, y); });
}

template <typename Row>
std::vector<uint8_t> encoded(std::span<const Row> rows) {
  std::vector<uint8_t> scratch(max_encoded_bytes<Row>(rows.size()));
  std::vector<uint8_t> out(scratch.size());
  out.resize(encode_rows<Row>(rows, scratch.data(), out.data()));
  return out;
}

}  // namespace tidemark
