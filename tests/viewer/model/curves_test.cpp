// The curves never miss an event, at any zoom: compared with brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "analysis/wording.h"
#include "tests/support/synthetic_trace.h"
#include "viewer/model/ticks.h"
#include "viewer/model/timeline/columns.h"

namespace tidemark::view {
namespace {

CurveValues brute_values(const AllocationHistory& m, uint32_t event) {
  const MemoryTotals t = m.totals_after(event);
  return {t.allocated, t.requested, t.reserved};
}

class Curves : public testing::Test {
 protected:
  Curves() {
    SyntheticOptions options;
    options.events = 6'000;
    options.spike_bytes = uint64_t{3} << 30;
    trace_ = synthetic_model(options);
    values_.resize(memory().event_count());
    for (uint32_t e = 0; e < values_.size(); ++e) values_[e] = brute_values(memory(), e);
  }

  const AllocationHistory& memory() const { return trace_.processes[0].framework[0]; }

  TraceModel trace_;
  std::vector<CurveValues> values_;
};

TEST_F(Curves, PyramidEqualsBruteForceOnAnyRange) {
  const MinMaxPyramid pyramid(memory());
  std::mt19937 random(7);
  const uint32_t n = memory().event_count();
  for (int round = 0; round < 3000; ++round) {
    auto a = static_cast<uint32_t>(random() % n);
    auto b = static_cast<uint32_t>(random() % n);
    if (round % 3 == 0) b = std::min(n - 1, a + static_cast<uint32_t>(random() % 200));
    if (a > b) std::swap(a, b);
    Extremes expected = Extremes::nothing();
    for (uint32_t e = a; e <= b; ++e) expected.include(values_[e]);
    const Extremes got = pyramid.extremes(a, b + 1);
    ASSERT_EQ(got.min, expected.min) << a << " to " << b;
    ASSERT_EQ(got.max, expected.max) << a << " to " << b;
    ASSERT_EQ(pyramid.values_after(a), values_[a]);
  }
}

TEST_F(Curves, ColumnsEqualBruteForceAtAnyZoom) {
  const MinMaxPyramid pyramid(memory());
  std::mt19937 random(11);
  const int64_t origin = memory().time_ns.front();
  const double first = 0;
  const auto last = static_cast<double>(memory().time_ns.back() - origin);
  for (int round = 0; round < 120; ++round) {
    const double middle = first + (last - first) * (static_cast<double>(random() % 1000) / 1000);
    const double span = (last - first) / static_cast<double>(1U << (random() % 14)) * 1.1 + 1;
    const double begin = middle - span / 2;
    const double end = middle + span / 2;
    const auto count = static_cast<uint32_t>(1 + random() % 700);
    const TimelineColumns columns = columns_of(memory(), pyramid, {origin, begin, end}, count);
    ASSERT_EQ(columns.count(), count);
    uint32_t event = columns.edges.front();
    for (uint32_t i = 0; i < count; ++i) {
      const double right = begin + (end - begin) * (static_cast<double>(i + 1) / count);
      ASSERT_EQ(event, columns.edges[i]);
      Extremes expected = Extremes::nothing();
      if (event > 0) expected.include(values_[event - 1]);
      while (event < values_.size() &&
             static_cast<double>(memory().time_ns[event] - origin) < right) {
        expected.include(values_[event++]);
      }
      ASSERT_EQ(event, columns.edges[i + 1]);
      if (event == 0) {
        ASSERT_LT(i, columns.first_known);
        continue;
      }
      for (size_t c = 0; c < kCurves; ++c) {
        ASSERT_EQ(columns.curves[c][i].min, expected.min[c]);
        ASSERT_EQ(columns.curves[c][i].max, expected.max[c]);
        ASSERT_EQ(columns.curves[c][i].last, values_[event - 1][c]);
      }
    }
  }
}

TEST_F(Curves, OneEventSpikeIsDrawnAtEveryZoom) {
  const MinMaxPyramid pyramid(memory());
  const int64_t origin = memory().time_ns.front();
  const double first = 0;
  const auto last = static_cast<double>(memory().time_ns.back() - origin);
  const Peak& peak = memory().allocated_peak;
  ASSERT_GE(peak.bytes, uint64_t{3} << 30);
  std::vector<double> xs;
  std::vector<double> ys;
  for (double span = (last - first) * 1.2; span > 5; span /= 3) {
    for (const uint32_t count : {3U, 400U, 1921U, 3840U}) {
      const TimeWindow window{origin, static_cast<double>(peak.time_ns - origin) - span * 0.4,
                              static_cast<double>(peak.time_ns - origin) + span * 0.6};
      const TimelineColumns columns = columns_of(memory(), pyramid, window, count);
      curve_points(memory(), columns, Curve::kAllocated, window, memory().time_ns.back(), xs, ys);
      ASSERT_FALSE(ys.empty());
      EXPECT_EQ(*std::max_element(ys.begin(), ys.end()), static_cast<double>(peak.bytes));
      EXPECT_TRUE(std::is_sorted(xs.begin(), xs.end()));
      EXPECT_LE(xs.size(), 4U * count + 2);
    }
  }
}

TEST_F(Curves, EventsAreFoundByTime) {
  const auto& times = memory().time_ns;
  std::mt19937 random(13);
  for (int round = 0; round < 4000; ++round) {
    // Times of events, several of which may be equal, and times between events.
    const int64_t time = times[random() % times.size()] + static_cast<int64_t>(random() % 3) - 1;
    const auto after = std::upper_bound(times.begin(), times.end(), time) - times.begin();
    uint32_t event = 0;
    ASSERT_EQ(memory().event_at(time, event), after != 0);
    if (after != 0) {
      ASSERT_EQ(event, after - 1);
    }
  }
  uint32_t event = 0;
  EXPECT_FALSE(memory().event_at(times.front() - 1, event));
  ASSERT_TRUE(memory().event_at(times.back() + 1, event));
  EXPECT_EQ(event, memory().event_count() - 1);
}

// While the view moves, every event is drawn at most one column from its place. Once the view
// stops, the columns become exact, in however small portions.
TEST(CurvesInMotion, AreNearAndThenExact) {
  SyntheticOptions options;
  options.events = 60'000;
  options.spike_bytes = uint64_t{9} << 30;
  const TraceModel trace = synthetic_model(options);
  const AllocationHistory& m = trace.processes[0].framework[0];
  const MinMaxPyramid pyramid(m);
  const int64_t origin = m.time_ns.front();
  const auto last = static_cast<double>(m.time_ns.back() - origin);
  std::mt19937 random(17);
  int near = 0;
  for (int round = 0; round < 60; ++round) {
    const double begin = last * (static_cast<double>(random() % 1000) / 1200 - 0.1);
    const double end = begin + last * (0.05 + static_cast<double>(random() % 100) / 80);
    const auto count = static_cast<uint32_t>(2 + random() % 90);
    const TimeWindow window{origin, begin, end};
    const TimelineColumns exact = columns_of(m, pyramid, window, count);
    ColumnWork work;
    work.begin(m, pyramid, window, count);
    if (!work.is_exact()) {
      ++near;
      const TimelineColumns& quick = work.columns();
      ASSERT_EQ(quick.count(), count);
      ASSERT_TRUE(std::is_sorted(quick.edges.begin(), quick.edges.end()));
      for (uint32_t i = 0; i <= count; ++i) {
        // Never left of the exact border, and not as far as the next one.
        ASSERT_GE(quick.edges[i], exact.edges[i]);
        const uint32_t next = i < count ? exact.edges[i + 1] : m.event_count();
        ASSERT_LE(quick.edges[i], next);
      }
      for (uint32_t i = 0; i < count; ++i) {
        Extremes expected = Extremes::nothing();
        if (quick.edges[i] > 0) expected.include(brute_values(m, quick.edges[i] - 1));
        if (quick.edges[i] < quick.edges[i + 1]) {
          expected.include(pyramid.extremes(quick.edges[i], quick.edges[i + 1]));
        }
        if (quick.edges[i + 1] == 0) continue;
        for (size_t c = 0; c < kCurves; ++c) {
          ASSERT_EQ(quick.curves[c][i].min, expected.min[c]);
          ASSERT_EQ(quick.curves[c][i].max, expected.max[c]);
          ASSERT_EQ(quick.curves[c][i].last, brute_values(m, quick.edges[i + 1] - 1)[c]);
        }
      }
      while (!work.work(0)) ASSERT_FALSE(work.is_exact());
    }
    EXPECT_TRUE(work.is_exact());
    EXPECT_FALSE(work.work(-1));
    ASSERT_EQ(work.columns().edges, exact.edges);
    for (size_t c = 0; c < kCurves; ++c) {
      for (uint32_t i = 0; i < count; ++i) {
        ASSERT_EQ(work.columns().curves[c][i].min, exact.curves[c][i].min);
        ASSERT_EQ(work.columns().curves[c][i].max, exact.curves[c][i].max);
      }
    }
  }
  EXPECT_GT(near, 20);
}

TEST(CurvesOfFewEvents, NoEventAndOneEvent) {
  AllocationHistory none;
  const MinMaxPyramid nothing(none);
  EXPECT_EQ(columns_of(none, nothing, {0, 0, 10}, 5).count(), 0U);
  SyntheticOptions options;
  options.events = 1;
  options.oom = false;
  options.marks = false;
  const TraceModel trace = synthetic_model(options);
  const AllocationHistory& m = trace.processes[0].framework[0];
  const MinMaxPyramid pyramid(m);
  const TimeWindow window{m.time_ns[0], -10, 10};
  const TimelineColumns columns = columns_of(m, pyramid, window, 20);
  EXPECT_EQ(columns.first_known, 10U);
  std::vector<double> xs;
  std::vector<double> ys;
  curve_points(m, columns, Curve::kReserved, window, m.time_ns[0], xs, ys);
  EXPECT_FALSE(xs.empty());
}

// A label says exactly where its line is.
TEST(Ticks, SizesAreNotRounded) {
  const double kGiB = 1024.0 * (1 << 20);
  EXPECT_EQ(byte_ticks(2.4 * kGiB, 10)[9].label, "2.25 GiB");
  EXPECT_EQ(byte_ticks(1.2 * kGiB, 10)[9].label, "1.125 GiB");
  EXPECT_EQ(byte_ticks(141 * kGiB, 9)[3].label, "48 GiB");
  const std::map<std::string, double> units = {
      {"B", 1}, {"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", kGiB}, {"TiB", 1024 * kGiB}};
  for (const double top : {700.0, 5e3, 2.5e6, 3e8, 2.4e9, 7.7e10, 1.4e13}) {
    for (const int count : {3, 10, 3000}) {
      for (const Tick& tick : byte_ticks(top, count)) {
        std::string label = tick.label;
        std::erase(label, ',');
        const size_t space = label.find(' ');
        const double unit = tick.at == 0 ? 0 : units.at(label.substr(space + 1));
        ASSERT_EQ(std::stod(label.substr(0, space)) * unit, tick.at) << tick.label;
      }
    }
  }
}

TEST(Ticks, AreRoundAndLabelled) {
  const auto ms = time_ticks(0, 10e6, 5);
  ASSERT_EQ(ms.size(), 6U);
  EXPECT_EQ(ms[1].label, "2 ms");
  EXPECT_EQ(time_ticks(1.0000002e9, 1.0000012e9, 4)[0].label, "1.0000005 s");
  EXPECT_EQ(time_ticks(0, 3600e9, 6)[1].label, "10:00 min");
  const auto bytes = byte_ticks(1000.0 * (1 << 20), 4);
  EXPECT_EQ(bytes[1].label, "256 MiB");
  const double kGiB = 1024.0 * (1 << 20);
  EXPECT_EQ(byte_ticks(4 * kGiB, 8)[1].label, "512 MiB");
  EXPECT_EQ(byte_ticks(4 * kGiB, 8)[2].label, "1 GiB");
  EXPECT_EQ(byte_ticks(4 * kGiB, 8)[3].label, "1.5 GiB");
  EXPECT_EQ(signed_size_text(-3 * 1024), "-3.0 KiB");
  EXPECT_EQ(span_text(12'345'678), "12.3 ms");
  EXPECT_EQ(instant_text(11.39641e9, 13.7e9), "+11.396 s") << "to the millisecond, as in reports";
  EXPECT_EQ(instant_text(11.39641e9, 1e6), "+11.396410 s");
  EXPECT_EQ(instant_text(0.538001e9, 1e6), "+538.001 ms");
  EXPECT_EQ(instant_text(250.4e9, 1800e9), "+" + duration_text(250'400'000'000));
  EXPECT_EQ(instant_text(250.4e9, 10e9), "+4 min 10.40 s");
  EXPECT_EQ(instant_text(7512e9, 9000e9), "+2 h 5 min 12 s");
  EXPECT_EQ(instant_text(7512e9, 90000e9), "+" + duration_text(7'512'000'000'000));
  EXPECT_TRUE(time_ticks(5, 5, 3).empty());
}

}  // namespace
}  // namespace tidemark::view
