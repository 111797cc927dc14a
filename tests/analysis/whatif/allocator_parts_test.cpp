// The parts of the allocator model: its settings, the set of free blocks, the driver's addresses.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "analysis/whatif/allocator/free_set.h"
#include "analysis/whatif/allocator/segment_addresses.h"
#include "analysis/whatif/allocator/settings.h"

namespace tidemark {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

AllocatorSettings parsed(const char* conf, TorchVersion version = {}) {
  const auto settings = AllocatorSettings::parse(conf, version);
  EXPECT_TRUE(settings) << conf << ": " << settings.error().message;
  return settings ? *settings : AllocatorSettings{};
}

TEST(AllocatorSettings, ReadsSeveralKeysAtOnce) {
  const AllocatorSettings s = parsed(
      " max_split_size_mb:64, garbage_collection_threshold:0.6,"
      "roundup_power2_divisions:[1:4,64:2,>:8],large_segment_size_mb:32,"
      "max_non_split_rounding_mb:50,per_process_memory_fraction:0.25,backend:native,"
      "pinned_use_background_threads:True");
  EXPECT_EQ(s.rules.max_split_bytes, 64 * kMib);
  EXPECT_DOUBLE_EQ(s.gc_threshold, 0.6);
  EXPECT_DOUBLE_EQ(s.memory_fraction, 0.25);
  EXPECT_EQ(s.large_segment_bytes, 32 * kMib);
  EXPECT_EQ(s.non_split_slack(), 50 * kMib);
  EXPECT_EQ(s.rules.roundup_divisions[0], 4U);
  EXPECT_EQ(s.rules.roundup_divisions[6], 2U);
  EXPECT_EQ(s.rules.roundup_divisions[15], 8U);
  EXPECT_FALSE(s.rules.expandable_segments);
  ASSERT_EQ(s.ignored.size(), 1U);
  EXPECT_EQ(s.ignored[0], "pinned_use_background_threads");
  EXPECT_TRUE(parsed("expandable_segments:True").rules.expandable_segments);
  EXPECT_EQ(parsed("").rules.max_split_bytes, UINT64_MAX);
}

TEST(AllocatorSettings, RefusesWhatTorchRefuses) {
  for (const char* conf : {"expandable_segment:True",
                           "expandable_segments:true",
                           "expandable_segments",
                           "expandable_segments:",
                           "max_split_size_mb:20",
                           "max_split_size_mb:x",
                           "max_split_size_mb:-1",
                           "max_split_size_mb:99999999999999999999",
                           "max_split_size_mb:[64]",
                           "roundup_power2_divisions:3",
                           "roundup_power2_divisions:[64:3]",
                           "roundup_power2_divisions:[3:4]",
                           "roundup_power2_divisions:[64]",
                           "roundup_power2_divisions:[64:4",
                           "garbage_collection_threshold:0",
                           "garbage_collection_threshold:1",
                           "garbage_collection_threshold:nan",
                           "per_process_memory_fraction:1.5",
                           "large_segment_size_mb:10",
                           "backend:cudaMallocAsync",
                           "max_split_size_mb:30,large_segment_size_mb:64",
                           ":",
                           "a,b"}) {
    const auto settings = AllocatorSettings::parse(conf);
    EXPECT_FALSE(settings) << conf;
    if (!settings) {
      EXPECT_EQ(settings.error().message.find('\n'), std::string::npos) << conf;
    }
  }
}

TEST(AllocatorSettings, OneDivisionRoundedUpToPowersOfTwoBefore24) {
  const auto old = parsed("roundup_power2_divisions:1", {2, 3});
  const auto now = parsed("roundup_power2_divisions:1", {2, 4});
  EXPECT_EQ(old.rules.round(5 * kMib), 8 * kMib);
  EXPECT_EQ(now.rules.round(5 * kMib), 5 * kMib);
}

TEST(AllocatorSettings, SegmentsHaveASettingFrom211On) {
  EXPECT_FALSE(AllocatorSettings::parse("large_segment_size_mb:32", {2, 4}));
  EXPECT_FALSE(AllocatorSettings::parse("large_segment_size_mb:32", {2, 10}));
  EXPECT_TRUE(AllocatorSettings::parse("large_segment_size_mb:32", {2, 11}));
}

TEST(AllocatorSettings, SizesSegments) {
  const auto s = parsed("large_segment_size_mb:32");
  EXPECT_EQ(s.segment_bytes(kMib), 2 * kMib);
  EXPECT_EQ(s.segment_bytes(kMib + 512), 32 * kMib);
  EXPECT_EQ(s.segment_bytes(10 * kMib - 512), 32 * kMib);
  EXPECT_EQ(s.segment_bytes(10 * kMib), 10 * kMib);
  EXPECT_EQ(s.segment_bytes(11 * kMib), 12 * kMib);
}

TEST(TorchVersion, SelectsTheTieBreak) {
  EXPECT_EQ(TorchVersion::parse("torch 2.11.0+cu130")->tie_break(), TieBreak::kAddress);
  EXPECT_EQ(TorchVersion::parse("2.12")->tie_break(), TieBreak::kRegistration);
  EXPECT_EQ(TorchVersion::parse("2.13.1")->tie_break(), TieBreak::kSegment);
  EXPECT_EQ(TorchVersion::parse("3.0")->tie_break(), TieBreak::kSegment);
  for (const char* text : {"", "torch", "1.13", "two.eleven", "2", "2."}) {
    EXPECT_FALSE(TorchVersion::parse(text)) << text;
  }
}

TEST(FreeSet, IsASortedSet) {
  using Key = std::pair<uint64_t, uint64_t>;
  std::mt19937_64 rng(3);
  FreeSet fast;
  std::set<Key> slow;
  for (int step = 0; step < 20'000; ++step) {
    const Key key{rng() % 300, rng() % 50};
    if (slow.insert(key).second) {
      fast.insert({key.first, key.second, 7});
    } else {
      slow.erase(key);
      fast.erase(FreeSet::Entry{key.first, key.second, 7});
    }
    const uint64_t size = rng() % 310;
    const auto expected = slow.lower_bound({size, 0});
    const auto found = fast.lower_bound(size);
    ASSERT_EQ(found == fast.end(), expected == slow.end());
    if (expected == slow.end()) continue;
    ASSERT_EQ((Key{fast.at(found).size, fast.at(found).order}), *expected);
    if (expected != slow.begin()) {
      const auto before = fast.previous(found);
      ASSERT_EQ((Key{fast.at(before).size, fast.at(before).order}), *std::prev(expected));
      ASSERT_EQ(fast.next(before), found);
    }
  }
  ASSERT_GT(slow.size(), 2000U);  // several runs
  auto expected = slow.begin();
  fast.for_each([&](const FreeSet::Entry& e) {
    ASSERT_EQ((Key{e.size, e.order}), *expected);
    ++expected;
  });
  EXPECT_EQ(fast.largest().size, slow.rbegin()->first);
}

// As recorded from a real driver, in MiB below the first chunk.
TEST(DriverAddresses, FillsTheLowestGapAndOpensChunksFromTheTopDown) {
  DriverAddresses driver;
  const uint64_t first = driver.allocate(42 * kMib);  // a chunk of 64
  const uint64_t second = driver.allocate(42 * kMib);
  EXPECT_EQ(second, first - 64 * kMib);
  EXPECT_EQ(driver.allocate(12 * kMib), second + 42 * kMib);
  EXPECT_EQ(driver.allocate(12 * kMib), first + 42 * kMib);  // the lower chunk has 10 left
  EXPECT_EQ(driver.allocate(72 * kMib), second - 96 * kMib);
  driver.free(first, 42 * kMib);
  EXPECT_EQ(driver.allocate(2 * kMib), second - 96 * kMib + 72 * kMib);
  driver.free(first + 42 * kMib, 12 * kMib);  // the chunk is empty and returned to the kernel
  EXPECT_EQ(driver.allocate(54 * kMib), first);
}

TEST(DriverAddresses, FollowsARecordingWhileTheSizesAreTheSame) {
  const std::vector<PlacedSegment> recorded = {{0x7f9447e00000, 2 * kMib},
                                               {0x7f944c800000, 20 * kMib},
                                               {0x7f9416000000, 20 * kMib},
                                               {0x7f9433400000, 32 * kMib}};
  DriverAddresses driver(recorded);
  EXPECT_EQ(driver.allocate(2 * kMib), recorded[0].address);
  EXPECT_EQ(driver.allocate(20 * kMib), recorded[1].address);
  EXPECT_EQ(driver.allocate(20 * kMib), recorded[2].address);
  // A different size: the lowest gap is the rest of the last chunk.
  EXPECT_EQ(driver.allocate(4 * kMib), recorded[2].address + 20 * kMib);
  // Ranges that the recording used later are free above.
  EXPECT_EQ(driver.allocate(30 * kMib), recorded[3].address);
  EXPECT_EQ(driver.allocate(40 * kMib), recorded[2].address - 64 * kMib);
}

}  // namespace
}  // namespace tidemark
