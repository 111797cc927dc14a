// Rows of spans, step curves, and driver allocations as lanes: against brute force, and on recorded
// traces.
#include "viewer/model/timeline/activity.h"

#include <gtest/gtest.h>

#include <random>

#include "analysis/insight/outside_history.h"
#include "tests/support/serving_story.h"
#include "viewer/model/tables/activity_tables.h"
#include "viewer/model/trace/finding_place.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {
namespace {

SpanRow random_row(uint32_t seed, uint32_t count) {
  std::minstd_rand random(seed);
  SpanRow row;
  int64_t time = 1'000'000;
  for (uint32_t i = 0; i < count; ++i) {
    time += static_cast<int64_t>(1 + random() % (i % 50 == 0 ? 100'000 : 40));
    const auto length = static_cast<int64_t>(random() % 5 == 0 ? 0 : random() % 60);
    EXPECT_TRUE(row.add(time, time + length, i));
    time += length;
  }
  return row;
}

TEST(SpanRow, RefusesWhatOverlaps) {
  SpanRow row;
  EXPECT_TRUE(row.add(10, 20, 1));
  EXPECT_FALSE(row.add(15, 30, 2));
  EXPECT_FALSE(row.add(10, 10, 3));
  EXPECT_TRUE(row.add(20, 20, 4));
  EXPECT_FALSE(row.add(20, 25, 5)) << "two cannot begin together";
  EXPECT_EQ(row.size(), 2U);
  EXPECT_EQ(row.busy_ns(), 10U);
}

// Each visible span, however narrow, is in exactly one cell, and that cell covers it.
TEST(SpanRow, CellsLoseNothingAtAnyZoom) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const SpanRow row = random_row(seed, 3000);
    std::minstd_rand random(seed);
    const int64_t end = row.end_ns(row.size() - 1);
    for (int round = 0; round < 60; ++round) {
      const double span = std::pow(10, 1 + static_cast<double>(random() % 7)) *
                          (1 + static_cast<double>(random() % 9));
      const double begin = static_cast<double>(random() % static_cast<uint64_t>(end)) - span / 3;
      const TimeWindow window{0, begin, begin + span};
      const uint32_t columns = 50 + static_cast<uint32_t>(random() % 400);
      const double width = span / columns;
      const std::vector<SpanCell> cells = row.cells(window, columns);
      std::vector<int> seen(row.size());
      for (const SpanCell& cell : cells) {
        ASSERT_LT(cell.begin_px, cell.end_px);
        uint64_t busy = 0;
        for (uint32_t i = cell.first; i < cell.first + cell.count; ++i) {
          ++seen[i];
          busy += static_cast<uint64_t>(row.end_ns(i) - row.begin_ns(i));
          const double x = (static_cast<double>(row.begin_ns(i)) - begin) / width;
          if (x >= 0 && x < columns) {
            ASSERT_GE(x, static_cast<double>(cell.begin_px) - 0.01);
            ASSERT_LT(x, static_cast<double>(cell.end_px) + 0.01);
          }
        }
        ASSERT_EQ(row.busy_ns(cell.first, cell.first + cell.count), busy);
      }
      for (uint32_t i = 0; i < row.size(); ++i) {
        const bool in_view = static_cast<double>(row.end_ns(i)) > begin &&
                             static_cast<double>(row.begin_ns(i)) < begin + span;
        ASSERT_LE(seen[i], 1);
        ASSERT_TRUE(!in_view || seen[i] == 1) << "span " << i << " is lost";
      }
      ASSERT_LE(cells.size(), 2 * columns + 2);
    }
  }
}

TEST(StepCurve, ExtremesEqualBruteForce) {
  std::minstd_rand random(5);
  StepSeries series;
  int64_t time = 100;
  for (int i = 0; i < 5000; ++i) {
    time += static_cast<int64_t>(1 + random() % 20);
    series.time_ns.push_back(time);
    series.value.push_back(random() % 1000);
  }
  const StepCurve curve(series);
  for (int round = 0; round < 500; ++round) {
    const auto begin = static_cast<int64_t>(random() % 60'000);
    const int64_t end = begin + static_cast<int64_t>(random() % 20'000);
    StepCurve::Range want;
    for (size_t i = 0; i < series.value.size(); ++i) {
      const int64_t until = i + 1 < series.value.size() ? series.time_ns[i + 1] : INT64_MAX;
      const bool holds = series.time_ns[i] < std::max(end, begin + 1) && until > begin;
      if (!holds) continue;
      want.min = std::min(want.min, series.value[i]);
      want.max = std::max(want.max, series.value[i]);
    }
    const StepCurve::Range got = curve.within(begin, end);
    ASSERT_EQ(got.known(), want.known()) << begin << " to " << end;
    if (!want.known()) continue;
    ASSERT_EQ(got.min, want.min) << begin << " to " << end;
    ASSERT_EQ(got.max, want.max);
  }
}

// One sample far above the others is in the drawn line at every zoom that shows its time.
TEST(StepCurve, ASpikeIsAlwaysDrawn) {
  StepSeries series;
  for (int64_t i = 0; i < 20'000; ++i) {
    series.time_ns.push_back(i * 10);
    series.value.push_back(i == 12'345 ? 1'000'000 : 5);
  }
  const StepCurve curve(series);
  for (double span = 200; span < 400'000; span *= 2) {
    std::vector<double> xs;
    std::vector<double> ys;
    curve.points({0, 123'450 - span / 3, 123'450 + span}, 300, 200'000, xs, ys);
    EXPECT_EQ(*std::max_element(ys.begin(), ys.end()), 1e6) << "span " << span;
    EXPECT_TRUE(std::is_sorted(xs.begin(), xs.end()));
  }
}

TEST(DriverLane, HoldsWhatTheDriverAllocated) {
  std::minstd_rand random(11);
  DriverModel driver;
  int64_t time = 1000;
  for (int i = 0; i < 500; ++i) {
    DriverAllocation a;
    time += 1 + static_cast<int64_t>(random() % 5);
    a.birth_ns = time;
    if (random() % 3 != 0) a.death_ns = time + static_cast<int64_t>(random() % 90);
    a.size_bytes = 1 + random() % 4096;
    a.address = random() % 4 == 0 ? 7 : 0x1000 * (1 + random() % 40);  // handles, and reuse
    a.kind = MemoryKind::kDevice;
    driver.allocations.push_back(a);
  }
  const AllocationHistory lane = history_of_driver(driver, 0);
  EXPECT_EQ(lane.anomalies, 0U) << "overlapping addresses are kept apart";
  for (int64_t at = 1000; at < time + 100; at += 3) {
    uint32_t event = 0;
    if (!lane.event_at(at, event)) continue;
    EXPECT_EQ(lane.totals_after(event).reserved, driver_state_at(driver, 0, at).card_bytes);
    EXPECT_EQ(lane.totals_after(event).allocated, driver_state_at(driver, 0, at).card_bytes);
  }
}

std::shared_ptr<const Model> recorded(const std::string& path) {
  auto model = load_model(path);
  EXPECT_TRUE(model) << model.error().message;
  return *model;
}

TEST(Recorded, ATraceWithoutAFrameworkHasLanesAndKernels) {
  const auto model = recorded(TIDEMARK_TRACES "/train");
  ASSERT_EQ(model->lanes.size(), 1U);
  const Lane& lane = model->lanes[0];
  EXPECT_TRUE(lane.of_driver);
  EXPECT_FALSE(lane.used.empty());
  EXPECT_EQ(lane.memory->reserved_peak.bytes,
            model->trace.processes[0].driver.devices.at(lane.device()).card_peak.bytes);
  EXPECT_EQ(model->activity[0].kernels, model->trace.rows_by_kind.at(BlockKind::kKernels));
  uint64_t drawn = 0;
  for (const ActivityRow& row : model->activity[0].rows) drawn += row.spans.size();
  EXPECT_EQ(drawn + model->activity[0].left_out, model->activity[0].kernels);
  const ActivityRow& row = model->activity[0].rows[0];
  Kernel kernel{};
  ASSERT_TRUE(read_kernel(*model->rows[0].reader, model->rows[0].id, row.spans.begin_ns(5),
                          row.stream, kernel));
  EXPECT_EQ(kernel.name, row.spans.item(5));
  EXPECT_EQ(kernel.start_ns + static_cast<int64_t>(kernel.duration_ns), row.spans.end_ns(5));
}

TEST(Recorded, TablesOfKernelsAndCollectivesAddUp) {
  const auto model = recorded(TIDEMARK_TRACES "/ranks/guilty4");
  for (uint32_t p = 0; p < model->activity.size(); ++p) {
    uint64_t kernels = 0;
    for (const KernelRow& row : kernel_rows(*model, p, INT64_MIN / 2, INT64_MAX, "", {})) {
      kernels += row.count;
      EXPECT_GE(row.total_ns, row.longest_ns);
    }
    EXPECT_EQ(kernels + model->activity[p].left_out, model->activity[p].kernels);
    const auto all = collective_rows(*model, p, INT64_MIN / 2, INT64_MAX, "", {});
    EXPECT_LE(all.size(), model->trace.processes[p].nccl.size());
    EXPECT_EQ(all.empty(), model->trace.processes[p].nccl.empty());
    EXPECT_TRUE(collective_rows(*model, p, INT64_MIN / 2, INT64_MAX, "no such call", {}).empty());
  }
}

TEST(Recorded, EveryFindingHasAPlace) {
  int findings = 0;
  for (const char* path :
       {"/scenarios/losses_kept.bad.tmk", "/scenarios/varying_sizes.bad.tmk",
        "/scenarios/batch_too_large.bad.tmk", "/scenarios/empty_cache_in_loop.bad.tmk",
        "/scenarios/many_communicators.bad", "/scenarios/other_process.bad",
        "/scenarios/rank0_logs.bad", "/scenarios/stray_contexts.bad"}) {
    const auto model = recorded(TIDEMARK_TEST_DATA + std::string(path));
    for (const Finding& f : model->report.findings) {
      const auto place = place_of(*model, f);
      ASSERT_TRUE(place) << path << ": " << f.id;
      EXPECT_FALSE(place->what.empty());
      Selection selection;
      selection.reset(*model);
      go_to(*model, selection, *place);
      EXPECT_EQ(selection.cursor.lane(), place->lane) << path << ": " << f.id;
      const double at = selection.cursor.time(*model);
      EXPECT_TRUE(at >= selection.view.range().begin && at <= selection.view.range().end)
          << path << ": " << f.id << ": the cursor is in view";
      ++findings;
    }
  }
  EXPECT_GE(findings, 8);
}

// Blocks that are collected within one step, late in the run: the steps themselves do not grow.
TEST(FindingPlace, AListIsShownFromItsFirstBlock) {
  const std::vector<std::string> frames = {"rollout train.py:56", "main train.py:101"};
  int64_t first_ns = 0;
  const auto model = told_model([&](Story& s) {
    for (int i = 0; i < 6; ++i) s.alloc(8 * kMiB, s.setup());
    for (uint64_t step = 0; step < 12; ++step) {
      std::vector<uint64_t> kept;
      for (int i = 0; i < 20; ++i) {
        kept.push_back(s.alloc((step + 1) * kMiB, s.stack(frames)));
        s.free(s.alloc(2 * kMiB, s.forward(1)));
      }
      for (const uint64_t block : kept) s.free(block);
      s.optimizer_mark();
    }
  });
  const AllocationHistory& m = *model->lanes[0].memory;
  uint32_t births = 0;
  for (const Allocation& a : m.allocations) {
    if (a.birth <= m.allocated_peak.event && a.release > m.allocated_peak.event &&
        a.block_bytes == 12 * kMiB && births++ == 0) {
      first_ns = a.birth_ns();
    }
  }
  ASSERT_GT(births, 10U);
  Finding f;
  f.id = "creep";
  f.frames = frames;
  const auto place = place_of(*model, f);
  ASSERT_TRUE(place);
  ASSERT_TRUE(place->range);
  EXPECT_LE(place->range->begin_ns, first_ns);
  EXPECT_GT(place->range->begin_ns, first_ns - 100'000'000);
  EXPECT_EQ(place->event, m.allocated_peak.event);
}

}  // namespace
}  // namespace tidemark::view
