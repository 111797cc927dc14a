// Checks the driver's memory over time against a pass over all allocations, and that ledgers add
// up.
#include "analysis/history/driver_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "analysis/insight/card/ledger.h"
#include "analysis/insight/card/limit.h"
#include "analysis/load/trace_model.h"

namespace tidemark {
namespace {

DriverModel random_model(uint32_t seed) {
  std::minstd_rand random(seed);
  DriverModel model;
  int64_t time = 1000;
  for (int i = 0; i < 400; ++i) {
    DriverAllocation a;
    time += static_cast<int64_t>(random() % 3);  // several share an instant
    a.birth_ns = time;
    if (random() % 4 != 0) a.death_ns = time + static_cast<int64_t>(random() % 200);
    a.size_bytes = 1 + random() % 5000;
    a.owner = static_cast<uint32_t>(random() % 5);
    a.device = static_cast<int64_t>(random() % 2);
    a.kind = static_cast<MemoryKind>(random() % kMemoryKinds);
    a.flags = random() % 5 == 0 ? kDriverRemote : random() % 5 == 0 ? kDriverHostLocated : 0;
    model.allocations.push_back(a);
  }
  return model;
}

TEST(DriverHistory, EqualsAPassOverAllAllocations) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const DriverModel model = random_model(seed);
    const DriverHistory history(model, 1);
    for (int64_t time = 900; time < 2200; time += 7) {
      const DriverState want = driver_state_at(model, 1, time);
      const DriverState got = history.state_at(time);
      ASSERT_EQ(got.card_bytes, want.card_bytes) << "seed " << seed << ", time " << time;
      ASSERT_EQ(got.code_bytes, want.code_bytes);
      ASSERT_EQ(got.by_kind, want.by_kind);
      ASSERT_EQ(got.card_by_owner, want.card_by_owner);
    }
  }
}

TEST(DriverModel, OnlyOutOfMemoryIsAFailure) {
  constexpr uint32_t kErrorOutOfMemory = 2;
  constexpr uint32_t kErrorNotPermitted = 800;
  std::vector<DriverEvent> events;
  for (const uint32_t result : {kErrorNotPermitted, kErrorOutOfMemory, 0U}) {
    DriverEvent e{};
    e.operation = DriverOperation::kCreate;
    e.kind = MemoryKind::kVirtual;
    e.handle = 1;
    e.size_bytes = 100 + result;
    e.result = result;
    events.push_back(e);
  }
  const DriverModel model = build_driver_model(std::move(events));
  ASSERT_EQ(model.failures.size(), 1u);
  EXPECT_EQ(model.failures[0].requested_bytes, 102u);
  ASSERT_EQ(model.allocations.size(), 1u);
  EXPECT_EQ(model.allocations[0].size_bytes, 100u);
}

DriverEvent event_of(int64_t time_ns, DriverOperation operation, MemoryKind kind, uint64_t id,
                     uint64_t bytes, uint32_t context) {
  DriverEvent e{};
  e.time_ns = time_ns;
  e.operation = operation;
  e.kind = kind;
  e.address = id;
  e.handle = id;
  e.size_bytes = bytes;
  e.context = context;
  return e;
}

// Two contexts with memory of their own; the first is destroyed at 20, the second at 30.
DriverModel model_of_two_contexts() {
  using Op = DriverOperation;
  using Kind = MemoryKind;
  return build_driver_model({
      event_of(1, Op::kContextCreate, Kind::kContext, 0xa, 0, 1),
      event_of(2, Op::kContextCreate, Kind::kContext, 0xb, 0, 2),
      event_of(3, Op::kAllocate, Kind::kDevice, 0x100, 1, 1),
      event_of(4, Op::kAllocate, Kind::kArray, 0x200, 2, 1),
      event_of(5, Op::kAllocate, Kind::kStreamOrdered, 0x300, 4, 1),
      event_of(6, Op::kCreate, Kind::kVirtual, 0x400, 8, 1),
      event_of(7, Op::kAllocate, Kind::kPinned, 0x500, 16, 1),
      event_of(8, Op::kModuleLoad, Kind::kCode, 0x600, 32, 1),
      event_of(9, Op::kAllocate, Kind::kDevice, 0x700, 64, 2),
      event_of(20, Op::kContextDestroy, Kind::kContext, 0xa, 0, 1),
      event_of(30, Op::kContextDestroy, Kind::kContext, 0xb, 0, 2),
      event_of(40, Op::kContextCreate, Kind::kContext, 0xa, 0, 3),
      event_of(41, Op::kAllocate, Kind::kDevice, 0x100, 70, 3),
  });
}

