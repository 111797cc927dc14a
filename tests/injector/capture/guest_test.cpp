// The library in unusual hosts: other tools, missing libraries, child processes, repeated starts.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/capture_run.h"

namespace tidemark::test {
namespace {

const std::string kHost = TIDEMARK_CAPTURE_HOST;

bool has_health(const TraceContents& trace, HealthKind kind, const std::string& part) {
  return std::any_of(trace.health.begin(), trace.health.end(), [&](const Health& row) {
    return row.kind == kind && trace.strings.at(row.detail).find(part) != std::string::npos;
  });
}

bool has_counter(const TraceContents& trace, CounterKind kind) {
  return std::any_of(trace.counters.begin(), trace.counters.end(),
                     [&](const Counter& row) { return row.kind == kind; });
}

size_t allocations(const TraceContents& trace) {
  return static_cast<size_t>(std::count_if(
      trace.driver_events.begin(), trace.driver_events.end(),
      [](const auto& event) { return event.operation == DriverOperation::kAllocate; }));
}

TEST(CaptureGuest, PrintsNothingWhenAllIsWell) {
  CaptureRun run;
  run.run(kHost + " hold 1");
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(run.output(), "");
  EXPECT_EQ(run.errors(), "");
}

TEST(CaptureGuest, AnotherToolHoldsCupti) {
  CaptureRun run;
  run.with("TIDEMARK_CHAIN", TIDEMARK_CAPTURE_RIVAL).with("RIVAL_SUBSCRIBES", "1");
  const TraceContents trace = run.run(kHost + " hold 3000").trace();
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(run.complaints(), 1u) << run.errors();
  EXPECT_NE(run.errors().find("holds CUPTI"), std::string::npos) << run.errors();
  EXPECT_TRUE(trace.driver_events.empty());
  EXPECT_TRUE(has_health(trace, HealthKind::kSourceMissing, "holds CUPTI"));
  EXPECT_TRUE(has_counter(trace, CounterKind::kDeviceUsed)) << "NVML still works";
}

std::string setting(const TraceContents& trace, const std::string& key) {
  for (const Setting& row : trace.settings) {
    if (trace.strings.at(row.key) == key) return trace.strings.at(row.value);
  }
  return "";
}

constexpr int kLaunches = 7;
const std::string kKernels = kHost + " kernels " + std::to_string(kLaunches);

// From CUDA 13.3 on.
TEST(CaptureGuest, ToolsThatShareCuptiBothGetEverything) {
  CaptureRun run;
  run.with("SIMGPU_CUPTI_SHARED", "1").with("RIVAL_SUBSCRIBES", "shared");
  run.with("TIDEMARK_CHAIN", TIDEMARK_CAPTURE_RIVAL);
  const TraceContents trace = run.run(kKernels).trace();
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(run.errors(), "");
  EXPECT_EQ(run.output(), "rival started\nrival: 2 callbacks, 7 kernels\n");
  EXPECT_EQ(allocations(trace), 1u);
  EXPECT_EQ(trace.kernels.size(), static_cast<size_t>(kLaunches));
  EXPECT_EQ(setting(trace, "cupti_subscription"), "shared with other tools");
}

// The library has the calls, the driver does not allow them: as before 13.3.
TEST(CaptureGuest, CuptiThatCannotBeSharedIsUsedAlone) {
  for (const char* const how : {"refused", "0"}) {
    CaptureRun run;
    run.with("SIMGPU_CUPTI_SHARED", how);
    const TraceContents trace = run.run(kKernels).trace();
    EXPECT_EQ(run.errors(), "");
    EXPECT_EQ(allocations(trace), 1u);
    EXPECT_EQ(trace.kernels.size(), static_cast<size_t>(kLaunches));
    EXPECT_EQ(setting(trace, "cupti_subscription"),
              "alone; other tools cannot use CUPTI meanwhile");
  }
}

// A tool that uses the old calls keeps CUPTI for itself, whatever we could do.
TEST(CaptureGuest, ASharedCuptiIsNotTakenFromAToolThatHoldsItAlone) {
  CaptureRun run;
  run.with("SIMGPU_CUPTI_SHARED", "1").with("RIVAL_SUBSCRIBES", "1");
  const TraceContents trace =
      run.with("TIDEMARK_CHAIN", TIDEMARK_CAPTURE_RIVAL).run(kHost + " hold 1").trace();
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(run.complaints(), 1u) << run.errors();
  EXPECT_TRUE(has_health(trace, HealthKind::kSourceMissing, "holds CUPTI"));
}

TEST(CaptureGuest, AChainedLibraryIsStartedAndBothWork) {
  CaptureRun run;
  const TraceContents trace =
      run.with("TIDEMARK_CHAIN", TIDEMARK_CAPTURE_RIVAL).run(kHost + " hold 1").trace();
  EXPECT_EQ(run.output(), "rival started\n");
  EXPECT_EQ(run.errors(), "");
  EXPECT_EQ(allocations(trace), 2u);
}

TEST(CaptureGuest, AMissingOrCircularChainDoesNoHarm) {
  CaptureRun nowhere;
  EXPECT_EQ(
      allocations(nowhere.with("TIDEMARK_CHAIN", "/no/such.so").run(kHost + " hold 1").trace()),
      2u);
  EXPECT_EQ(nowhere.complaints(), 1u) << nowhere.errors();
  CaptureRun back;
  EXPECT_EQ(
      allocations(back.with("TIDEMARK_CHAIN", TIDEMARK_INJECTOR).run(kHost + " hold 1").trace()),
      2u);
  EXPECT_EQ(back.errors(), "");
}

// The simulated driver without the simulated CUPTI. A machine with a CUDA toolkit has a real CUPTI,
// which cannot work with a simulated driver: for the host both cases are the same.
TEST(CaptureGuest, WithoutCuptiTheJobGoesOnAndTotalsAreRecorded) {
  ScratchDirectory libraries;
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    std::filesystem::create_symlink(std::string(TIDEMARK_SIMGPU_LIBRARIES) + "/" + name,
                                    libraries / name);
  }
  CaptureRun run;
  const TraceContents trace =
      run.with("LD_LIBRARY_PATH", libraries.path()).run(kHost + " hold 3000").trace();
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(run.complaints(), 1u) << run.errors();
  EXPECT_TRUE(trace.driver_events.empty());
  EXPECT_TRUE(has_health(trace, HealthKind::kSourceMissing, "cupti:"));
  EXPECT_TRUE(has_counter(trace, CounterKind::kDeviceUsed));
}

TEST(CaptureGuest, WithoutNvmlDriverEventsAreRecorded) {
  ScratchDirectory libraries;
  for (const char* name : {"libcuda.so.1", "libcupti.so.13"}) {
    std::filesystem::create_symlink(std::string(TIDEMARK_SIMGPU_LIBRARIES) + "/" + name,
                                    libraries / name);
  }
  CaptureRun run;
  run.with("LD_LIBRARY_PATH", libraries.path()).with("TIDEMARK_NVML_HZ", "20");
  const TraceContents trace = run.run(kHost + " hold 300").trace();
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(allocations(trace), 2u);
  EXPECT_EQ(run.complaints(), 0u) << run.errors();
}

TEST(CaptureGuest, CuptiSwitchedOffIsLeftToOthers) {
  CaptureRun off;
  const TraceContents trace = off.with("TIDEMARK_CUPTI", "0").run(kHost + " subscribe").trace();
  EXPECT_EQ(off.output(), "subscribe 0\n");
  EXPECT_TRUE(trace.driver_events.empty());
  EXPECT_TRUE(has_health(trace, HealthKind::kSourceDisabled, "TIDEMARK_CUPTI=0"));
  CaptureRun on;
  on.run(kHost + " subscribe");
  EXPECT_EQ(on.output(), "subscribe 39\n");
}

TEST(CaptureGuest, WithoutATraceFileNoSubscriber) {
  CaptureRun run;
  run.with("TIDEMARK_OUT", "/proc/no/such").run(kHost + " subscribe");
  EXPECT_EQ(run.exit_status(), 0);
  EXPECT_EQ(run.output(), "subscribe 0\n") << "a recorder that is off leaves CUPTI alone";
  EXPECT_EQ(run.complaints(), 1u) << run.errors();
}

TEST(CaptureGuest, ManyStartsCountAsOne) {
  CaptureRun run;
  const TraceContents trace = run.run(kHost + " again 8").trace();
  EXPECT_EQ(run.output(), "returned 9\n");
  EXPECT_EQ(allocations(trace), 2u);
}

TEST(CaptureGuest, ChildrenHaveTheirOwnTraces) {
  CaptureRun run;
  run.run(kHost + " forks");
  EXPECT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(run.errors(), "");
  const auto files = run.traces();
  ASSERT_EQ(files.size(), 2u) << "the parent and the child that ran another program";
  EXPECT_TRUE(run.rings().empty());
  for (const std::string& path : files) {
    const TraceContents trace = read_trace(path);
    EXPECT_EQ(allocations(trace), 2u);
    EXPECT_FALSE(trace.damage.any());
    EXPECT_FALSE(trace.damage.unfinished);
  }
}

TEST(CaptureGuest, AForkBeforeCudaMakesTwoRecordings) {
  CaptureRun run;
  run.run(kHost + " fork_first");
  EXPECT_EQ(run.exit_status(), 0) << run.errors();
  ASSERT_EQ(run.traces().size(), 2u);
  for (const std::string& path : run.traces()) EXPECT_EQ(allocations(read_trace(path)), 2u);
}

TEST(CaptureGuest, InvalidVariablesAreReportedOnce) {
  CaptureRun run;
  const TraceContents trace = run.with("TIDEMARK_KERNELS", "maybe").run(kHost + " hold 1").trace();
  EXPECT_EQ(run.complaints(), 1u);
  EXPECT_NE(run.errors().find("TIDEMARK_KERNELS"), std::string::npos);
  EXPECT_EQ(allocations(trace), 2u);
}

}  // namespace
}  // namespace tidemark::test
