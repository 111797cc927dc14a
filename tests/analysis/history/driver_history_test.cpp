// Checks the driver's memory over time against a pass over all allocations, and that ledgers add
// up.
#include "analysis/history/driver_history.h"

#include <gtest/gtest.h>

#include <random>

#include "analysis/insight/ledger.h"
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

}  // namespace
}  // namespace tidemark
