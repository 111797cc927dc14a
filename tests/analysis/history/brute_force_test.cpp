// Checks states, holes, the peak's blocks, curves and the ledger against computations independent
// of the model: the toy allocator's own books, and plain sums over rows.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "analysis/history/history_replay.h"
#include "analysis/history/minmax_pyramid.h"
#include "analysis/history/state_index.h"
#include "analysis/insight/card/ledger.h"
#include "analysis/load/trace_model.h"
#include "tests/support/toy_allocator.h"

namespace tidemark {
namespace {

using Blocks = std::vector<std::pair<uint64_t, ToyAllocator::ToyBlock>>;

// Everything the toy allocator knows after an event.
struct Book {
  Blocks live;
  std::vector<std::pair<uint64_t, uint64_t>> segments;  // address, size
  std::vector<std::pair<uint64_t, uint64_t>> holes;
};

Book book_of(const ToyAllocator& toy) {
  Book book;
  book.live = toy.live();
  for (const auto& [base, segment] : toy.segments) {
    book.segments.emplace_back(base, segment.size);
    for (const auto& [address, block] : segment.blocks) {
      if (!block.used && !block.pending) book.holes.emplace_back(address, block.size);
    }
  }
  return book;
}

void expect_book(const AllocationHistory& model, const MemoryState& state, const Book& book) {
  ASSERT_EQ(state.live.size(), book.live.size());
  for (size_t i = 0; i < book.live.size(); ++i) {
    const Allocation& a = model.allocations[state.live[i]];
    ASSERT_EQ(a.address, book.live[i].first);
    ASSERT_EQ(a.block_bytes, book.live[i].second.size);
    ASSERT_EQ(a.requested_bytes, book.live[i].second.requested);
    ASSERT_EQ(state.is_pending(model, state.live[i]), book.live[i].second.pending);
  }
  ASSERT_EQ(state.segments.size(), book.segments.size());
  for (size_t i = 0; i < book.segments.size(); ++i) {
    ASSERT_EQ(state.segments[i].address, book.segments[i].first);
    ASSERT_EQ(state.segments[i].size_bytes, book.segments[i].second);
  }
  ASSERT_EQ(state.holes.size(), book.holes.size());
  for (size_t i = 0; i < book.holes.size(); ++i) {
    ASSERT_EQ(state.holes[i].address, book.holes[i].first);
    ASSERT_EQ(state.holes[i].size_bytes, book.holes[i].second);
  }
}

// A long history with the toy's records at some of its events and at its peak.
struct History {
  History() : toy(AllocatorRules(), 51) {
    constexpr size_t kEvents = 30'000;
    std::mt19937 random(52);
    HistoryReplay replay(0, AllocatorRules());
    size_t fed = 0;
    size_t next_book = 0;
    uint64_t highest = 0;
    while (toy.events.size() < kEvents) {
      toy.random_step();
      for (; fed < toy.events.size(); ++fed) replay.apply(toy.events[fed]);
      const auto event = static_cast<uint32_t>(fed - 1);
      // Only at the last event of a step: the books have no other.
      if (fed >= next_book) {
        books[event] = book_of(toy);
        next_book = fed + 1 + random() % 500;
      }
      if (toy.totals.back().allocated > highest) {
        highest = toy.totals.back().allocated;
        peak = event;
        at_peak = book_of(toy);
      }
    }
    model = std::move(replay).finish();
  }

