// Ranks that are stages of a pipeline, and others that need more for other reasons.
#include <gtest/gtest.h>

#include <deque>

#include "tests/support/story.h"

namespace tidemark {
namespace {

using Blocks = std::vector<uint64_t>;
using Ids = std::vector<std::string>;

// Each rank has this many passes under way before the first backward pass, and so large a table
// besides its layers.
Trace training(const std::vector<int>& passes, const std::vector<uint64_t>& scales,
               const std::vector<uint64_t>& tables = {}) {
  return Trace(
      [&](Story& s, uint32_t rank) {
        Training t(s, {});
        const uint64_t table = tables.empty() ? 0 : tables[rank];
        if (table != 0) s.alloc(table, s.setup());
        const auto backward = [&](const Blocks& kept) {
          for (size_t i = kept.size(); i-- > 0;) {
            const uint64_t passed = s.alloc(scales[rank] * 8 * kMiB, 0);
            s.free(kept[i]);
            if (i % 3 == 0) s.free(s.alloc(2 * kMiB, 0));
            s.free(passed);
          }
        };
        for (int step = 0; step < 6; ++step) {
          std::deque<Blocks> waiting;
          for (int i = 0; i < 8; ++i) {
            waiting.push_back(t.forward(scales[rank]));
            if (i + 1 < passes[rank]) continue;
            backward(waiting.front());
            waiting.pop_front();
          }
          for (const Blocks& kept : waiting) backward(kept);
          s.optimizer_mark();
          if (table != 0 && step == 0) {
            for (int i = 0; i < 2; ++i) s.alloc(table, s.optimizer("_init_group"));
          }
          s.free(s.alloc(2 * kMiB, s.optimizer("_multi_tensor_adam")));
        }
      },
      static_cast<uint32_t>(passes.size()), true);
}

TEST(Stages, APipelineHoldsMostInItsFirstStage) {
  for (const std::vector<int>& passes :
       {std::vector<int>{4, 3, 2, 1}, {2, 1}, {3, 3, 2, 2, 1, 1}}) {
    const Trace trace = training(passes, std::vector<uint64_t>(passes.size(), 1));
    EXPECT_EQ(trace.alarms(), Ids{});
    const Finding f = trace.finding("rank_imbalance");
    ASSERT_EQ(f.advice.size(), 1U);
    EXPECT_EQ(f.advice[0].action, "balance_stages");
    EXPECT_EQ(f.severity, kInfo);
  }
}

// The first stage has the embedding, the last one the head.
TEST(Stages, TablesOfTheFirstAndTheLastStageAreOfAPipeline) {
  for (const std::vector<int>& passes : {std::vector<int>{4, 3, 2, 1}, {6, 5, 4, 3, 2, 1}}) {
    std::vector<uint64_t> tables(passes.size(), 0);
    tables.front() = tables.back() = 96 * kMiB;
    const Trace trace = training(passes, std::vector<uint64_t>(passes.size(), 1), tables);
    EXPECT_EQ(trace.alarms(), Ids{});
    const Finding f = trace.finding("rank_imbalance");
    ASSERT_EQ(f.advice.size(), 1U);
    EXPECT_EQ(f.advice[0].action, "balance_stages");
    EXPECT_EQ(f.severity, kInfo);
  }
}

TEST(Stages, ATableOnOneRankIsNoPipeline) {
  const std::vector<uint64_t> tables = {96 * kMiB, 0, 0, 0};
  const std::vector<uint64_t> scales(4, 1);
  EXPECT_EQ(training({1, 1, 1, 1}, scales, tables).alarms(), (Ids{"rank_imbalance"}));
  EXPECT_EQ(training({2, 1, 1, 1}, scales, tables).alarms(), (Ids{"rank_imbalance"}));
  const std::vector<uint64_t> falling = {288 * kMiB, 192 * kMiB, 96 * kMiB, 0};
  EXPECT_EQ(training({1, 1, 1, 1}, scales, falling).alarms(), (Ids{"rank_imbalance"}));
  EXPECT_EQ(training({2, 1}, {1, 1}, {288 * kMiB, 0}).alarms(), (Ids{"rank_imbalance"}));
}

TEST(Stages, OneRankThatNeedsMoreIsNoPipeline) {
  EXPECT_EQ(training({2, 1, 1, 1}, {1, 1, 1, 1}).alarms(), (Ids{"rank_imbalance"}));
  EXPECT_EQ(training({1, 1, 1, 1}, {2, 1, 1, 1}).alarms(), (Ids{"rank_imbalance"}));
  EXPECT_EQ(training({1, 1, 1, 1}, {4, 3, 2, 1}).alarms(), (Ids{"rank_imbalance"}));
  EXPECT_EQ(training({1, 1, 4, 1}, {1, 1, 1, 1}).alarms(), (Ids{"rank_imbalance"}));
}

}  // namespace
}  // namespace tidemark
