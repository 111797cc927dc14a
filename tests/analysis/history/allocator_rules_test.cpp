#include "analysis/history/allocator_rules.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(AllocatorRules, RoundsToBlocksOf512) {
  const AllocatorRules rules;
  EXPECT_EQ(rules.round(1), 512U);
  EXPECT_EQ(rules.round(512), 512U);
  EXPECT_EQ(rules.round(513), 1024U);
  EXPECT_EQ(rules.round(3 * kMiB + 1), 3 * kMiB + 512);
  EXPECT_EQ(rules.round(UINT64_MAX), UINT64_MAX);
}

TEST(AllocatorRules, RoundsToDivisionsOfAPowerOfTwo) {
  AllocatorRules rules;
  rules.apply_conf("roundup_power2_divisions:4");
  EXPECT_EQ(rules.round(1200 * 1024), 1280U * 1024);  // torch's documentation: 1200 -> 1280
  EXPECT_EQ(rules.round(4 * kMiB), 4 * kMiB);         // a power of two stays
  EXPECT_EQ(rules.round(5 * kMiB + 1), 6 * kMiB);
  EXPECT_EQ(rules.round(2000), 2048U);  // up to 512 * divisions: plain rounding
}

TEST(AllocatorRules, ListOfDivisionsFillsTheGaps) {
  AllocatorRules rules;
  rules.apply_conf("roundup_power2_divisions:[64:2,256:8,>:1], max_split_size_mb:100");
  EXPECT_EQ(rules.roundup_divisions[0], 2U);  // below the first listed size
  EXPECT_EQ(rules.roundup_divisions[6], 2U);  // 64 MiB
  EXPECT_EQ(rules.roundup_divisions[7], 0U);  // 128 MiB: not listed
  EXPECT_EQ(rules.roundup_divisions[8], 8U);  // 256 MiB
  EXPECT_EQ(rules.roundup_divisions[9], 1U);  // everything above
  EXPECT_EQ(rules.roundup_divisions[15], 1U);
  EXPECT_EQ(rules.max_split_bytes, 100 * kMiB);
}

TEST(AllocatorRules, SettingsOfASnapshotSayTheSameAsTheConf) {
  AllocatorRules rules;
  rules.apply_setting("expandable_segments", "True");
  rules.apply_setting("max_split_size", "33554432");
  rules.apply_setting("roundup_power2_divisions.1024", "8");
  rules.apply_setting("pinned_num_register_threads", "1");
  EXPECT_TRUE(rules.expandable_segments);
  EXPECT_EQ(rules.max_split_bytes, 32 * kMiB);
  EXPECT_EQ(rules.roundup_divisions[10], 8U);
  rules.apply_setting("max_split_size", "-1");
  EXPECT_EQ(rules.max_split_bytes, UINT64_MAX);
}

TEST(AllocatorRules, NonsenseChangesNothing) {
  AllocatorRules rules;
  for (const char* conf : {"", ":", ",,,", "max_split_size_mb", "max_split_size_mb:x",
                           "roundup_power2_divisions:[", "roundup_power2_divisions:[a:b,:,>]",
                           "max_split_size_mb:-5", "roundup_power2_divisions:-3"}) {
    rules.apply_conf(conf);
  }
  EXPECT_EQ(rules.max_split_bytes, UINT64_MAX);
  EXPECT_EQ(rules.round(1000), 1024U);
}

TEST(AllocatorRules, SplitsAsTorchDoes) {
  AllocatorRules rules;
  EXPECT_TRUE(rules.splits(512, 1024));  // small: from 512 bytes on
  EXPECT_FALSE(rules.splits(512, 512));
  EXPECT_FALSE(rules.splits(2 * kMiB, 3 * kMiB));  // large: only above 1 MiB
  EXPECT_TRUE(rules.splits(2 * kMiB, 3 * kMiB + 512));
  rules.max_split_bytes = 32 * kMiB;
  EXPECT_FALSE(rules.splits(32 * kMiB, 100 * kMiB));
  rules.expandable_segments = true;
  EXPECT_TRUE(rules.splits(32 * kMiB, 32 * kMiB + 512));
}

}  // namespace
}  // namespace tidemark
