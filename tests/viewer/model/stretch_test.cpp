// Blocks of a stretch of time, the axis of events and the list of actions: against brute force.
#include "viewer/model/flame/stretch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/synthetic_trace.h"
#include "viewer/model/flame/flame_tree.h"
#include "viewer/model/tables/action_rows.h"
#include "viewer/model/timeline/columns.h"
#include "viewer/model/timeline/event_axis.h"

namespace tidemark::view {
namespace {

class Stretch : public testing::Test {
 protected:
  Stretch() : trace_(synthetic_model({.events = 3000})) {}

  const AllocationHistory& memory() const { return trace_.processes[0].framework[0]; }
  // Any range of times of events.
  TimeRange random_range() {
    const uint32_t count = memory().event_count();
    uint32_t a = static_cast<uint32_t>(random_() % count);
    uint32_t b = static_cast<uint32_t>(random_() % count);
    if (a > b) std::swap(a, b);
    return {memory().time_ns[a], memory().time_ns[b]};
  }

  TraceModel trace_;
  std::minstd_rand random_{7};
};

TEST_F(Stretch, BlocksEqualBruteForce) {
  for (int round = 0; round < 40; ++round) {
    const TimeRange range = random_range();
    const StretchSums sums = sums_in(memory(), range);
    std::vector<std::vector<uint32_t>> expected(kStretchParts);
    for (uint32_t i = 0; i < memory().allocations.size(); ++i) {
      const Allocation a = memory().allocations[i];
      const bool born = !a.seeded && range.contains(memory().time_ns[a.birth]);
      const bool died = a.release != kNever && range.contains(memory().time_ns[a.release]);
      if (born) expected[0].push_back(i);
      if (died) expected[1].push_back(i);
      if (born && !died) expected[2].push_back(i);
      if (born && died) expected[3].push_back(i);
    }
    for (size_t part = 0; part < kStretchParts; ++part) {
      std::vector<uint32_t> found = blocks_in(memory(), range, static_cast<StretchPart>(part));
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected[part]) << "part " << part;
      EXPECT_EQ(sums[part].count, expected[part].size());
      const FlameTree tree = FlameTree::of_blocks(memory(), trace_.processes[0].names, found);
      EXPECT_EQ(tree.nodes.front().bytes, sums[part].bytes);
    }
  }
}

TEST_F(Stretch, TheAxisOfEventsIsMonotoneAndCanBeInverted) {
  const EventAxis axis(memory(), trace_.start_ns);
  const auto span = static_cast<double>(trace_.end_ns - trace_.start_ns);
  double last = -10;
  for (double time = -0.02 * span; time < 1.02 * span; time += span / 5003) {
    const double at = axis.position(time);
    EXPECT_GE(at, last);
    EXPECT_GE(at, -1);
    EXPECT_LE(at, memory().event_count());
    last = at;
  }
  for (uint32_t event = 0; event < memory().event_count(); event += 17) {
    EXPECT_EQ(axis.time(event), static_cast<double>(memory().time_ns[event] - trace_.start_ns));
    const double back = axis.position(axis.time(event));
    EXPECT_EQ(memory().time_ns[static_cast<uint32_t>(back)], memory().time_ns[event]);
  }
}

TEST_F(Stretch, ColumnsByEventLoseNothing) {
  const EventAxis axis(memory(), trace_.start_ns);
  const MinMaxPyramid pyramid(memory());
  const auto span = static_cast<double>(trace_.end_ns - trace_.start_ns);
  const uint32_t count = 200;
  const std::vector<double> edges = axis.edges(-0.02 * span, 1.02 * span, count);
  EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end()));
  const TimeWindow window{trace_.start_ns, -0.02 * span, 1.02 * span, &edges};
  const TimelineColumns columns = columns_of(memory(), pyramid, window, count);
  ASSERT_EQ(columns.count(), count);
  EXPECT_EQ(columns.edges.front(), 0U);
  EXPECT_EQ(columns.edges.back(), memory().event_count());
  uint64_t highest = 0;
  uint32_t most = 0;
  for (uint32_t i = columns.first_known; i < count; ++i) {
    highest = std::max(highest, columns.curves[0][i].max);
    most = std::max(most, columns.edges[i + 1] - columns.edges[i]);
  }
  EXPECT_EQ(highest, memory().allocated_peak.bytes);
  EXPECT_LE(most, 2 * memory().event_count() / count) << "columns have about the same events";
}

TEST_F(Stretch, ActionsAroundAnEvent) {
  const std::vector<ActionRow> rows = action_rows(memory(), 100, 20);
  ASSERT_GE(rows.size(), 41U);
  uint32_t event = 80;
  for (const ActionRow& row : rows) {
    if (row.failed) continue;
    EXPECT_EQ(row.event, event++);
    EXPECT_FALSE(action_name(row).empty());
    EXPECT_GT(row.bytes, 0U);
  }
  EXPECT_EQ(event, 121U);
  size_t failed = 0;
  for (const ActionRow& row : action_rows(memory(), 0, memory().event_count())) {
    failed += row.failed ? 1 : 0;
  }
  EXPECT_EQ(failed, memory().failures.size());
  EXPECT_GT(failed, 0U);
}

// The cursor on an error is on its row, not on that of the event before it.
TEST_F(Stretch, TheRowOfTheCursor) {
  const FailedAllocation& f = memory().failures.front();
  const std::vector<ActionRow> rows = action_rows(memory(), f.event, 20);
  const size_t failed = action_at(rows, f.event, f.time_ns);
  ASSERT_LT(failed, rows.size());
  EXPECT_TRUE(rows[failed].failed);
  EXPECT_EQ(rows[failed].bytes, f.requested_bytes);
  const size_t event = action_at(rows, f.event, f.time_ns - 1);
  ASSERT_LT(event, rows.size());
  EXPECT_FALSE(rows[event].failed);
  EXPECT_EQ(rows[event].event, f.event);
  EXPECT_NE(rows[event].address, 0U);
  EXPECT_EQ(action_at(rows, memory().event_count(), 0), rows.size());
}

// Allocated minus what is freed of it again is what is kept.
TEST_F(Stretch, WhatIsFreedMayBeOlder) {
  const int64_t span = trace_.end_ns - trace_.start_ns;
  const TimeRange range{trace_.start_ns + span / 3, trace_.start_ns + span / 2};
  const StretchSums sums = sums_in(memory(), range);
  const auto bytes = [&](StretchPart part) { return sums[static_cast<size_t>(part)].bytes; };
  const uint64_t older =
      older_bytes(memory(), range, blocks_in(memory(), range, StretchPart::kFreed));
  EXPECT_GT(older, 0U);
  EXPECT_EQ(bytes(StretchPart::kAllocated) - (bytes(StretchPart::kFreed) - older),
            bytes(StretchPart::kKept));
  EXPECT_EQ(bytes(StretchPart::kFreed) - older, bytes(StretchPart::kShortLived));
  EXPECT_EQ(older_bytes(memory(), range, blocks_in(memory(), range, StretchPart::kKept)), 0U);
}

}  // namespace
}  // namespace tidemark::view
