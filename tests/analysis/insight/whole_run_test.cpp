// Growth over a run of which only the last stretch was kept, from its curve.
#include "analysis/insight/whole_run.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr int64_t kHourNs = 3'600'000'000'000;
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

}  // namespace
}  // namespace tidemark
