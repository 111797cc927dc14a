// Kernels in bursts, on simulated cards: what is left out is in the trace, and nothing else is
// missing. No test measures time; how often kernels are paused is that of the machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "collector/recover/recovery.h"
#include "proto/read/unrecorded.h"
#include "tests/support/capture_run.h"

namespace tidemark::test {
namespace {

struct Launch {
  uint32_t number = 0;
  int64_t before_ns = 0;
  int64_t after_ns = 0;
};

class BudgetTest : public testing::Test {
 protected:
  BudgetTest() { run_.with("TIDEMARK_OVERHEAD", "2%"); }

  // A launch that is recorded takes 20 µs longer, and one comes every 30 µs or so.
  CaptureRun& dense(const std::string& events = "", unsigned launches = 100'000) {
    return run_.with("SIMGPU_KERNEL_TRACING_NS", "20000")
        .with("SIMGPU_KERNEL_US", "1")
        .with("TIDEMARK_BUFFER_MB", "16")
        .run(fmt_command(launches, 20, 500) + " " + events);
  }
  std::string fmt_command(unsigned launches, unsigned gap_us, unsigned step) const {
    return std::string(TIDEMARK_LAUNCH_HOST) + " " + log_path() + " " + std::to_string(launches) +
           " " + std::to_string(gap_us) + " " + std::to_string(step);
  }
  std::string log_path() const { return log_ / "launches"; }

  std::vector<Launch> launches() const {
    std::vector<Launch> all;
    std::ifstream in(log_path());
    Launch one;
    while (in >> one.number >> one.before_ns >> one.after_ns) all.push_back(one);
    return all;
  }