  ToyAllocator toy;
  AllocationHistory model;
  std::map<uint32_t, Book> books;
  uint32_t peak = 0;
  Book at_peak;
};

class LongHistory : public testing::Test {
 protected:
  static const History& history() {
    static const History made;  // takes a second
    return made;
  }
  const ToyAllocator& toy_ = history().toy;
  const AllocationHistory& model_ = history().model;
};

TEST_F(LongHistory, StatesAndHolesAreThoseOfTheBooks) {
  ASSERT_EQ(model_.event_count(), toy_.events.size());
  EXPECT_GE(model_.states.size(), 3U);
  for (const auto& [event, book] : history().books) {
    ASSERT_NO_FATAL_FAILURE(expect_book(model_, state_after(model_, event), book)) << event;
  }
}

TEST_F(LongHistory, StatesAroundKeyframesAgreeWithTheLivesOfAllocations) {
  for (const StateKeyframe& frame : model_.states) {
    for (const uint32_t event : {frame.event == 0 ? 0 : frame.event - 1, frame.event}) {
      std::map<uint64_t, uint32_t> alive;  // by address
      for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
        const Allocation& a = model_.allocations[i];
        if (a.birth <= event && a.death > event) alive[a.address] = i;
      }
      std::vector<uint32_t> expected;
      for (const auto& [address, i] : alive) expected.push_back(i);
      ASSERT_EQ(state_after(model_, event).live, expected) << event;
    }
  }
}

TEST_F(LongHistory, ThePeakIsTheFirstHighestAndHoldsTheBlocksOfTheBooks) {
  EXPECT_EQ(model_.allocated_peak.event, history().peak);
  EXPECT_EQ(model_.allocated_peak.bytes, toy_.totals[history().peak].allocated);
  EXPECT_EQ(model_.allocated_peak.time_ns, toy_.events[history().peak].time_ns);
  const MemoryState state = state_after(model_, history().peak);
  expect_book(model_, state, history().at_peak);
  uint64_t sum = 0;
  for (const uint32_t i : state.live) {
    if (model_.allocations[i].release > history().peak) sum += model_.allocations[i].block_bytes;
  }
  EXPECT_EQ(sum, model_.allocated_peak.bytes);
}

TEST_F(LongHistory, ExtremesOfAnyRangeAreThoseOfItsTotals) {
  const MinMaxPyramid pyramid(model_);
  EXPECT_EQ(model_.extremes.size(), MinMaxPyramid::nodes_for(model_.event_count()));
  std::mt19937 random(53);
  for (int round = 0; round < 200; ++round) {
    auto first = static_cast<uint32_t>(random() % toy_.totals.size());
    auto last = static_cast<uint32_t>(random() % toy_.totals.size());
    if (first > last) std::swap(first, last);
    Extremes expected = Extremes::nothing();
    for (uint32_t e = first; e <= last; ++e) {
      const MemoryTotals& t = toy_.totals[e];
      expected.include(CurveValues{t.allocated, t.requested, t.reserved});
    }
    const Extremes got = pyramid.extremes(first, last + 1);
    ASSERT_EQ(got.min, expected.min);
    ASSERT_EQ(got.max, expected.max);
  }
}

// A card with a framework, libraries and usage samples, all random.
TEST(LedgerSum, RecordedLinesAreExactAndTheRestIsThatOfTheReading) {
  std::mt19937_64 random(54);
  for (int round = 0; round < 20; ++round) {
    ToyAllocator toy(AllocatorRules(), 60 + static_cast<uint64_t>(round));
    while (toy.events.size() < 2'000) toy.random_step();
    HistoryReplay replay(0, AllocatorRules());
    for (const FrameworkEvent& event : toy.events) replay.apply(event);
    ProcessModel process;
    process.info.pid = 7;
    process.framework.push_back(std::move(replay).finish());
    const int64_t end = toy.events.back().time_ns;

    std::vector<DriverEvent> driver;
    for (uint64_t i = 1; i <= 40; ++i) {
      DriverEvent e{};
      e.operation = DriverOperation::kAllocate;
      e.kind = MemoryKind::kDevice;
      e.address = i << 40;
      e.size_bytes = 1 + random() % (1 << 24);
      e.time_ns = static_cast<int64_t>(random() % static_cast<uint64_t>(end));
      driver.push_back(e);
      if (i % 3 == 0) continue;
      e.operation = DriverOperation::kFree;
      e.time_ns += static_cast<int64_t>(1 + random() % 20'000);
      driver.push_back(e);
    }
    const std::vector<DriverEvent> rows = driver;
    int64_t first_allocation = INT64_MAX;
    for (const DriverEvent& e : rows) first_allocation = std::min(first_allocation, e.time_ns);
    process.driver = build_driver_model(std::move(driver));
    for (int64_t t = 500; t < end; t += 1 + static_cast<int64_t>(random() % 3'000)) {
      const uint64_t used = (uint64_t{1} << 34) + ((random() % 64) << 24);
      process.counters.push_back({t, used, 0, 0, CounterKind::kDeviceUsed});
      if (round % 2 == 0) continue;
      process.counters.push_back({t, 1 << 20, 7, 0, CounterKind::kProcessUsed});
      process.counters.push_back({t, (random() % 4) << 24, 8, 0, CounterKind::kProcessUsed});
    }

    for (int i = 0; i < 30; ++i) {
      const auto time = static_cast<int64_t>(random() % static_cast<uint64_t>(end));
      const Ledger ledger = ledger_at(process, 0, time);
      const auto torch_at = [&](int64_t then) {
        MemoryTotals torch;
        for (size_t e = 0; e < toy.events.size() && toy.events[e].time_ns <= then; ++e) {
          torch = toy.totals[e];
        }
        return torch;
      };
      const auto libraries_at = [&](int64_t then) {
        std::map<uint64_t, int64_t> alive;  // address -> bytes
        for (const DriverEvent& e : rows) {
          if (e.time_ns > then) continue;
          alive[e.address] =
              e.operation == DriverOperation::kAllocate ? static_cast<int64_t>(e.size_bytes) : 0;
        }
        int64_t sum = 0;
        for (const auto& [address, bytes] : alive) sum += bytes;
        return sum;
      };
      const auto recorded_at = [&](int64_t then) {
        return static_cast<int64_t>(torch_at(then).reserved) + libraries_at(then);
      };
      ASSERT_EQ(ledger.time_ns, time);
      int64_t sum = 0;
      std::map<std::string, int64_t> lines;
      for (const LedgerLine& line : ledger.lines) {
        sum += line.bytes;
        lines[line.owner] += line.bytes;
        ASSERT_GE(line.bytes, 0) << line.owner;
      }
      const MemoryTotals torch = torch_at(time);
      ASSERT_EQ(lines["torch.allocated"], static_cast<int64_t>(torch.allocated));
      ASSERT_EQ(lines["torch.pending"], static_cast<int64_t>(torch.active - torch.allocated));
      ASSERT_EQ(lines["torch.cached"], static_cast<int64_t>(torch.reserved - torch.active));
      ASSERT_EQ(lines["unknown"], libraries_at(time));
      if (!ledger.reading) {  // the readings are of the time after the first allocation
        ASSERT_LT(time, first_allocation);
        continue;
      }
      ASSERT_EQ(sum, static_cast<int64_t>(ledger.device_used_bytes));
      ASSERT_EQ(sum - recorded_at(time), static_cast<int64_t>(ledger.reading->used_bytes) -
                                             recorded_at(ledger.reading->time_ns));
    }
  }
}

}  // namespace
}  // namespace tidemark
