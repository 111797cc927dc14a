// Imports that are closed while the task thread asks for their size.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "injector/driver/objects.h"

namespace tidemark::injector {
namespace {

DriverEvent import_at(uint64_t address) {
  DriverEvent event{};
  event.address = address;
  return event;
}

TEST(PendingImports, AnImportIsTakenOnce) {
  PendingImports imports;
  ASSERT_TRUE(imports.add(import_at(0x1000)));
  PendingImports::Query query;
  ASSERT_TRUE(imports.take(query));
  EXPECT_EQ(query.event.address, 0x1000U);
  PendingImports::Query none;
  EXPECT_FALSE(imports.take(none));
  EXPECT_TRUE(imports.finish(query));
  EXPECT_FALSE(imports.take(none));
}

TEST(PendingImports, AnImportClosedBeforeTheQueryIsNotTaken) {
  PendingImports imports;
  imports.add(import_at(0x1000));
  imports.add(import_at(0x2000));
  imports.cancel(0x1000);
  PendingImports::Query query;
  ASSERT_TRUE(imports.take(query));
  EXPECT_EQ(query.event.address, 0x2000U);
  EXPECT_TRUE(imports.finish(query));
}

// The driver may have answered for other memory at the same address.
TEST(PendingImports, AnImportClosedDuringTheQueryHasNoSize) {
  PendingImports imports;
  imports.add(import_at(0x1000));
  PendingImports::Query query;
  ASSERT_TRUE(imports.take(query));
  imports.cancel(0x1000);
  imports.add(import_at(0x1000));  // opened again: the driver reuses addresses
  EXPECT_FALSE(imports.finish(query));
  ASSERT_TRUE(imports.take(query));
  EXPECT_TRUE(imports.finish(query));
}

TEST(PendingImports, ANewRecordingForgetsAQueryThatStillRuns) {
  PendingImports imports;
  imports.add(import_at(0x1000));
  PendingImports::Query query;
  ASSERT_TRUE(imports.take(query));
  imports.clear();
  EXPECT_FALSE(imports.finish(query));
}

TEST(PendingImports, EveryEntryCanBeUsedAgain) {
  PendingImports imports;
  for (uint64_t round = 0; round < 3; ++round) {
    uint64_t added = 0;
    while (imports.add(import_at(0x1000 * (added + 1)))) ++added;
    EXPECT_EQ(added, 256U);
    for (uint64_t i = 0; i < added; i += 2) imports.cancel(0x1000 * (i + 1));
    PendingImports::Query query;
    for (uint64_t i = 0; i < added / 2; ++i) {
      ASSERT_TRUE(imports.take(query));
      EXPECT_TRUE(imports.finish(query));
    }
    EXPECT_FALSE(imports.take(query));
  }
}

// Threads that close different imports at the same time do not hide them from each other.
TEST(PendingImports, ConcurrentCloses) {
  PendingImports imports;
  for (int round = 0; round < 2000; ++round) {
    imports.add(import_at(0x1000));
    imports.add(import_at(0x2000));
    std::atomic<int> ready{0};
    const auto close = [&](uint64_t address) {
      ready.fetch_add(1);
      while (ready.load() < 2) {
      }
      imports.cancel(address);
    };
    std::thread other(close, 0x2000);
    close(0x1000);
    other.join();
    PendingImports::Query query;
    ASSERT_FALSE(imports.take(query)) << "round " << round;
  }
}

}  // namespace
}  // namespace tidemark::injector
