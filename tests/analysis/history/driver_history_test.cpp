// Checks the driver's memory over time against a pass over all allocations, and that ledgers add
// up.
#include "analysis/history/driver_history.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "analysis/insight/card/ledger.h"
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
