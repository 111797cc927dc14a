// Checks the model against a simple allocator that keeps exact books.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <type_traits>

#include "analysis/history/history_replay.h"
#include "analysis/history/memory_state.h"
#include "tests/support/toy_allocator.h"

namespace tidemark {
namespace {

AllocationHistory replayed(const std::vector<FrameworkEvent>& events, const AllocatorRules& rules) {
  HistoryReplay replay(0, rules);
  for (const FrameworkEvent& event : events) replay.apply(event);
  return std::move(replay).finish();
}

std::vector<AllocatorRules> rule_sets() {
  AllocatorRules plain, divided, limited;
  divided.apply_conf("roundup_power2_divisions:8");
  limited.apply_conf("max_split_size_mb:32");
  return {plain, divided, limited};
}

TEST(Model, TotalsAreExactAfterEveryEvent) {
  for (const AllocatorRules& rules : rule_sets()) {
    ToyAllocator toy(rules, 21);
    while (toy.events.size() < 9000) toy.random_step();
    const AllocationHistory model = replayed(toy.events, rules);
    ASSERT_EQ(model.event_count(), toy.events.size());
    EXPECT_EQ(model.anomalies, 0U);
    MemoryTotals most;
    for (uint32_t e = 0; e < model.event_count(); ++e) {
      ASSERT_TRUE(e % 7 != 0 || model.totals_after(e) == toy.totals[e]) << e;
      most.allocated = std::max(most.allocated, toy.totals[e].allocated);
      most.requested = std::max(most.requested, toy.totals[e].requested);
      most.reserved = std::max(most.reserved, toy.totals[e].reserved);
    }
    EXPECT_EQ(model.allocated_peak.bytes, most.allocated);
    EXPECT_EQ(model.requested_peak.bytes, most.requested);
    EXPECT_EQ(model.reserved_peak.bytes, most.reserved);
    EXPECT_EQ(model.totals_after(model.allocated_peak.event).allocated, most.allocated);
  }
}

// Live blocks with their sizes, segments, and holes: everything that a map of the memory shows.
void expect_state(const MemoryState& state, const AllocationHistory& model,
                  const ToyAllocator& toy) {
  const auto live = toy.live();
  ASSERT_EQ(state.live.size(), live.size());
  for (size_t i = 0; i < live.size(); ++i) {
    const Allocation& a = model.allocations[state.live[i]];
    EXPECT_EQ(a.address, live[i].first);
    EXPECT_EQ(a.block_bytes, live[i].second.size);
    EXPECT_EQ(a.requested_bytes, live[i].second.requested);
  }
  ASSERT_EQ(state.segments.size(), toy.segments.size());
  size_t holes = 0;
  uint64_t largest = 0;
  for (const auto& [base, segment] : toy.segments) {
    for (const auto& [address, block] : segment.blocks) {
      if (block.used || block.pending) continue;
      ++holes;
      largest = std::max(largest, block.size);
    }
  }
  EXPECT_EQ(state.holes.size(), holes);
  EXPECT_EQ(state.largest_hole_bytes(), largest);
}

TEST(Model, StateIsExactAtTheEndOfEveryPrefix) {
  const AllocatorRules rules;
  ToyAllocator toy(rules, 22);
  for (int round = 0; round < 40; ++round) {
    while (toy.events.size() < static_cast<size_t>(100 * (round + 1))) toy.random_step();
    const AllocationHistory model = replayed(toy.events, rules);
    expect_state(state_after(model, model.event_count() - 1), model, toy);
  }
}

TEST(Model, HistoryThatBeganLateIsSeededFromItsEnd) {
  for (const AllocatorRules& rules : rule_sets()) {
    ToyAllocator toy(rules, 23);
    while (toy.events.size() < 3000) toy.random_step();
    const size_t begin = toy.events.size();
    while (toy.events.size() < 6000) toy.random_step();

    SeedState seed;
    for (const auto& [address, segment] : toy.segments) {
      SegmentState s{};
      s.address = address;
      s.size_bytes = segment.size;
      seed.add(s);
      for (const auto& [at, block] : segment.blocks) {
        BlockState b{};
        b.address = at;
        b.size_bytes = block.size;
        b.requested_bytes = block.requested;
        b.condition = block.used      ? BlockCondition::kAllocated
                      : block.pending ? BlockCondition::kPendingFree
                                      : BlockCondition::kFree;
        seed.add(b);
      }
    }
    for (size_t i = toy.events.size(); i > begin; --i) seed.undo(toy.events[i - 1]);

    HistoryReplay replay(0, rules);
    replay.seed(seed, toy.events[begin].time_ns);
    for (size_t i = begin; i < toy.events.size(); ++i) replay.apply(toy.events[i]);
    const AllocationHistory model = std::move(replay).finish();
    EXPECT_EQ(model.anomalies, 0U);
    EXPECT_GT(model.seeded_blocks, 0U);
    const uint32_t seeds = model.event_count() - static_cast<uint32_t>(toy.events.size() - begin);
    for (size_t i = begin; i < toy.events.size(); i += 13) {
      const MemoryTotals t = model.totals_after(seeds + static_cast<uint32_t>(i - begin));
      EXPECT_EQ(t.reserved, toy.totals[i].reserved);
      EXPECT_EQ(t.requested, toy.totals[i].requested);
    }
    EXPECT_EQ(model.totals_after(model.event_count() - 1), toy.totals.back());
  }
}

// Each of many blocks lies behind a free one, in segments of their own and in one that grew.
TEST(Model, ManyBlocksOfAStateAreFoundBehindWhatIsFree) {
  constexpr uint64_t kMiB = 1 << 20;
  constexpr uint64_t kSegments = 50'000;
  for (const bool expandable : {false, true}) {
    SeedState seed;
    for (uint64_t i = 0; i < kSegments; ++i) {
      const uint64_t address = (i + 1) * 2 * kMiB;
      SegmentState segment{};
      segment.address = address;
      segment.size_bytes = 2 * kMiB;
      segment.flags = expandable ? kSegmentExpandable : 0;
      seed.add(segment);
      BlockState block{};
      block.address = address + kMiB;
      block.size_bytes = block.requested_bytes = kMiB / 2;
      block.condition = BlockCondition::kAllocated;
      seed.add(block);
    }
    HistoryReplay replay(0, AllocatorRules());
    replay.seed(seed, 0);
    const AllocationHistory model = std::move(replay).finish();
    EXPECT_EQ(model.anomalies, 0U);
    EXPECT_EQ(model.totals_after(model.event_count() - 1).reserved, kSegments * 2 * kMiB);
    EXPECT_EQ(model.totals_after(model.event_count() - 1).allocated, kSegments * kMiB / 2);
  }
}

// Any order of any events: nothing may crash, hang, or leave impossible totals.
TEST(Model, NonsenseHistoriesAreSurvived) {
  std::mt19937_64 rng(24);
  for (int round = 0; round < 200; ++round) {
    AllocatorRules rules;
    rules.expandable_segments = round % 2 == 0;
    HistoryReplay replay(0, rules);
    for (int i = 0; i < 500; ++i) {
      FrameworkEvent event{};
      event.time_ns = static_cast<int64_t>(rng() % 1000);
      event.action = static_cast<FrameworkAction>(rng() % 12);
      event.address = (rng() % 40) * 512 * 1024;
      event.size_bytes = rng() % 8 == 0 ? rng() : (rng() % 40) * 256 * 1024;
      replay.apply(event);
    }
    const AllocationHistory model = std::move(replay).finish();
    for (uint32_t e = 0; e < model.event_count(); e += 50) state_after(model, e);
  }
}

TEST(Model, ExpandableRangesGrowAndShrink) {
  AllocatorRules rules;
  rules.expandable_segments = true;
  constexpr uint64_t kBase = uint64_t{1} << 33;
  constexpr uint64_t kPage = 20 << 20;
  const auto event = [](FrameworkAction action, uint64_t address, uint64_t size) {
    FrameworkEvent e{};
    e.action = action;
    e.address = address;
    e.size_bytes = size;
    return e;
  };
  const AllocationHistory model = replayed(
      {
          event(FrameworkAction::kSegmentMap, kBase, kPage),
          event(FrameworkAction::kAlloc, kBase, 15 << 20),
          event(FrameworkAction::kSegmentMap, kBase + kPage, kPage),  // joins the free 5 MiB
          event(FrameworkAction::kAlloc, kBase + (15 << 20), 21 << 20),
          event(FrameworkAction::kFreeRequested, kBase + (15 << 20), 21 << 20),
          event(FrameworkAction::kFreeCompleted, kBase + (15 << 20), 21 << 20),
          event(FrameworkAction::kSegmentUnmap, kBase + kPage, kPage),  // inside a free block
      },
      rules);
  EXPECT_EQ(model.anomalies, 0U);
  EXPECT_EQ(model.allocated_peak.bytes, uint64_t{36} << 20);
  EXPECT_EQ(model.reserved_peak.bytes, 2 * kPage);
  const MemoryState state = state_after(model, model.event_count() - 1);
  ASSERT_EQ(state.segments.size(), 1U);
  EXPECT_EQ(state.segments[0].size_bytes, kPage);
  ASSERT_EQ(state.holes.size(), 1U);
  EXPECT_EQ(state.holes[0].size_bytes, uint64_t{5} << 20);
}

// Without those whose elements have padding.
std::map<std::string, std::string> columns_of(AllocationHistory model) {
  std::map<std::string, std::string> columns;
  model.visit_columns([&](const char* name, const auto& column) {
    using Element = typename std::remove_cvref_t<decltype(column)>::value_type;
    if (!std::has_unique_object_representations_v<Element>) return;
    columns[name].assign(reinterpret_cast<const char*>(column.data()), column.memory_bytes());
  });
  return columns;
}

TEST(Model, IsTheSameIfOneThreadStoresTheChangesOfSeveralReplays) {
  std::vector<std::vector<FrameworkEvent>> devices;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    ToyAllocator toy(AllocatorRules(), seed);
    while (toy.events.size() < 20'000) toy.random_step();
    devices.push_back(toy.events);
  }
  std::deque<HistoryReplay> replays;
  HistoryThread thread;
  for (size_t i = 0; i < devices.size(); ++i) {
    replays.emplace_back(0, AllocatorRules(), std::span<const StackMeaning>(), &thread);
  }
  for (size_t e = 0; e < 20'000; ++e) {
    for (size_t i = 0; i < devices.size(); ++i) replays[i].apply(devices[i][e]);
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].resize(20'000);
    auto stored = columns_of(std::move(replays[i]).finish());
    for (const auto& [name, bytes] : columns_of(replayed(devices[i], AllocatorRules()))) {
      EXPECT_TRUE(bytes == stored[name]) << name;
    }
  }
}

}  // namespace
}  // namespace tidemark
