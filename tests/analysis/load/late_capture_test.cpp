// Recordings that began after the program had been running: the memory that existed before.
#include <gtest/gtest.h>

#include <map>

#include "analysis/history/history_replay.h"
#include "analysis/insight/card/ledger.h"
#include "analysis/load/trace_model.h"

namespace tidemark {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int64_t kSecond = 1'000'000'000;

DriverEvent driver(int64_t seconds, DriverOperation operation, MemoryKind kind, uint64_t address,
                   uint64_t mib, uint32_t flags = 0) {
  DriverEvent e{};
  e.time_ns = seconds * kSecond;
  e.operation = operation;
  e.kind = kind;
  e.address = address;
  e.size_bytes = mib * kMiB;
  e.flags = flags;
  return e;
}

DriverEvent context() {
  return driver(0, DriverOperation::kContextCreate, MemoryKind::kContext, 0, 0, kDriverSeeded);
}

ProcessModel process_of(std::vector<DriverEvent> events, std::vector<uint64_t> used_mib) {
  ProcessModel p;
  p.info.pid = 7;
  p.driver = build_driver_model(std::move(events));
  for (size_t i = 0; i < used_mib.size(); ++i) {
    const auto time = static_cast<int64_t>(i) * kSecond;
    p.counters.push_back({time, used_mib[i] * kMiB, 0, 0, CounterKind::kDeviceUsed});
    p.counters.push_back({time, used_mib[i] * kMiB, 7, 0, CounterKind::kProcessUsed});
  }
  return p;
}

std::map<std::string, int64_t> lines_at(const ProcessModel& p, int64_t seconds) {
  const Ledger ledger = ledger_at(p, 0, seconds * kSecond);
  std::map<std::string, int64_t> lines;
  int64_t sum = 0;
  for (const LedgerLine& line : ledger.lines) {
    lines[line.owner] += line.bytes / static_cast<int64_t>(kMiB);
    sum += line.bytes;
  }
  EXPECT_EQ(sum, static_cast<int64_t>(ledger.device_used_bytes));
  return lines;
}

TEST(LateCapture, PreAttachMemoryOnlyShrinks) {
  const ProcessModel p = process_of(
      {context(), driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x1000, 100),
       // Of memory whose allocation was not recorded.
       driver(3, DriverOperation::kFree, MemoryKind::kDevice, 0x9000, 0)},
      {800, 900, 900, 700, 750});
  using Lines = std::map<std::string, int64_t>;
  EXPECT_EQ(lines_at(p, 0), (Lines{{"pre_attach", 800}, {"unexplained", 0}}));
  EXPECT_EQ(lines_at(p, 2), (Lines{{"pre_attach", 800}, {"unknown", 100}, {"unexplained", 0}}));
  EXPECT_EQ(lines_at(p, 3), (Lines{{"pre_attach", 600}, {"unknown", 100}, {"unexplained", 0}}));
  EXPECT_EQ(lines_at(p, 4), (Lines{{"pre_attach", 600}, {"unknown", 100}, {"unexplained", 50}}));
  EXPECT_EQ(p.driver.unknown_frees, 1u);
}

// The same samples with a context that was created during the recording.
TEST(LateCapture, AContextOfTheRecordingIsNotPreAttach) {
  DriverEvent own = context();
  own.flags = 0;
  const ProcessModel p = process_of(
      {own, driver(0, DriverOperation::kAllocate, MemoryKind::kDevice, 0x1000, 100)}, {900, 900});
  const auto lines = lines_at(p, 1);
  EXPECT_EQ(lines.count("pre_attach"), 0u);
  EXPECT_EQ(lines.at("context"), 800);
}