  CaptureRun run_;
  ScratchDirectory log_;
};

std::vector<Stretch> stretches_of(const TraceContents& trace) {
  return unrecorded_stretches(trace.marks, 0, INT64_MAX);
}

std::set<uint32_t> recorded(const TraceContents& trace) {
  std::set<uint32_t> numbers;
  for (const Kernel& kernel : trace.kernels) numbers.insert(kernel.grid_x);
  return numbers;
}

std::string setting(const TraceContents& trace, const std::string& key) {
  std::string value;
  for (const Setting& s : trace.settings) {
    if (trace.strings.at(s.key) == key) value = trace.strings.at(s.value);
  }
  return value;
}

// Launches outside of the stretches are recorded. Inside, CUPTI stops at some time after it was
// told to, and goes on at some time before it has said so.
void expect_stretches_are_true(const TraceContents& trace, const std::vector<Launch>& launches) {
  const std::vector<Stretch> stretches = stretches_of(trace);
  const std::set<uint32_t> kernels = recorded(trace);
  EXPECT_EQ(kernels.size(), trace.kernels.size());
  size_t missing = 0;
  std::vector<size_t> gaps(stretches.size());
  const Stretch* last = nullptr;
  bool had = true;
  for (const Launch& launch : launches) {
    const bool has = kernels.contains(launch.number);
    const auto at = std::find_if(stretches.begin(), stretches.end(), [&](const Stretch& s) {
      return s.begin_ns <= launch.after_ns && launch.before_ns <= s.end_ns;
    });
    if (at == stretches.end()) {
      missing += has ? 0U : 1U;
      continue;
    }
    if (&*at != last) had = true;
    last = &*at;
    if (had && !has) ++gaps[static_cast<size_t>(at - stretches.begin())];
    had = has;
  }
  EXPECT_EQ(missing, 0U);
  for (const size_t count : gaps) EXPECT_LE(count, 1U);
}

TEST_F(BudgetTest, DenseLaunchesAreRecordedInBursts) {
  ASSERT_EQ(dense().exit_status(), 0) << run_.errors();
  EXPECT_EQ(run_.complaints(), 0U) << run_.errors();
  const TraceContents trace = run_.trace();
  const std::vector<Launch> all = launches();
  ASSERT_EQ(all.size(), 100'000U);
  EXPECT_LT(trace.kernels.size(), all.size());
  EXPECT_GE(stretches_of(trace).size(), 2U);
  expect_stretches_are_true(trace, all);
  EXPECT_EQ(setting(trace, "overhead"), "2 %");
  EXPECT_EQ(setting(trace, "kernel_cost"), "measured");
  // It spins for that long, and a busy machine can only make it longer.
  EXPECT_GE(std::stoul(setting(trace, "kernel_cost_ns")), 10'000U);
  // Every step's allocation and free.
  EXPECT_EQ(std::count_if(trace.driver_events.begin(), trace.driver_events.end(),
                          [](const DriverEvent& e) {
                            return e.operation == DriverOperation::kAllocate && e.result == 0;
                          }),
            200);
  EXPECT_EQ(
      std::count_if(trace.driver_events.begin(), trace.driver_events.end(),
                    [](const DriverEvent& e) { return e.operation == DriverOperation::kFree; }),
      200);
}

TEST_F(BudgetTest, MemoryEventsAreTheSameWithAndWithoutBursts) {
  ASSERT_EQ(dense().exit_status(), 0);
  CaptureRun everything;
  everything.with("TIDEMARK_OVERHEAD", "off")
      .with("TIDEMARK_BUFFER_MB", "64")
      .with("SIMGPU_KERNEL_US", "1")
      .run(fmt_command(100'000, 5, 500));
  ASSERT_EQ(everything.exit_status(), 0);
  const TraceContents bursts = run_.trace();
  const TraceContents all = everything.trace();
  EXPECT_EQ(all.kernels.size(), 100'000U);
  EXPECT_TRUE(stretches_of(all).empty());
  EXPECT_EQ(setting(all, "overhead"), "off");
  const auto memory = [](const TraceContents& trace) {
    std::vector<std::tuple<DriverOperation, MemoryKind, uint64_t>> rows;
    for (const DriverEvent& e : trace.driver_events) {
      rows.emplace_back(e.operation, e.kind, e.size_bytes);
    }
    return rows;
  };
  EXPECT_EQ(memory(bursts), memory(all));
}

TEST_F(BudgetTest, SparseLaunchesAreAllRecorded) {
  run_.run(fmt_command(2000, 2000, 10));
  ASSERT_EQ(run_.exit_status(), 0);
  const TraceContents trace = run_.trace();
  EXPECT_EQ(trace.kernels.size(), 2000U);
  EXPECT_TRUE(stretches_of(trace).empty());
  EXPECT_EQ(setting(trace, "kernel_cost"), "assumed");
}

TEST_F(BudgetTest, KernelsAfterANewPeakAndAnErrorAreRecorded) {
  // Far apart, and long after the beginning.
  ASSERT_EQ(dense("peak@60000 oom@80000").exit_status(), 0);
  const TraceContents trace = run_.trace();
  const std::set<uint32_t> kernels = recorded(trace);
  expect_stretches_are_true(trace, launches());
  for (const uint32_t number : {60'000U, 80'000U}) {
    // Within a fraction of the pause that the budget would have asked for.
    const auto next = kernels.lower_bound(number);
    ASSERT_NE(next, kernels.end());
    EXPECT_LT(*next, number + 3000) << number;
    EXPECT_TRUE(kernels.contains(*next + 100)) << number;
  }
}

TEST_F(BudgetTest, AForkInAPauseIsClean) {
  ASSERT_EQ(dense("fork@50000 fork@60000 fork@70000").exit_status(), 0);
  const TraceContents trace = run_.trace();
  expect_stretches_are_true(trace, launches());
}

TEST_F(BudgetTest, SeveralThreadsShareTheBudget) {
  // Four at once end four times as soon, and not while everything is recorded.
  ASSERT_EQ(dense("threads@1000", 300'000).exit_status(), 0);
  const TraceContents trace = run_.trace();
  const std::vector<Stretch> stretches = stretches_of(trace);
  EXPECT_GE(stretches.size(), 2U);
  const std::set<uint32_t> kernels = recorded(trace);
  EXPECT_EQ(kernels.size(), trace.kernels.size());
  for (const Launch& launch : launches()) {
    EXPECT_TRUE(kernels.contains(launch.number) ||
                meets(stretches, launch.before_ns, launch.after_ns))
        << launch.number;
  }
}

TEST_F(BudgetTest, ACuptiThatDoesNotReportLaunchesHasAnAssumedCost) {
  run_.with("SIMGPU_NO_LAUNCH_CALLBACKS", "1");
  ASSERT_EQ(dense().exit_status(), 0);
  const TraceContents trace = run_.trace();
  EXPECT_EQ(setting(trace, "kernel_cost"), "assumed");
  expect_stretches_are_true(trace, launches());
}

TEST_F(BudgetTest, ACuptiThatCannotPauseRecordsEverything) {
  run_.with("SIMGPU_NO_PAUSE", "1");
  ASSERT_EQ(dense().exit_status(), 0);
  const TraceContents trace = run_.trace();
  EXPECT_EQ(trace.kernels.size(), 100'000U);
  EXPECT_TRUE(stretches_of(trace).empty());
  EXPECT_TRUE(std::any_of(trace.health.begin(), trace.health.end(), [&](const Health& row) {
    return trace.strings.at(row.detail).find("the budget is not kept") != std::string::npos;
  }));
}

// Enabling returns, disabling does not.
TEST_F(BudgetTest, ACuptiThatHangsWhenItPausesHangsNobodyElse) {
  run_.with("SIMGPU_HANG", "switch:1");
  ASSERT_EQ(dense().exit_status(), 0);
  EXPECT_EQ(launches().size(), 100'000U);
  const TraceContents trace = run_.trace();
  ASSERT_EQ(stretches_of(trace).size(), 1U);
  EXPECT_EQ(stretches_of(trace)[0].end_ns, INT64_MAX);
}

TEST_F(BudgetTest, AProgramWithoutKernelsHasNothingLeftOut) {
  run_.run(fmt_command(0, 1, 1));
  ASSERT_EQ(run_.exit_status(), 0);
  EXPECT_TRUE(stretches_of(run_.trace()).empty());
}

// A window that is kept must not forget that kernels are paused.
TEST_F(BudgetTest, ALongPauseIsMarkedAgain) {
  run_.with("TIDEMARK_OVERHEAD", "0.001%");
  ASSERT_EQ(dense("", 150'000).exit_status(), 0);
  const TraceContents trace = run_.trace();
  expect_stretches_are_true(trace, launches());
  const auto begins = std::count_if(trace.marks.begin(), trace.marks.end(), [](const Mark& m) {
    return m.kind == MarkKind::kNotRecorded && m.phase == MarkPhase::kBegin;
  });
  EXPECT_GT(static_cast<size_t>(begins), stretches_of(trace).size());
}

// The begun stretch lasts until the end of the recording.
TEST_F(BudgetTest, TheEndOfAKilledProcessIsNotTakenForIdle) {
  run_.with("TIDEMARK_OVERHEAD", "0.1%");
  dense("kill@90000");
  EXPECT_EQ(run_.exit_status(), 128 + 9);
  ASSERT_EQ(run_.traces().size(), 1U);
  const auto folder = std::filesystem::path(run_.traces()[0]).parent_path();
  ASSERT_TRUE(recover_directory(folder.string(), RecoveryBy::kReader));
  const TraceContents trace = run_.trace();
  ASSERT_FALSE(stretches_of(trace).empty());
  EXPECT_EQ(stretches_of(trace).back().end_ns, INT64_MAX);
  expect_stretches_are_true(trace, launches());
}

}  // namespace
}  // namespace tidemark::test
