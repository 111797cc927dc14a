// Sampling of programs that run for less than a second: the card, its processes, failures.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/capture_run.h"

namespace tidemark::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const std::string kHost = TIDEMARK_CAPTURE_HOST;

std::vector<Counter> samples_of(const TraceContents& trace, CounterKind kind, int64_t device = 0) {
  std::vector<Counter> samples;
  std::copy_if(trace.counters.begin(), trace.counters.end(), std::back_inserter(samples),
               [&](const Counter& c) { return c.kind == kind && c.device == device; });
  return samples;
}

uint64_t greatest(const std::vector<Counter>& samples) {
  uint64_t value = 0;
  for (const Counter& sample : samples) value = std::max(value, sample.value);
  return value;
}

TEST(CaptureSampling, AShortProgramIsInItsOwnProcessList) {
  CaptureRun run;
  const ScratchDirectory cards;
  const TraceContents trace = run.with("SIMGPU_DIR", cards.path()).run(kHost + " hold 30").trace();
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  const auto processes = rows_of<Process>(run.traces().at(0));
  const auto used = samples_of(trace, CounterKind::kProcessUsed);
  ASSERT_FALSE(used.empty());
  for (const Counter& sample : used) EXPECT_EQ(sample.subject, processes.at(0).pid);
  EXPECT_GE(greatest(used), 64 * kMiB);
  EXPECT_GE(greatest(samples_of(trace, CounterKind::kDeviceUsed)), 64 * kMiB);
}

OutOfMemory failure_of_a_short_program() {
  CaptureRun run;
  run.with("SIMGPU_MEMORY_MB", "2048").with("SIMGPU_CONTEXT_MB", "100").run(kHost + " fill 1500");
  EXPECT_EQ(run.output(), "alloc 2\n");
  const auto rows = rows_of<OutOfMemory>(run.traces().at(0));
  EXPECT_EQ(rows.size(), 1u);
  return rows.empty() ? OutOfMemory{} : rows[0];
}

// The card is read at the moment a call fails, unless the machine is so busy that the host would
// have to wait for it; hence the repetition.
TEST(CaptureSampling, AFailureKnowsTheCard) {
  OutOfMemory row{};
  for (int i = 0; i < 10 && row.device_total_bytes == 0; ++i) row = failure_of_a_short_program();
  EXPECT_EQ(row.requested_bytes, 1500 * kMiB);
  EXPECT_GE(row.device_total_bytes, 2048 * kMiB);
  EXPECT_GT(row.device_free_bytes, 0u);
  EXPECT_LE(row.device_free_bytes, (2048 - 100) * kMiB);
}

bool has_reading_between(const std::vector<Counter>& readings, int64_t from_ns, int64_t to_ns,
                         uint64_t at_least) {
  return std::any_of(readings.begin(), readings.end(), [&](const Counter& c) {
    return c.time_ns >= from_ns && c.time_ns <= to_ns && c.value >= at_least;
  });
}

// The peaks that were read while they lasted, of 5.
size_t peaks_read(const TraceContents& trace) {
  const auto readings = samples_of(trace, CounterKind::kDeviceUsed);
  std::vector<DriverEvent> events = trace.driver_events;
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  size_t read = 0;
  uint64_t high = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    if (events[i].kind != MemoryKind::kDevice || events[i].size_bytes <= high) continue;
    high = events[i].size_bytes;
    if (has_reading_between(readings, events[i].time_ns, events[i + 1].time_ns, high)) ++read;
  }
  return read;
}

// Regular readings are a second apart. On a busy machine a reading on request may come too late for
// a peak of 20 ms; hence the repetition.
TEST(CaptureSampling, EveryNewHighIsRead) {
  size_t most = 0;
  for (int i = 0; i < 10 && most < 5; ++i) {
    CaptureRun run;
    const TraceContents trace = run.with("TIDEMARK_NVML_HZ", "1").run(kHost + " peaks 20").trace();
    ASSERT_EQ(run.exit_status(), 0) << run.errors();
    most = std::max(most, peaks_read(trace));
    // One each, the first and last of the recording, and the regular ones.
    EXPECT_LE(samples_of(trace, CounterKind::kDeviceUsed).size(), 5u + 2u + 5u);
    EXPECT_FALSE(samples_of(trace, CounterKind::kReadingAtRest).empty());
  }
  EXPECT_EQ(most, 5u);
}

TEST(CaptureSampling, WithoutNvmlAFailureIsStillRecorded) {
  CaptureRun run;
  run.with("TIDEMARK_NVML_HZ", "0").run(kHost + " failures");
  EXPECT_EQ(rows_of<OutOfMemory>(run.traces().at(0)).size(), 2u);
}

TEST(CaptureSampling, ACardThatSharesTheHostsMemoryIsReadThroughTheDriver) {
  CaptureRun run;
  const TraceContents trace =
      run.with("SIMGPU_SHARED_MEMORY", "1").run(kHost + " hold 150").trace();
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_GE(greatest(samples_of(trace, CounterKind::kDeviceUsed)), 64 * kMiB);
  const auto said = std::count_if(trace.health.begin(), trace.health.end(), [&](const Health& row) {
    return trace.strings.at(row.detail).find("cuMemGetInfo") != std::string::npos;
  });
  EXPECT_EQ(said, 1);
  const auto contexts =
      std::count_if(trace.driver_events.begin(), trace.driver_events.end(),
                    [](const auto& e) { return e.operation == DriverOperation::kContextCreate; });
  EXPECT_EQ(contexts, 1);  // none is created for the query
}

TEST(CaptureSampling, OurOwnBuffersAreCountedOnEveryDevice) {
  CaptureRun run;
  run.with("SIMGPU_NO_PINNED_TRACING", "1").with("SIMGPU_DEVICES", "3");
  const TraceContents trace = run.run(kHost + " devices 3").trace();
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  for (int64_t device = 0; device < 3; ++device) {
    EXPECT_EQ(greatest(samples_of(trace, CounterKind::kOwnDevice, device)), 3u * 3'200'000u);
  }
  EXPECT_TRUE(samples_of(trace, CounterKind::kOwnDevice, 3).empty());
}

TEST(CaptureSampling, BuffersInHostMemoryTakeNoneOfTheDevice) {
  CaptureRun run;
  const TraceContents trace = run.with("SIMGPU_DEVICES", "2").run(kHost + " devices 2").trace();
  EXPECT_TRUE(samples_of(trace, CounterKind::kOwnDevice, 0).empty());
  EXPECT_TRUE(samples_of(trace, CounterKind::kOwnDevice, 1).empty());
}

}  // namespace
}  // namespace tidemark::test
