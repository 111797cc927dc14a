// The least allocated memory of each step.
#include "injector/marks/step_levels.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tidemark::injector {
namespace {

std::vector<uint64_t> lows_of(const StepLevels& levels, int64_t device) {
  std::array<uint64_t, StepLevels::kKept> lows{};
  const size_t count = levels.lows(device, lows);
  return {lows.begin(), lows.begin() + static_cast<ptrdiff_t>(count)};
}

TEST(StepLevels, KeepsTheLastOnes) {
  const auto levels = std::make_unique<StepLevels>();
  EXPECT_TRUE(lows_of(*levels, 0).empty());
  for (uint64_t step = 0; step < 100; ++step) {
    levels->see(0, 900);
    levels->see(0, step);
    levels->see(0, 700);
    if (step % 50 == 0) levels->see(5, 8 + step);
    levels->end_step(MarkKind::kOptimizerStep);
  }
  EXPECT_EQ(levels->steps(), 100U);
  const std::vector<uint64_t> lows = lows_of(*levels, 0);
  ASSERT_EQ(lows.size(), StepLevels::kKept);
  EXPECT_EQ(lows.front(), 100 - StepLevels::kKept);
  EXPECT_EQ(lows.back(), 99U);
  EXPECT_EQ(lows_of(*levels, 5), (std::vector<uint64_t>{8, 58}));  // where it was used
}

TEST(StepLevels, StepsOfTheProgramCountAlone) {
  const auto levels = std::make_unique<StepLevels>();
  levels->see(0, 1);
  levels->end_step(MarkKind::kOptimizerStep);
  levels->see(0, 2);
  levels->end_step(MarkKind::kIteration);
  levels->see(0, 3);
  levels->end_step(MarkKind::kOptimizerStep);  // inside of the next one
  levels->see(0, 4);
  levels->end_step(MarkKind::kIteration);
  EXPECT_EQ(levels->steps(), 2U);
  EXPECT_EQ(lows_of(*levels, 0), std::vector<uint64_t>{3});
  levels->clear();
  EXPECT_EQ(levels->steps(), 0U);
}

}  // namespace
}  // namespace tidemark::injector