TEST(DriverModel, MemoryEndsWithItsContext) {
  const DriverModel model = model_of_two_contexts();
  EXPECT_EQ(driver_state_at(model, 0, 19).card_bytes, 1U + 2 + 4 + 8 + 64);
  EXPECT_EQ(driver_state_at(model, 0, 20).card_bytes, 4U + 8 + 64) << "pools have the other one";
  EXPECT_EQ(driver_state_at(model, 0, 20).by_kind[static_cast<size_t>(MemoryKind::kPinned)], 0U);
  EXPECT_EQ(driver_state_at(model, 0, 20).code_bytes, 0U);
  EXPECT_EQ(driver_state_at(model, 0, 30).card_bytes, 8U) << "VMM memory outlives all contexts";
  EXPECT_EQ(driver_state_at(model, 0, 41).card_bytes, 8U + 70);
  EXPECT_EQ(model.devices.at(0).card_peak.bytes, 1U + 2 + 4 + 8 + 64);
  EXPECT_EQ(model.unknown_frees, 0U);
}

TEST(LedgerSource, DestroyedContextsAndTheirPoolsAreGone) {
  ProcessModel process;
  process.driver = model_of_two_contexts();
  process.counters.push_back({12, 100, 1, 0, CounterKind::kPoolReserved});
  process.counters.push_back({15, 5000, 0, 0, CounterKind::kDeviceUsed});
  process.counters.push_back({15, 0, 0, 0, CounterKind::kReadingAtRest});
  process.counters.push_back({35, 8, 0, 0, CounterKind::kDeviceUsed});
  process.counters.push_back({35, 0, 0, 0, CounterKind::kReadingAtRest});
  const LedgerSource source(process, 0);
  const auto line = [&](int64_t time_ns, const std::string& owner) {
    for (const LedgerLine& l : source.at(time_ns).lines) {
      if (l.owner == owner) return l.bytes;
    }
    return int64_t{0};
  };
  EXPECT_EQ(line(15, "pool.cached"), 96);
  EXPECT_EQ(line(15, "context"), 5000 - 100 - 1 - 2 - 8 - 64);
  EXPECT_EQ(line(35, "pool.cached"), 0);
  EXPECT_EQ(line(35, "context"), 0);
  EXPECT_EQ(source.at(35).device_used_bytes, 8U);
  EXPECT_EQ(line(42, "pool.cached"), 0) << "of an earlier context";
}

// 2 GiB of PyTorch, which is not recorded as such here, 1 GiB of a library for a moment between two
// lists, and another process that holds 9 GiB when this one holds little and 1 GiB later.
TEST(Limit, AnotherCardLeavesRoomForWhatThisProcessNeedsOutsidePyTorch) {
  using Op = DriverOperation;
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  constexpr int64_t kMs = 1'000'000;
  const auto left = [](const ProcessModel& process, uint64_t card) {
    return limit_on_card(process, 0, card);
  };
  ProcessModel process;
  EXPECT_EQ(left(process, 24 * kGiB).bytes, 24 * kGiB - kContextBytes);
  EXPECT_TRUE(need_outside_torch(process, 0).is_assumed);
  process.info.pid = 42;
  process.driver = build_driver_model({
      event_of(1 * kMs, Op::kContextCreate, MemoryKind::kContext, 0xa, 0, 1),
      event_of(600 * kMs, Op::kAllocate, MemoryKind::kDevice, 0x100, kGiB, 1),
      event_of(650 * kMs, Op::kFree, MemoryKind::kDevice, 0x100, 0, 1),
  });
  for (int64_t time = 100 * kMs; time < 1'500 * kMs; time += 200 * kMs) {
    const uint64_t other = time < 500 * kMs ? 9 * kGiB : kGiB;
    process.counters.push_back({time, 500 * kMiB + other, 0, 0, CounterKind::kDeviceUsed});
    process.counters.push_back({time, 500 * kMiB, 42, 0, CounterKind::kProcessUsed});
    process.counters.push_back({time, other, 43, 0, CounterKind::kProcessUsed});
  }
  const NeedOutsideTorch need = need_outside_torch(process, 0);
  EXPECT_EQ(need.bytes, kGiB + 500 * kMiB);
  EXPECT_FALSE(need.is_assumed);
  EXPECT_TRUE(need.leaves_others);
  EXPECT_EQ(left(process, 4 * kGiB).bytes, 4 * kGiB - kGiB - 500 * kMiB);
  EXPECT_EQ(left(process, kGiB).bytes, 0U);
  EXPECT_TRUE(left(process, kGiB).is_known());
  // Where NVML does not list the processes, more than a context is not taken for this one's.
  std::erase_if(process.counters,
                [](const Counter& c) { return c.kind == CounterKind::kProcessUsed; });
  EXPECT_EQ(need_outside_torch(process, 0).bytes, kGiB + kContextBytes);
}