// The segment was allocated after CUPTI was on and before the framework's state was read: both
// report it.
TEST(LateCapture, ASegmentReportedTwiceCountsOnce) {
  const ProcessModel p = process_of(
      {context(), driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x1000, 20),
       driver(2, DriverOperation::kAllocate, MemoryKind::kDevice, 0x1000, 20, kDriverSeeded),
       driver(2, DriverOperation::kAllocate, MemoryKind::kDevice, 0x9000, 40, kDriverSeeded),
       driver(3, DriverOperation::kFree, MemoryKind::kDevice, 0x9000, 0)},
      {});
  EXPECT_EQ(driver_state_at(p.driver, 0, 2 * kSecond).card_bytes, 60 * kMiB);
  EXPECT_EQ(driver_state_at(p.driver, 0, 3 * kSecond).card_bytes, 20 * kMiB);
  EXPECT_EQ(p.driver.unknown_frees, 0u);
}

TEST(LateCapture, PartsOfAnExpandableSegmentAreUnmapped) {
  constexpr uint64_t kBase = uint64_t{1} << 40;
  const auto unmap = [&](int64_t seconds, uint64_t at_mib, uint64_t mib) {
    return driver(seconds, DriverOperation::kUnmap, MemoryKind::kVirtual, kBase + at_mib * kMiB,
                  mib);
  };
  const ProcessModel p = process_of(
      {context(),
       driver(1, DriverOperation::kAllocate, MemoryKind::kVirtual, kBase, 100, kDriverSeeded),
       unmap(2, 40, 20), unmap(3, 0, 10), unmap(4, 80, 20), unmap(5, 10, 30), unmap(6, 60, 20)},
      {});
  const uint64_t left[] = {100, 80, 70, 50, 20, 0};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(driver_state_at(p.driver, 0, (i + 1) * kSecond).card_bytes / kMiB,
              left[static_cast<size_t>(i)])
        << i;
  }
}

FrameworkEvent torch_event(int64_t time_ns, FrameworkAction action, uint64_t address,
                           uint64_t mib) {
  FrameworkEvent e{};
  e.time_ns = time_ns;
  e.action = action;
  e.address = address;
  e.size_bytes = mib * kMiB;
  return e;
}

AllocationHistory model_of(const std::vector<FrameworkEvent>& events) {
  HistoryReplay replay(0, AllocatorRules());
  for (const FrameworkEvent& event : events) replay.apply(event);
  return std::move(replay).finish();
}

// Between the driver's allocation of a segment and the allocator's report of it.
TEST(LateCapture, ASegmentThatIsNotYetReportedIsCached) {
  constexpr int64_t kWay = 20'000;
  Dictionary names;
  const uint32_t torch = names.add_string("torch");
  std::vector<DriverEvent> events = {
      context(), driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x100000, 20),
      driver(2, DriverOperation::kAllocate, MemoryKind::kDevice, 0x9000000, 12),
      // Torch's, but not a segment: it stays "torch.other".
      driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x90000000, 3)};
  for (DriverEvent& e : events) e.owner = torch;
  ProcessModel p = process_of(std::move(events), {800, 823, 835, 835});
  p.names = std::move(names);
  p.framework.push_back(
      model_of({torch_event(kSecond - kWay, FrameworkAction::kSegmentAlloc, 0x100000, 20),
                torch_event(kSecond - kWay, FrameworkAction::kAlloc, 0x100000, 8),
                torch_event(2 * kSecond + kWay, FrameworkAction::kSegmentAlloc, 0x9000000, 12)}));
  using Lines = std::map<std::string, int64_t>;
  const auto lines = [](int64_t cached, int64_t other) {
    return Lines{{"pre_attach", 800},
                 {"torch.allocated", 8},
                 {"torch.cached", cached},
                 {"torch.other", other},
                 {"unexplained", 0}};
  };
  EXPECT_EQ(lines_at(p, 2), lines(24, 3));
  EXPECT_EQ(lines_at(p, 3), lines(24, 3));
}

