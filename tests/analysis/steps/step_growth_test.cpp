// Growth from step to step.
#include <gtest/gtest.h>

#include "analysis/history/history_replay.h"
#include "analysis/steps/level_growth.h"
#include "tests/support/step_story.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

// A cache of eight entries that is full after as many steps, in blocks of varying size.
TEST(Steps, ALevelThatGoesUpAndDownDoesNotGrow) {
  std::vector<uint64_t> lows;
  for (uint64_t i = 0; i < 30; ++i) lows.push_back((50 + 8 * std::min<uint64_t>(i, 8)) * kMiB);
  for (size_t i = 9; i < lows.size(); ++i) lows[i] += i % 3 == 0 ? 0 : kMiB;
  EXPECT_FALSE(find_growth(lows).has_value());
  lows.assign(30, 0);
  for (size_t i = 0; i < lows.size(); ++i) lows[i] = 364 * kMiB + i * 1024;
  EXPECT_FALSE(find_growth(lows).has_value()) << "small blocks";
  for (size_t i = 0; i < lows.size(); ++i) lows[i] = (364 + i) * kMiB;
  EXPECT_TRUE(find_growth(lows).has_value());
}

TEST(Steps, GrowthThatBeganLateMustBePlain) {
  const auto grows = [](uint64_t from, uint64_t mib) {
    std::vector<uint64_t> lows;
    for (uint64_t i = 0; i < 70; ++i) {
      lows.push_back((500 + (i > from ? (i - from) * mib : 0)) * kMiB);
    }
    return find_growth(lows);
  };
  ASSERT_TRUE(grows(50, 60).has_value());
  EXPECT_EQ(grows(50, 60)->first_step, 51U);
  EXPECT_EQ(grows(50, 60)->bytes_per_step, 60.0 * kMiB);
  EXPECT_FALSE(grows(50, 2).has_value()) << "little";
  EXPECT_FALSE(grows(64, 60).has_value()) << "in few steps";
  EXPECT_TRUE(grows(40, 2).has_value());
}

// A validation in every fifth step that keeps its results, and crosses the boundary of a step.
TEST(Steps, ARiseThatTakesTwoStepsIsOne) {
  std::vector<uint64_t> lows;
  for (uint64_t i = 0; i < 40; ++i) lows.push_back((137 + 32 * (i / 5)) * kMiB);
  for (size_t i = 4; i < lows.size(); i += 5) lows[i] += 4 * kMiB;
  const auto growth = find_growth(lows);
  ASSERT_TRUE(growth.has_value());
  EXPECT_NEAR(growth->bytes_per_step, 32.0 / 5 * kMiB, 0.5 * kMiB);
}

TEST(Steps, GrowthIsExactAndStopsWhenItStops) {
  const auto steps_of = [](int growing, int total) {
    const Trace trace([=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < total; ++i) {
        t.step();
        if (i < growing) s.alloc(3 * kMiB, s.user(90));
      }
    });
    return found_in(trace.model().processes[0], framework(trace));
  };
  const Steps grows = steps_of(30, 30);
  EXPECT_EQ(grows.growth_bytes_per_step, 3.0 * kMiB);
  ASSERT_FALSE(grows.growing.empty());
  EXPECT_NEAR(grows.growing[0].bytes_per_step, 3.0 * kMiB, 0.2 * kMiB);
  EXPECT_EQ(steps_of(10, 30).growth_bytes_per_step, 0);  // a list that was filled once
  EXPECT_EQ(steps_of(0, 30).growth_bytes_per_step, 0);
}

// What stays after each step, in MiB; negative: the oldest such block is freed.
Steps growing_by(const std::vector<int>& changes) {
  const Trace trace([&](Story& s, uint32_t) {
    Training t(s, {});
    std::vector<uint64_t> kept;
    for (const int change : changes) {
      t.step();
      if (change > 0) kept.push_back(s.alloc(static_cast<uint64_t>(change) * kMiB, s.user(90)));
      for (int i = change; i < 0 && !kept.empty(); ++i) {
        s.free(kept.front());
        kept.erase(kept.begin());
      }
    }
  });
  return found_in(trace.model().processes[0], framework(trace));
}

