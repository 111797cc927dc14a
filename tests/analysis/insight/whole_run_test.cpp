// Growth over a run of which only the last stretch was kept, from its curve.
#include "analysis/insight/whole_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kHourNs = 3600 * kSecondNs;
constexpr int kHours = 48;
constexpr uint64_t kPerHour = 120;  // points

// `lowest` of each point; 0 to 1 of the run.
Trace run_with(const std::function<uint64_t(double)>& lowest, int64_t begin_ns = kHours * kHourNs) {
  return Trace([&](Story& s, uint32_t) {
    constexpr uint64_t kPoints = kHours * kPerHour;
    for (uint64_t i = 0; i < kPoints; ++i) {
      const double at = static_cast<double>(i) / kPoints;
      const uint64_t bytes = lowest(at);
      s.run_point(static_cast<int64_t>((1 - at) * static_cast<double>(begin_ns)), bytes,
                  bytes + 2048 * kMiB, 10 * i);
    }
    if (begin_ns > 0) s.kept_window();
    Training t(s, {});
    for (int i = 0; i < 12; ++i) {
      t.step();
      s.alloc(64 << 10, s.user(77));  // too little to see in so few steps
    }
  });
}

WholeRun run_of(const Trace& trace) {
  return trace.report().ranks[0].devices[0].run;
}

TEST(WholeRun, GrowthIsFoundAndTheWindowTellsTheLine) {
  const Trace trace = run_with([](double at) { return static_cast<uint64_t>(at * 4096 * kMiB); });
  const Finding f = trace.finding("creep");
  EXPECT_EQ(f.severity, kWarning);
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:77");
  const WholeRun run = run_of(trace);
  EXPECT_EQ(run.points, kHours * kPerHour);
  EXPECT_NEAR(run.bytes_per_ns() * kHourNs, 4096.0 * kMiB / kHours, 4.0 * kMiB);
  EXPECT_NEAR(static_cast<double>(run.gained_bytes), 4096.0 * kMiB, 300.0 * kMiB);
  EXPECT_NEAR(static_cast<double>(run.gained_bytes) / static_cast<double>(run.steps),
              4096.0 * kMiB / (10 * kHours * kPerHour), 3000);
}

TEST(WholeRun, TheLineIsFoundWithoutSteps) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 100; ++i) {
      const uint64_t bytes = 40 * kMiB * static_cast<uint64_t>(i);
      s.run_point((100 - i) * kHourNs, bytes, bytes + 100 * kMiB, 0);
    }
    s.kept_window();
    for (int i = 0; i < 8; ++i) s.older_block(4 * kMiB);
    std::vector<uint64_t> work;
    for (uint64_t i = 1; i < 400; ++i) {  // no rhythm
      work.push_back(s.alloc((i * i * 37 % 91 + 1) << 12, s.user(10 + static_cast<int>(i % 13))));
      while (work.size() > i * 7 % 11) {
        s.free(work.back());
        work.pop_back();
      }
      if (i * i % 29 == 1) s.alloc(8 << 10, s.user(77));
    }
    for (const uint64_t block : work) s.free(block);
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:77");
}

TEST(WholeRun, GrowthThatBeganLate) {
  const Trace trace = run_with([](double at) {
    return static_cast<uint64_t>(std::max(at - 0.5, 0.0) * 4096 * kMiB) + 500 * kMiB;
  });
  EXPECT_EQ(trace.finding("creep").id, "creep");
  EXPECT_GT(run_of(trace).grows_from_ns - run_of(trace).begin_ns(), 20 * kHourNs);
}

TEST(WholeRun, TheEndOfTheProgramDoesNotHideIt) {
  const Trace trace =
      run_with([](double at) { return at > 0.999 ? 0 : static_cast<uint64_t>(at * 4096 * kMiB); });
  EXPECT_EQ(trace.finding("creep").id, "creep");
}