TEST(LateCapture, PagesOfAnExpandableSegmentThatAreNotYetReportedAreCached) {
  constexpr int64_t kWay = 20'000;
  constexpr uint64_t kBase = uint64_t{1} << 40;
  Dictionary names;
  const uint32_t torch = names.add_string("torch");
  const auto page = [&](DriverOperation operation, uint64_t handle, uint64_t address) {
    DriverEvent e = driver(2, operation, MemoryKind::kVirtual, address, 20);
    e.handle = handle;
    return e;
  };
  std::vector<DriverEvent> events = {context(),
                                     page(DriverOperation::kCreate, 1, 0),
                                     page(DriverOperation::kCreate, 2, 0),
                                     page(DriverOperation::kMap, 1, kBase),
                                     page(DriverOperation::kMap, 2, kBase + 20 * kMiB),
                                     page(DriverOperation::kCreate, 3, 0),  // of another use
                                     page(DriverOperation::kMap, 3, kBase / 2)};
  for (DriverEvent& e : events) e.owner = torch;
  ProcessModel p = process_of(std::move(events), {800, 800, 860, 860});
  p.names = std::move(names);
  p.framework.push_back(
      model_of({torch_event(kSecond, FrameworkAction::kSegmentMap, kBase - 20 * kMiB, 20),
                torch_event(2 * kSecond + kWay, FrameworkAction::kSegmentMap, kBase, 40)}));
  EXPECT_EQ(lines_at(p, 2).at("torch.cached"), 60);
  EXPECT_EQ(lines_at(p, 3).at("torch.cached"), 60);
}

// A reading between the driver's release of a segment and the allocator's report of it.
TEST(LateCapture, ASegmentThatIsNotYetReportedAsFreedDoesNotShrinkTheContext) {
  constexpr int64_t kWay = 20'000;
  Dictionary names;
  const uint32_t torch = names.add_string("torch");
  DriverEvent own = context();
  own.flags = 0;
  std::vector<DriverEvent> events = {
      own, driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x100000, 20),
      driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x9000000, 12),
      driver(2, DriverOperation::kFree, MemoryKind::kDevice, 0x9000000, 0)};
  for (DriverEvent& e : events) e.owner = torch;
  ProcessModel p = process_of(std::move(events), {448, 480, 468, 468});
  for (int64_t second = 0; second < 4; ++second) {
    p.counters.push_back({second * kSecond, 0, 0, 0, CounterKind::kReadingAtRest});
  }
  p.names = std::move(names);
  p.framework.push_back(
      model_of({torch_event(kSecond - kWay, FrameworkAction::kSegmentAlloc, 0x100000, 20),
                torch_event(kSecond - kWay, FrameworkAction::kAlloc, 0x100000, 8),
                torch_event(kSecond - kWay, FrameworkAction::kSegmentAlloc, 0x9000000, 12),
                torch_event(2 * kSecond + kWay, FrameworkAction::kSegmentFree, 0x9000000, 12)}));
  for (const int64_t second : {1, 3}) {
    const auto lines = lines_at(p, second);
    EXPECT_EQ(lines.at("context"), 448) << second;
    EXPECT_EQ(lines.at("unexplained"), 0) << second;
  }
}

// Without the bridge: blocks in earlier segments that were not recorded.
TEST(LateCapture, BlocksInUnknownSegmentsLeaveNothingNegative) {
  ProcessModel p = process_of({context()}, {800, 800, 800});
  p.framework.push_back(model_of({torch_event(kSecond, FrameworkAction::kAlloc, 0x100000, 30)}));
  const auto lines = lines_at(p, 2);
  EXPECT_EQ(lines.at("torch.allocated"), 30);
  EXPECT_EQ(lines.at("torch.cached"), 0);
  EXPECT_EQ(lines.at("pre_attach"), 770);
  EXPECT_EQ(lines.at("unexplained"), 0);
}

// Such a reading was taken before the driver gave out what is already recorded.
TEST(LateCapture, AReadingThatIsTooSmallIsNotUsed) {
  ProcessModel p = process_of(
      {context(), driver(1, DriverOperation::kAllocate, MemoryKind::kDevice, 0x1000, 100)},
      {40, 40, 140, 140});
  EXPECT_EQ(lines_at(p, 1).at("unexplained"), 0);
  EXPECT_EQ(ledger_at(p, 0, kSecond).reading->time_ns, 0);
  EXPECT_EQ(ledger_at(p, 0, kSecond + 1).reading->time_ns, 2 * kSecond);
}

}  // namespace
}  // namespace tidemark