// NVML may list nobody while a context lives for a few milliseconds.
TEST(LedgerSource, AShortContextOnAnUnusedCardIsNotShared) {
  using Op = DriverOperation;
  constexpr uint64_t kContextBytes = uint64_t{448} << 20;
  ProcessModel process;
  process.driver = build_driver_model({
      event_of(1'000'000, Op::kContextCreate, MemoryKind::kContext, 0xa, 0, 1),
      event_of(2'000'000, Op::kAllocate, MemoryKind::kDevice, 0x100, 256, 1),
      event_of(3'000'000, Op::kFree, MemoryKind::kDevice, 0x100, 0, 1),
      event_of(4'000'000, Op::kContextDestroy, MemoryKind::kContext, 0xa, 0, 1),
  });
  process.counters = {{2'500'000, kContextBytes + 256, 0, 0, CounterKind::kDeviceUsed},
                      {2'500'000, 0, 0, 0, CounterKind::kReadingAtRest},
                      {50'000'000, 0, 0, 0, CounterKind::kDeviceUsed},
                      {50'000'000, 0, 0, 0, CounterKind::kReadingAtRest}};
  const Ledger ledger = LedgerSource(process, 0).at(2'000'000);
  EXPECT_FALSE(ledger.shared_card);
  ASSERT_EQ(ledger.lines.size(), 3U);
  EXPECT_EQ(ledger.lines[1].owner, "context");
  EXPECT_EQ(ledger.lines[1].bytes, static_cast<int64_t>(kContextBytes));
  EXPECT_EQ(ledger.lines[2].bytes, 0) << ledger.lines[2].owner;
  process.counters[2].value = process.counters[0].value;  // what remains is somebody else's
  EXPECT_TRUE(LedgerSource(process, 0).at(2'000'000).shared_card);
}

// A thread that reads the card may wait for a processor before it looks at the clock: an allocation
// made meanwhile seems older than the reading, which lacks it.
TEST(LedgerSource, AReadingThatWasHeldUpDoesNotShrinkTheContext) {
  using Op = DriverOperation;
  constexpr int64_t kMs = 1'000'000;
  constexpr uint64_t kContextBytes = uint64_t{448} << 20;
  constexpr uint64_t kBlockBytes = uint64_t{100} << 20;
  ProcessModel process;
  process.driver = build_driver_model({
      event_of(1 * kMs, Op::kContextCreate, MemoryKind::kContext, 0xa, 0, 1),
      event_of(360 * kMs, Op::kAllocate, MemoryKind::kDevice, 0x100, kBlockBytes, 1),
  });
  for (int64_t time = 100 * kMs; time <= 900 * kMs; time += 100 * kMs) {
    const bool held_up = time == 400 * kMs;
    const bool has_block = time > 400 * kMs;
    process.counters.push_back(
        {time, kContextBytes + (has_block ? kBlockBytes : 0), 0, 0, CounterKind::kDeviceUsed});
    if (!held_up) process.counters.push_back({time, 0, 0, 0, CounterKind::kReadingAtRest});
  }
  const LedgerSource source(process, 0);
  for (int64_t time = 150 * kMs; time <= 900 * kMs; time += 50 * kMs) {
    const Ledger ledger = source.at(time);
    const auto context = std::find_if(ledger.lines.begin(), ledger.lines.end(),
                                      [](const LedgerLine& l) { return l.owner == "context"; });
    ASSERT_NE(context, ledger.lines.end());
    EXPECT_EQ(context->bytes, static_cast<int64_t>(kContextBytes)) << "at " << time;
  }
}