TEST(WholeRun, OtherShapesAreNotGrowth) {
  const auto none = [](const std::function<uint64_t(double)>& lowest) {
    const Trace trace = run_with(lowest);
    EXPECT_FALSE(run_of(trace).empty());
    EXPECT_FALSE(run_of(trace).grows());
    EXPECT_EQ(trace.finding("creep").id, "");
  };
  none([](double) { return 700 * kMiB; });
  // A cache that is full after a third of the run.
  none([](double at) { return static_cast<uint64_t>(std::min(at * 3, 1.0) * 4096 * kMiB); });
  // Up and down, with every file that the program works on.
  none([](double at) {
    const double saw = at * 7 - static_cast<int>(at * 7);
    return static_cast<uint64_t>(saw * 4096 * kMiB) + static_cast<uint64_t>(at * 64 * kMiB);
  });
  // A second phase that needs more.
  none([](double at) { return at < 0.6 ? 500 * kMiB : 3000 * kMiB; });
}

// One point per second, as of a short run.
Trace seconds(int count, const std::function<uint64_t(double)>& lowest,
              const std::function<uint64_t(double)>& steps) {
  return Trace([&](Story& s, uint32_t) {
    for (int i = 0; i < count; ++i) {
      const double at = static_cast<double>(i) / count;
      s.run_point((count - i) * kSecondNs, lowest(at), lowest(at) + 512 * kMiB, steps(at));
    }
    s.kept_window();
    Training t(s, {});
    for (int i = 0; i < 12; ++i) t.step();
  });
}

uint64_t mib(double amount) {
  return static_cast<uint64_t>(amount * static_cast<double>(kMiB));
}

TEST(WholeRun, GrowthThatEndedIsNotGrowth) {
  for (int count = 40; count < 52; ++count) {
    const auto steps = [](double at) { return static_cast<uint64_t>(at * 1000) + 1; };
    for (const double end : {0.5, 0.62, 0.7, 0.8}) {
      const auto level = [&](double at) { return mib(std::min(at / end, 1.0) * 4096); };
      EXPECT_FALSE(run_of(seconds(count, level, steps)).grows()) << count << " " << end;
      // The level is never quite still.
      const auto restless = [&](double at) {
        return level(at) + mib(std::abs(std::sin(at * 1000)) * 20);
      };
      EXPECT_FALSE(run_of(seconds(count, restless, steps)).grows()) << count << " " << end;
    }
    EXPECT_TRUE(run_of(seconds(
                           count, [](double at) { return mib(at * 4096); }, steps))
                    .grows());
  }
}

TEST(WholeRun, LoadingIsNotGrowth) {
  const auto loads = [](double at) { return mib(at * 4096); };
  // Up to its first step, near the end; or nobody counts steps, and it has just begun.
  EXPECT_FALSE(run_of(seconds(48, loads, [](double at) { return at < 0.9 ? 0U : 5U; })).grows());
  EXPECT_FALSE(run_of(seconds(48, loads, [](double) { return 0U; })).grows());
  EXPECT_TRUE(run_of(seconds(480, loads, [](double) { return 0U; })).grows());
}

TEST(WholeRun, TheAmountIsThatOfTheSteadyPart) {
  for (const double loaded_after : {0.04, 0.1, 0.2}) {
    const Trace trace = run_with([&](double at) {
      const double weights = std::min(at / loaded_after, 1.0) * 3000;
      return mib(weights + std::max(at - loaded_after, 0.0) * 4096);
    });
    const WholeRun run = run_of(trace);
    ASSERT_TRUE(run.grows()) << loaded_after;
    EXPECT_NEAR(static_cast<double>(run.gained_bytes), 4096.0 * kMiB * (1 - loaded_after),
                400.0 * kMiB);
    EXPECT_NEAR(run.bytes_per_ns() * kHourNs, 4096.0 * kMiB / kHours, 4.0 * kMiB);
  }
}

// By stairs of equal height, as with every epoch.
TEST(WholeRun, GrowthByStairs) {
  const Trace trace = run_with(
      [](double at) { return mib((at < 0.05 ? 0 : 3000) + static_cast<int>(at * 8) * 512); });
  const WholeRun run = run_of(trace);
  ASSERT_TRUE(run.grows());
  EXPECT_NEAR(static_cast<double>(run.gained_bytes), 7 * 512.0 * kMiB, 520.0 * kMiB);
}