TEST(Steps, GrowthHasManyShapes) {
  std::vector<int> stairs(30);
  std::vector<int> late(30);
  std::vector<int> filled(40);
  std::vector<int> sawtooth(30, 8);
  for (size_t i = 0; i < stairs.size(); ++i) {
    stairs[i] = i % 5 == 4 ? 40 : 0;
    late[i] = i >= 13 ? 8 : 0;
    if (i % 10 == 9) sawtooth[i] = -10;
  }
  std::fill_n(filled.begin(), 30, 8);
  for (const auto& grows : {stairs, late}) {
    const Steps steps = growing_by(grows);
    EXPECT_NEAR(steps.growth_bytes_per_step, 8.0 * kMiB, 2.0 * kMiB);
    ASSERT_FALSE(steps.growing.empty());
    EXPECT_NEAR(steps.growing[0].bytes_per_step, 8.0 * kMiB, 2.0 * kMiB);
  }
  EXPECT_EQ(growing_by(filled).growth_bytes_per_step, 0);  // a cache with a bound
  EXPECT_EQ(growing_by(sawtooth).growth_bytes_per_step, 0);
}

TEST(Steps, GrowthInEveryNthStepIsExact) {
  for (const int every : {2, 3, 4, 5, 10}) {
    for (const size_t count : {29U, 40U, 41U}) {
      std::vector<int> stairs(count);
      for (size_t i = 0; i < count; ++i) {
        if (static_cast<int>(i) % every == every - 1) stairs[i] = 8 * every;
      }
      EXPECT_EQ(growing_by(stairs).growth_bytes_per_step, 8.0 * kMiB) << every << " " << count;
    }
  }
}

// Blocks move from places of their size into ones that are larger, but not worth splitting.
TEST(Steps, WhatWasNotSplitIsNoGrowth) {
  constexpr uint64_t kBytes = 3 * kMiB + kMiB / 4;
  constexpr uint64_t kBlocks = 12;
  HistoryReplay replay(0, {});
  int64_t now = 0;
  const auto apply = [&](FrameworkAction action, uint64_t address, uint64_t bytes) {
    FrameworkEvent event{};
    event.action = action;
    event.address = address;
    event.size_bytes = bytes;
    event.time_ns = now += 1000;
    replay.apply(event);
  };
  const auto tight = [](uint64_t i) { return (i << 30) + (uint64_t{1} << 40); };
  const auto loose = [](uint64_t i) { return (i << 30) + (uint64_t{1} << 41); };
  for (uint64_t i = 0; i < kBlocks; ++i) {
    apply(FrameworkAction::kSegmentAlloc, tight(i), 20 * kMiB);
    apply(FrameworkAction::kAlloc, tight(i), kBytes);
  }
  Steps steps;
  steps.source = StepSource::kMarks;
  uint32_t event = 2 * kBlocks;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    steps.boundaries.push_back(event);
    apply(FrameworkAction::kSegmentAlloc, loose(i), 4 * kMiB);
    apply(FrameworkAction::kAlloc, loose(i), kBytes);
    apply(FrameworkAction::kFreeRequested, tight(i), kBytes);
    apply(FrameworkAction::kFreeCompleted, tight(i), kBytes);
    event += 4;
  }
  steps.boundaries.push_back(event);
  const AllocationHistory model = std::move(replay).finish();
  ASSERT_EQ(model.event_count(), event);
  measure_steps(model, steps);
  EXPECT_GT(steps.levels.back().low_bytes, steps.levels.front().low_bytes + 8 * kMiB / 2);
  EXPECT_EQ(steps.growth_bytes_per_step, 0);
}

}  // namespace
}  // namespace tidemark