TEST(LedgerSource, LinesAddUpToWhatTheCardSays) {
  std::minstd_rand random(7);
  ProcessModel process;
  process.driver = random_model(3);
  process.info.pid = 42;
  for (int64_t time = 950; time < 2100; time += 50) {
    process.counters.push_back({time, 3'000'000 + random() % 1000, 0, 1, CounterKind::kDeviceUsed});
    process.counters.push_back({time, 2'000'000, 42, 1, CounterKind::kProcessUsed});
    process.counters.push_back({time, random() % 9000, 43, 1, CounterKind::kProcessUsed});
    process.counters.push_back({time, random() % 900, 1, 1, CounterKind::kPoolReserved});
    process.counters.push_back({time, random() % 900, 2, 1, CounterKind::kPoolReserved});
  }
  const LedgerSource source(process, 1);
  for (int64_t time = 940; time < 2060; time += 13) {
    const Ledger ledger = source.at(time);
    ASSERT_NE(ledger.device_used_bytes, 0U);
    int64_t sum = 0;
    for (const LedgerLine& line : ledger.lines) sum += line.bytes;
    ASSERT_EQ(sum, static_cast<int64_t>(ledger.device_used_bytes)) << "at " << time;
    ASSERT_EQ(ledger.lines.back().owner, "unexplained");
    ASSERT_FALSE(ledger.shared_card);
    ASSERT_EQ(ledger.time_ns, time);
    // Nobody's name is known here.
    int64_t unknown = 0;
    for (const LedgerLine& line : ledger.lines) unknown += line.owner == "unknown" ? line.bytes : 0;
    const uint64_t recorded = driver_state_at(process.driver, 1, time).card_bytes;
    ASSERT_EQ(unknown, static_cast<int64_t>(recorded));
  }
}

// NVML lists the processes less often than it reads the card, and another process comes, grows and
// goes between the lists.
TEST(LedgerSource, OtherProcessesAreThoseOfTheReading) {
  constexpr uint64_t kOwnBytes = 1'000'000;
  constexpr uint64_t kContextBytes = 500'000;
  constexpr uint64_t kFirmwareBytes = 40'000;
  constexpr int64_t kMs = 1'000'000;
  std::minstd_rand random(7);
  ProcessModel process;
  DriverEvent e{};
  e.operation = DriverOperation::kAllocate;
  e.kind = MemoryKind::kDevice;
  e.device = 1;
  e.address = 4096;
  e.size_bytes = kOwnBytes;
  process.driver = build_driver_model({e});
  process.info.pid = 42;
  std::map<int64_t, int64_t> others;
  for (int64_t time = 20 * kMs; time < 9'000 * kMs; time += 10 * kMs) {
    const uint64_t other = time < 2'000 * kMs ? 300'000 : random() % 9'000'000;
    const auto count = [&](uint64_t value, uint64_t subject, CounterKind kind) {
      process.counters.push_back({time, value, subject, 1, kind});
    };
    if (time % (100 * kMs) == 0) {
      count(kOwnBytes + kContextBytes + kFirmwareBytes + other, 0, CounterKind::kDeviceUsed);
      others[time] = static_cast<int64_t>(other);
    }
    if (time % (250 * kMs) == 20 * kMs) {
      count(kOwnBytes + kContextBytes, 42, CounterKind::kProcessUsed);
      count(other, 43, CounterKind::kProcessUsed);
    }
  }
  const LedgerSource source(process, 1);
  for (int64_t time = 30 * kMs; time < 8'000 * kMs; time += 13 * kMs) {
    const Ledger ledger = source.at(time);
    ASSERT_TRUE(ledger.reading);
    std::map<std::string, int64_t> lines;
    for (const LedgerLine& line : ledger.lines) lines[line.owner] += line.bytes;
    ASSERT_EQ(lines["other_processes"], others[ledger.reading->time_ns]) << "at " << time;
    ASSERT_EQ(lines["context"], static_cast<int64_t>(kContextBytes + kFirmwareBytes));
    ASSERT_EQ(lines["unexplained"], 0);
  }
}

}  // namespace
}  // namespace tidemark