// The window shows one rise of a level that goes up and down.
TEST(WholeRun, AWindowThatRisesToWhereMemoryWasBeforeIsNotGrowth) {
  const auto trace = [](uint64_t before) {
    return Trace([before](Story& s, uint32_t) {
      for (int i = 0; i < 600; ++i) {
        const uint64_t level = static_cast<uint64_t>(i % 60) * before / 60;
        s.run_point((600 - i) * kSecondNs, level, 12'000 * kMiB, 0);
      }
      s.kept_window();
      Training t(s, {});
      for (int i = 0; i < 30; ++i) {
        t.step();
        s.alloc(64 * kMiB, s.user(77));
      }
    });
  };
  EXPECT_EQ(trace(6000 * kMiB).finding("creep").id, "");
  EXPECT_EQ(trace(600 * kMiB).finding("creep").id, "creep");
}

TEST(WholeRun, IsNotShownIfTheTraceHasAllOfIt) {
  const Trace trace = run_with([](double at) { return static_cast<uint64_t>(at * 4096 * kMiB); },
                               /*begin_ns=*/-1'000'000);
  EXPECT_TRUE(run_of(trace).empty());
}

TEST(WholeRun, KnowsPeaksAndErrorsBeforeTheWindow) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 10; ++i) {
      s.run_point((10 - i) * kHourNs, 0, i == 4 ? 9000 * kMiB : 100 * kMiB, 0);
    }
    s.kept_window(/*earlier_errors=*/2);
    s.free(s.alloc(20 * kMiB, s.user(1)));
  });
  const DeviceReport d = trace.report().ranks[0].devices[0];
  EXPECT_EQ(d.run.allocated_peak.bytes, 9000 * kMiB);
  EXPECT_EQ(d.run_reserved_peak().bytes, 9000 * kMiB);
  EXPECT_EQ(d.allocated_peak.bytes, 20 * kMiB);
  EXPECT_EQ(d.run.earlier_errors, 2U);
  // The first point stands for the hour before it.
  EXPECT_EQ(d.run.end_ns() - d.run.begin_ns(), 10 * kHourNs);
}

TEST(WholeRun, RanksAreComparedWithinTheirWindows) {
  const auto two_ranks = [](bool windows) {
    return Trace(
        [windows](Story& s, uint32_t rank) {
          s.run_point(2 * kSecondNs, 0, 9000 * kMiB, 0);
          s.run_point(kSecondNs, 0, 9000 * kMiB, 0);
          if (windows) s.kept_window();
          s.free(s.alloc((rank == 1 ? 2000 : 1000) * kMiB, s.user(1)));
        },
        2, true);
  };
  for (const bool windows : {false, true}) {
    const Trace trace = two_ranks(windows);
    const Report report = trace.report();
    EXPECT_EQ(report.comparison.in_windows, windows);
    EXPECT_EQ(report.comparison.highest.bytes, 2000 * kMiB);
    const std::string summary = trace.finding("rank_imbalance").summary;
    EXPECT_EQ(summary.find("within the kept windows") != std::string::npos, windows) << summary;
  }
}

// `marks` after each of 12 steps, some of which may be left out.
Steps steps_of(MarkKind kind, int marks, bool counted, int left_out = 0) {
  const Trace trace([&](Story& s, uint32_t) {
    s.kept_window();
    if (counted) s.earlier_steps(813, 1627);
    Training t(s, {.marks = false});
    for (int i = 0; i < 12; ++i) {
      t.step();
      for (int k = 0; k < (i < left_out ? 1 : marks); ++k) s.step_mark(kind);
    }
  });
  return trace.report().ranks[0].devices[0].step_events;
}

TEST(WholeRun, StepsHaveTheNumbersOfTheRun) {
  const Steps iterations = steps_of(MarkKind::kIteration, 1, true);
  ASSERT_EQ(iterations.source, StepSource::kMarks);
  EXPECT_EQ(iterations.name(0), "step 813");
  EXPECT_EQ(iterations.number(11), 824U);
  EXPECT_EQ(steps_of(MarkKind::kOptimizerStep, 1, true).before, 1627U);
  // Two optimizers: the first of the two marks of step 813 is before the window.
  EXPECT_EQ(steps_of(MarkKind::kOptimizerStep, 2, true).before, 813U);
  // It is not known how many steps they were, or nobody counted.
  EXPECT_EQ(steps_of(MarkKind::kOptimizerStep, 2, true, 6).before, std::nullopt);
  const Steps unknown = steps_of(MarkKind::kIteration, 1, false);
  EXPECT_EQ(unknown.before, std::nullopt);
  EXPECT_EQ(unknown.name(3), "window step 3");
}

