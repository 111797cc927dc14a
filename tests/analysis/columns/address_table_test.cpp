#include "proto/base/address_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tidemark {
namespace {

TEST(AddressTable, BehavesLikeAMap) {
  std::mt19937_64 rng(9);
  AddressTable table;
  std::map<uint64_t, uint32_t> map;
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t address = (rng() % 5000) * 512;
    if (rng() % 3 == 0) {
      const auto known = map.find(address);
      ASSERT_EQ(table.erase(address), known == map.end() ? 0 : known->second);
      map.erase(address);
    } else {
      const auto value = static_cast<uint32_t>(1 + rng() % 1000);
      table.set(address, value);
      map[address] = value;
    }
    const uint64_t probe = (rng() % 5000) * 512;
    const auto it = map.find(probe);
    ASSERT_EQ(table.find(probe), it == map.end() ? 0 : it->second);
  }
  EXPECT_EQ(table.size(), map.size());
  size_t visited = 0;
  table.for_each([&](uint64_t address, uint32_t value) {
    EXPECT_EQ(map.at(address), value);
    ++visited;
  });
  EXPECT_EQ(visited, map.size());
}

}  // namespace
}  // namespace tidemark
