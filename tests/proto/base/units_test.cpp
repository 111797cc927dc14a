#include "proto/base/units.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

TEST(Units, SizesAreBinaryUnlessTheyAreSpelledDecimal) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("1073741824"), uint64_t{1} << 30);
  EXPECT_EQ(parse_bytes("512b"), 512U);
  for (const char* text : {"3k", "3K", "3kib", "3KiB"}) {
    EXPECT_EQ(parse_bytes(text), 3U << 10) << text;
  }
  EXPECT_EQ(parse_bytes("512M"), 512U << 20);
  EXPECT_EQ(parse_bytes("40GiB"), uint64_t{40} << 30);
  EXPECT_EQ(parse_bytes("1.5g"), uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2TiB"), uint64_t{2} << 40);
  for (const char* text : {"3kb", "3KB", "3kB"}) EXPECT_EQ(parse_bytes(text), 3000U) << text;
  EXPECT_EQ(parse_bytes("205MB"), 205'000'000U);
  EXPECT_EQ(parse_bytes("1.1GB"), 1'100'000'000U);
  EXPECT_EQ(parse_bytes("2tb"), 2'000'000'000'000U);
  EXPECT_EQ(parse_bytes("1e3"), 1000U);
}

TEST(Units, DurationsAreNanoseconds) {
  EXPECT_EQ(parse_duration_ns("0"), 0);
  EXPECT_EQ(parse_duration_ns("1.5"), 1'500'000'000);
  EXPECT_EQ(parse_duration_ns("1.5s"), 1'500'000'000);
  EXPECT_EQ(parse_duration_ns("7ns"), 7);
  EXPECT_EQ(parse_duration_ns("300us"), 300'000);
  EXPECT_EQ(parse_duration_ns("20ms"), 20'000'000);
  EXPECT_EQ(parse_duration_ns("5m"), 300'000'000'000);
  EXPECT_EQ(parse_duration_ns("5min"), 300'000'000'000);
  EXPECT_EQ(parse_duration_ns("2h"), 7'200'000'000'000);
}

TEST(Units, SharesOfTimeAreMillionths) {
  EXPECT_EQ(parse_overhead("2%"), 20'000U);
  EXPECT_EQ(parse_overhead("0.5 %"), 5'000U);
  EXPECT_EQ(parse_overhead("100%"), 1'000'000U);
  EXPECT_EQ(parse_overhead("off"), 0U);
  for (const char* text :
       {"", "2", "0.02", "0%", "-1%", "101%", "%", "on", "2%%", "nan%", "2 pct"}) {
    EXPECT_EQ(parse_overhead(text), std::nullopt) << text;
  }
}

TEST(Units, EverythingElseIsRefused) {
  for (const char* text :
       {"", "big", "-1", "1 GiB", " 1", "1gi", "1x", "nan", "inf", "1e30", "0x10", "1,5g", "GiB"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
  for (const char* text : {"", "noon", "-1s", "1 s", "1S", "1sec", "nan", "inf", "1e30", "1d"}) {
    EXPECT_EQ(parse_duration_ns(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tidemark