// Nobody knows how many steps came before the window.
TEST(WholeRun, ACardThatBecomesFullInSoManySteps) {
  const auto grow = [](bool window) {
    return [window](Story& s, uint32_t) {
      s.run_point(2'000'000'000, 0, 0, 0);
      s.run_point(1'000'000'000, 0, 0, 0);
      if (window) s.kept_window();
      Training t(s, {});
      for (int i = 0; i < 30; ++i) {
        t.step();
        s.alloc(64 * kMiB, s.user(77));
      }
    };
  };
  const Finding whole = Trace(grow(false)).finding("creep");
  const Finding window = Trace(grow(true)).finding("creep");
  EXPECT_NE(whole.summary.find("full at about step "), std::string::npos) << whole.summary;
  EXPECT_NE(window.summary.find("full in about "), std::string::npos) << window.summary;
  EXPECT_NE(window.summary.find(" more steps"), std::string::npos) << window.summary;
}

TEST(WholeRun, TheLastMomentsOfAKilledProcessAreThoseOfItsEvents) {
  const int64_t start_ns = 1000 * kSecondNs;
  ProcessModel process;
  process.info.start_ns = start_ns;
  process.window.from_ns = start_ns + kSecondNs;
  process.last_ns = start_ns + 29 * kSecondNs / 10;
  for (int i = 1; i <= 2; ++i) {
    process.summaries.push_back({start_ns + i * kSecondNs, 0, kMiB, 0, 0, kMiB, kMiB, 0});
  }
  DriverEvent event{};
  event.operation = DriverOperation::kAllocate;
  event.kind = MemoryKind::kDevice;
  event.time_ns = start_ns + kSecondNs / 2;
  event.address = uint64_t{1} << 40;
  event.size_bytes = kMiB;
  DriverEvent later = event;
  later.time_ns = start_ns + 5 * kSecondNs / 2;
  later.address *= 2;
  later.size_bytes = 6 * kMiB;
  process.driver = build_driver_model({event, later});
  EXPECT_EQ(whole_run(process, 0).end_ns(), start_ns + 2 * kSecondNs);
  process.health.push_back({});
  process.health.back().kind = HealthKind::kRecovered;
  const WholeRun run = whole_run(process, 0);
  EXPECT_EQ(run.end_ns(), process.last_ns);
  EXPECT_EQ(run.parts.back().lowest_bytes, kMiB);
  EXPECT_EQ(run.parts.back().highest_bytes, 7 * kMiB);
}

// A seal adds a point, so the points before it do not tell when the run began; the recording does.
TEST(WholeRun, SealsDoNotMoveTheBeginning) {
  const int64_t start_ns = 1000 * kSecondNs;
  ProcessModel process;
  process.info.start_ns = start_ns;
  process.window.from_ns = start_ns + 3 * kSecondNs;
  const auto point = [&](int64_t time_ns, int64_t device) {
    process.summaries.push_back({time_ns, device, kMiB, kMiB, kMiB, kMiB, kMiB, 0});
  };
  for (int i = 1; i <= 5; ++i) point(start_ns + i * kSecondNs, 0);
  EXPECT_EQ(whole_run(process, 0).begin_ns(), start_ns);
  for (int i = 1; i <= 8; ++i) point(start_ns + 5 * kSecondNs + i * kSecondNs / 100, 0);
  EXPECT_EQ(whole_run(process, 0).begin_ns(), start_ns);
  EXPECT_EQ(whole_run(process, 0).end_ns(), start_ns + 508 * kSecondNs / 100);
  for (int i = 6; i <= 8; ++i) {  // another device is used from then on
    point(start_ns + i * kSecondNs, 0);
    point(start_ns + i * kSecondNs, 1);
  }
  EXPECT_EQ(whole_run(process, 1).begin_ns(), start_ns + 508 * kSecondNs / 100);
}

}  // namespace
}  // namespace tidemark
