// The panels about one instant: memory that sleeps, pinned host memory, and errors, whose numbers
// are those of the report.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/wording.h"
#include "export/report/report_wording.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "tests/support/serving_story.h"
#include "viewer/app/start_view.h"
#include "viewer/model/compare/change_rows.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/model/tables/owner_text.h"
#include "viewer/model/trace/loader.h"
#include "viewer/panels/timeline/lane_scale.h"

namespace tidemark::view {
namespace {

class MomentPanels : public Interaction {
 protected:
  static bool reads(const std::string& window, const std::string& what) {
    return read_window(window).find(without_spaces(what)) != std::string::npos;
  }
  void show(const char* panel) {
    ASSERT_TRUE(shell_->show_only(panel));
    frame(4);
  }
  // Moves the mouse over the panel until the tooltip says this.
  bool explains(const std::string& what) {
    for (float y = 60; y < 300; y += 8) {
      for (float x = 30; x < 1400; x += 90) {
        move({x, y});
        if (reads("##Tooltip", what)) return true;
      }
    }
    return false;
  }
};

TEST_F(MomentPanels, TheMapShowsWhatIsAsleep) {
  shell_->set_model(told_model(tell_serving));
  show("map");
  const std::string meaning = "asleep: counted by torch, not on the card";
  EXPECT_TRUE(reads("", "56.0 MiB " + meaning)) << "the legend";
  EXPECT_TRUE(reads("", "40.0 MiB asleep")) << "a row that sleeps as a whole";
  EXPECT_TRUE(reads("", "48.0 MiB 100.0 % used")) << "a row that sleeps in part";
  EXPECT_TRUE(explains("16.0 MiB of it " + meaning));
  EXPECT_TRUE(explains("work train.py:20" + meaning) || explains("old" + meaning));
  // Before it went to sleep, nothing is.
  selection().set_event(model(), 0, 1);
  frame(3);
  EXPECT_FALSE(reads("", "asleep"));
}

TEST_F(MomentPanels, TheMomentShowsWhatIsAsleepAndPinned) {
  shell_->set_model(told_model(tell_serving));
  show("moment");
  const std::string text = read_window("");
  for (const char* line :
       {"PyTorch, asleep 68.0 MiB 0 B 56.0 MiB", "Pinned host memory",
        "96.0 MiB pinned by the driver",
        "given out by PyTorch cached by PyTorch pinned by others 40.0 MiB 24.0 MiB 32.0 MiB "
        "41.7 % 25.0 % 33.3 %",
        "64.0 MiB work train.py:40 32.0 MiB work train.py:41"}) {
    EXPECT_NE(text.find(without_spaces(line)), std::string::npos) << line << " in " << text;
  }
}

// The card was read before the last allocation: then 15 of its 16 GiB were free.
TEST_F(MomentPanels, WhatIsFreeIsNotWhatTheCardSaidBefore) {
  shell_->set_model(told_model([](Story& s) {
    s.alloc(100 * kMiB, s.user(7));
    s.tick(50'000'000);
    s.counter(CounterKind::kDeviceUsed, uint64_t{1} << 30);
    s.tick(50'000'000);
    s.alloc(600 * kMiB, s.user(8));
  }));
  selection().set_event(model(), 0, model().lanes[0].memory->event_count() - 1);
  show("moment");
  EXPECT_TRUE(reads("", "free, estimated")) << read_window("");
  EXPECT_TRUE(reads("", "14.4 GiB")) << read_window("");
}

// One line calls several operations; together they hold more than any other line.
TEST_F(MomentPanels, TheStacksOfALineAreOneRow) {
  shell_->set_model(told_model([](Story& s) {
    s.alloc(50 * kMiB, s.user(7));
    for (const char* library : {"relu", "linear", "dropout"}) {
      const std::string inside = library + std::string(" site-packages/torch/nn/functional.py:5");
      s.alloc(20 * kMiB, s.stack({inside, "train train.py:10"}));
    }
  }));
  show("moment");
  EXPECT_TRUE(reads("", "Largest lines 60.0 MiB train  train.py:10 50.0 MiB work  train.py:7"))
      << read_window("");
}

TEST_F(MomentPanels, ALineOfTheTableIsOpenedToItsStacks) {
  shell_->set_model(told_model([](Story& s) {
    s.alloc(50 * kMiB, s.user(7));
    for (const char* library : {"relu", "linear", "dropout"}) {
      const std::string inside = library + std::string(" site-packages/torch/nn/functional.py:5");
      s.alloc(20 * kMiB, s.stack({inside, "train train.py:10"}));
    }
  }));
  show("tables");
  const TablesPanel& tables = shell_->panels().tables;
  EXPECT_EQ(tables.rows_shown(), 2U);
  EXPECT_TRUE(reads("", "train  train.py:10  3 call stacks")) << read_window("");
  for (float y = 60; y < 120 && tables.rows_shown() == 2; y += 6) click({60, y});
  EXPECT_EQ(tables.rows_shown(), 5U);
  for (const char* library : {"relu", "linear", "dropout"}) {
    EXPECT_TRUE(reads("", std::string("in ") + library)) << read_window("");
  }
  // The legend of their colours has one row for them, too.
  selection().colouring.by = ColourBy::kStack;
  show("map");
  EXPECT_TRUE(reads("", "train  train.py:10 60.0 MiB")) << read_window("");
}

// What is free in a private pool is of no use to others.
TEST_F(MomentPanels, TheMapTellsWhatIsFreeInPrivatePools) {
  open_file(TIDEMARK_TEST_DATA "/snapshots/graphs.pickle.gz");
  const Moment& moment = selection().cursor.moment(model());
  const AllocationHistory& memory = *model().lanes[0].memory;
  uint64_t of_pools = 0;
  for (const Hole& hole : moment.state.holes) {
    const SegmentRange& segment = moment.state.segments[hole.segment];
    if (memory.segment_changes[segment.change].pool != 0) of_pools += hole.size_bytes;
  }
  ASSERT_GT(of_pools, 0U);
  const uint64_t common = moment.state.free_bytes() - of_pools;
  show("map");
  EXPECT_TRUE(reads("", size_text(common) + " free in the default pool" + size_text(of_pools) +
                            " free in private pools, for them only"))
      << read_window("");
  EXPECT_TRUE(reads("", "1.0 MiB free, for pool 1 only")) << read_window("");
  shell_->panels().be_patient();
  show("stack:segment");
  EXPECT_TRUE(reads("", "free in the default pool " + size_text(common) + "free in private pools " +
                            size_text(of_pools)))
      << read_window("");
  EXPECT_TRUE(reads("", "pool 1, 0x7f152c000000")) << read_window("");
  open_file(TIDEMARK_TEST_DATA "/snapshots/default.pickle.gz");
  show("map");
  EXPECT_FALSE(reads("", "private pools")) << "there are none";
}

// However narrow the panel, the size of the largest hole is there, and whole.
// A hole of a hundredth of its segment, at its beginning, in its middle or at its end.
TEST_F(MomentPanels, TheLabelOfTheLargestHoleIsNotCut) {
  for (const float width : {1400.0F, 700.0F, 420.0F, 300.0F, 240.0F}) {
    ImGui::GetIO().DisplaySize = {width, 600};
    for (const uint64_t before : {uint64_t{0}, 490 * kMiB, 990 * kMiB}) {
      shell_->set_model(told_model([before](Story& s) {
        s.free(s.alloc(1000 * kMiB, s.user(1)));
        if (before != 0) s.alloc(before, s.user(2));
        const uint64_t hole = s.alloc(10 * kMiB, s.user(3));
        if (before != 990 * kMiB) s.alloc(990 * kMiB - before, s.user(4));
        s.free(hole);
      }));
      selection().set_event(model(), 0, model().lanes[0].memory->event_count() - 1);
      show("map");
      EXPECT_NE(read_window("##rows").find("10.0MiB"), std::string::npos)
          << before << " at " << width << ": " << read_window("##rows");
      std::vector<Letter> letters = drawn_letters();
      std::erase_if(letters,
                    [](const Letter& l) { return l.window.find("##rows") == std::string::npos; });
      EXPECT_TRUE(cut_letters(letters).empty()) << before << " at " << width;
    }
  }
}

TEST_F(MomentPanels, TheCurveOfTheWholeRunIsBesideAKeptWindow) {
  const auto tell = [](bool window) {
    return told_model([window](Story& s) {
      constexpr int64_t kHourNs = 3'600'000'000'000;
      for (int i = 0; i < 10; ++i) s.run_point((10 - i) * kHourNs, kMiB, 100 * kMiB, 0);
      if (window) s.kept_window();
      s.free(s.alloc(20 * kMiB, s.user(1)));
    });
  };
  const auto left_of_the_strip = [this] {
    std::string said;
    for (float y = 60; y < 120; y += 10) {
      move({40, y});
      frame(60);  // it is explained after a moment
      said += read_window("##Tooltip");
    }
    return said;
  };
  shell_->set_model(tell(true));
  show("timeline");
  EXPECT_NE(left_of_the_strip().find(without_spaces("The whole run of 10 h 0 min")),
            std::string::npos);
  shell_->set_model(tell(false));
  frame(6);
  EXPECT_EQ(left_of_the_strip().find(without_spaces("The whole run of")), std::string::npos);
}

// Nobody knows how old a block is that was there when the recording began.
TEST_F(MomentPanels, TheAgeOfWhatIsOlderThanTheRecordingIsUnknown) {
  shell_->set_model(told_model([](Story& s) {
    s.older_block(48 * kMiB);
    s.tick(5'000'000);
    s.alloc(16 * kMiB, s.user(7));
    s.tick(3'000'000);
    s.alloc(2 * kMiB, s.user(8));
  }));
  selection().set_event(model(), 0, model().lanes[0].memory->event_count() - 1);
  show("map");
  EXPECT_TRUE(explains("older than the recording"));
  EXPECT_TRUE(reads("##Tooltip", "48.0 MiB")) << read_window("##Tooltip");
  EXPECT_TRUE(explains("work train.py:7"));
  EXPECT_TRUE(reads("##Tooltip", "ms old")) << read_window("##Tooltip");
  EXPECT_FALSE(reads("##Tooltip", "older")) << read_window("##Tooltip");
}

// The same of what the driver had allocated, in a trace without a framework.
TEST_F(MomentPanels, TheAgeOfEarlierDriverMemoryIsUnknown) {
  shell_->set_model(told_model([](Story& s) {
    s.driver_alloc(48 * kMiB, "program", MemoryKind::kDevice, 0, 0, 0, kDriverSeeded);
    s.tick(5'000'000);
    s.driver_alloc(16 * kMiB, "program", MemoryKind::kDevice);
    s.tick(3'000'000);
    s.driver_alloc(2 * kMiB, "program", MemoryKind::kDevice);
  }));
  ASSERT_TRUE(model().lanes[0].of_driver);
  selection().set_event(model(), 0, model().lanes[0].memory->event_count() - 1);
  show("map");
  EXPECT_TRUE(reads("", "16.0 MiB 3.01 ms old")) << read_window("");
  EXPECT_FALSE(reads("", "8.02 ms old")) << "a made-up age: " << read_window("");
  EXPECT_TRUE(explains("older than the recording"));
}

// Annotations of a snapshot may be older than its first memory event. The number of what was
// recorded is not beside that of a device's events, which counts other things.
TEST_F(MomentPanels, TheStatusBarSaysTheTimeAsTheReportDoes) {
  open_file(TIDEMARK_TEST_DATA "/snapshots/annotated.pickle.gz");
  const std::string words = events_text(model().report);
  EXPECT_NE(words.find(", from +"), std::string::npos) << words;
  const std::string over = " over ";
  const std::string seen = read_window("##status");
  const std::string time = words.substr(words.find(over) + over.size());
  EXPECT_TRUE(seen.starts_with(without_spaces(time))) << seen;
}

TEST_F(MomentPanels, TheStatusBarCountsEventsAsTheReportDoes) {
  for (const char* path :
       {TIDEMARK_TEST_DATA "/snapshots/annotated.pickle.gz", TIDEMARK_TRACES "/leak",
        TIDEMARK_TRACES "/ranks/guilty4", TIDEMARK_TRACES "/torch/training.tier2.tmk"}) {
    open_file(path);
    EXPECT_GT(model().events, 0U);
    EXPECT_EQ(model().events, model().report.events) << path;
    const ImRect status = window("##status");
    move({status.Min.x + 20, status.GetCenter().y});
    frame(40);  // a tooltip comes after a while
    EXPECT_TRUE(reads("##Tooltip", counted(model().report.events, "memory event")))
        << path << ": " << read_window("##Tooltip");
  }
}

// The axis, the map and the status bar number the events of a device alike.
TEST_F(MomentPanels, TheStatusBarNumbersEventsAsTheAxisDoes) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  shell_->panels().timeline.options.by_event = true;
  frame(4);
  const AllocationHistory& memory = *model().lanes[0].memory;
  const std::string number = grouped(memory.event_number(selection().cursor.event()));
  const std::string all = grouped(memory.event_number(memory.event_count() - 1));
  EXPECT_TRUE(reads(TimelinePanel::kTitle, "event " + number));
  EXPECT_TRUE(reads(MapPanel::kTitle, "event " + number + " of " + all));
  EXPECT_TRUE(reads("##status", "cuda:0: event " + number + " of " + all))
      << read_window("##status");
}

TEST_F(MomentPanels, UnknownRequestsAreNotShownAsZero) {
  open_file(TIDEMARK_TRACES "/torch/out_of_memory.tier1.tmk");
  EXPECT_FALSE(model().lanes[0].requests_known);
  EXPECT_TRUE(reads(TimelinePanel::kTitle, "allocated 1008.0 MiB   reserved 1008.0 MiB"));
  show("moment");
  EXPECT_TRUE(reads("", "in use pending free cached 1008.0 MiB 0 B 0 B"));
  EXPECT_FALSE(reads("", "rounding"));
  EXPECT_FALSE(reads("", "requested 0 B"));
}

TEST_F(MomentPanels, EveryErrorOfOneEventIsReachedAndShown) {
  open_file(TIDEMARK_TRACES "/run_out");
  ASSERT_EQ(model().ooms.size(), 10U);
  EXPECT_TRUE(reads(TimelinePanel::kTitle, "10 OOMs, requested 2.0 MiB to 1.0 GiB"));
  selection().go_to_oom_at(model(), 0);
  show("moment");
  for (const OomPoint& oom : model().ooms) {
    EXPECT_EQ(selection().cursor.time_ns(model()), oom.time_ns);
    EXPECT_TRUE(reads("", "Out of memory: requested " + size_text(oom.requested_bytes)))
        << size_text(oom.requested_bytes);
    key(ImGuiKey_N);
  }
  EXPECT_EQ(selection().cursor.time_ns(model()), model().ooms.front().time_ns) << "goes around";
}

std::vector<std::string> traces_with_an_error() {
  std::vector<std::string> paths;
  for (const char* name : {"run_out", "torch/out_of_memory.tier1.tmk",
                           "torch/out_of_memory.tier2.tmk", "ranks/guilty4"}) {
    paths.push_back(std::string(TIDEMARK_TRACES "/") + name);
  }
  for (const char* name :
       {"adam_first_step.bad.tmk", "batch_too_large.bad.tmk", "full_precision.bad",
        "long_sequences.bad.tmk", "memory_fraction.bad.tmk", "varying_sizes.bad.tmk"}) {
    paths.push_back(std::string(TIDEMARK_TEST_DATA "/scenarios/") + name);
  }
  paths.emplace_back(TIDEMARK_TEST_DATA "/snapshots/oom_fraction.pickle.gz");
  return paths;
}

// `tidemark-view --time oom` and `tidemark report --at oom` are about the same instant, and say the
// same about it.
TEST_F(MomentPanels, AnErrorHasTheNumbersOfTheReport) {
  for (const std::string& path : traces_with_an_error()) {
    SCOPED_TRACE(path);
    open_file(path);
    ASSERT_TRUE(go_to_start({"", "oom", ""}, model(), selection()));
    const Lane& lane = model().lanes[selection().cursor.lane()];
    ReportOptions options;
    options.at.kind = tidemark::Instant::Kind::kOom;
    const auto report = make_report(model().trace, options);
    ASSERT_TRUE(report);
    const RankReport& rank = report->ranks[lane.process];
    const auto device =
        std::find_if(rank.devices.begin(), rank.devices.end(),
                     [&](const DeviceReport& d) { return d.device == lane.device(); });
    ASSERT_NE(device, rank.devices.end());
    const OomReport& oom = device->ooms.back();
    EXPECT_EQ(selection().cursor.time_ns(model()), oom.time_ns);
    const MemoryTotals& totals = selection().cursor.moment(model()).state.totals;
    if (!lane.of_driver) {
      EXPECT_EQ(totals, device->at_totals);
    }
    shell_->show_only("moment");
    frame(4);
    std::vector<std::string> lines = {"Out of memory: requested " + size_text(oom.requested_bytes)};
    if (oom.layer == Layer::kFramework) {
      lines.push_back(fmt::format("{} free on the card, largest usable hole {}",
                                  size_text(oom.device_free_bytes),
                                  size_texts(oom.largest_hole_bytes, oom.requested_bytes).first));
    }
    if (device->ledger.device_used_bytes != 0) {
      lines.push_back(size_text(device->ledger.device_used_bytes) + " used");
    }
    if (device->fragmentation.holes != 0) {
      lines.push_back("the largest " + size_text(device->fragmentation.largest_hole_bytes));
    }
    for (const std::string& line : lines) {
      EXPECT_TRUE(reads("", line)) << line << " in " << read_window("");
    }
    EXPECT_TRUE(reads("", instant_text(since_start(model(), oom.time_ns), model().span_ns())));
    // The limit is never below what was reserved.
    const uint64_t limit = own_limit(model(), lane);
    if (limit != 0) {
      EXPECT_EQ(within_limit_from(lane, limit), 0U);
    }
    shell_->show_only("timeline");
    frame(4);
    EXPECT_FALSE(reads("", "requested 0 B"));
    if (!lane.of_driver) {
      // With more digits where they would read the same.
      const auto told = [&](const std::string& name, uint64_t bytes) {
        return reads("", name + size_text(bytes)) ||
               reads("", name + size_texts(bytes, totals.allocated).first) ||
               reads("", name + size_texts(bytes, totals.requested).first) ||
               reads("", name + size_texts(bytes, totals.reserved).first);
      };
      EXPECT_TRUE(told("allocated ", totals.allocated)) << read_window("");
      EXPECT_TRUE(told("reserved ", totals.reserved)) << read_window("");
    }
  }
}

// A fraction that is lowered after more was reserved.
TEST_F(MomentPanels, ALoweredLimitIsDrawnOnlyWhereTheProcessStayedWithinIt) {
  shell_->set_model(told_model([](Story& s) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(s.alloc(64 * kMiB, s.user(1)));
    for (const uint64_t block : blocks) s.free(block);
    s.empty_cache(0);
    s.alloc(64 * kMiB, s.user(2));
    s.run_out(100 * kMiB, uint64_t{10} << 30, s.user(3));
    s.report_limit(128 * kMiB);
  }));
  const Lane& lane = model().lanes[0];
  ASSERT_EQ(own_limit(model(), lane), 128 * kMiB);
  ASSERT_GT(lane.memory->reserved_peak.bytes, 128 * kMiB);
  const uint32_t from = within_limit_from(lane, 128 * kMiB);
  ASSERT_LT(from, lane.memory->event_count());
  ASSERT_GT(from, 0U);
  for (uint32_t e = from; e < lane.memory->event_count(); ++e) {
    EXPECT_LE(lane.memory->totals_after(e).reserved, 128 * kMiB) << e;
  }
  EXPECT_GT(lane.memory->totals_after(from - 1).reserved, 128 * kMiB);
  frame(4);
  EXPECT_TRUE(reads(TimelinePanel::kTitle, "allocator limit 128.0 MiB"));
}

TEST(SizeTexts, DifferWhereTheSizesDo) {
  EXPECT_EQ(size_texts(4190208, 4194304).first, "3.996 MiB");
  EXPECT_EQ(size_texts(4194304, 4194304).first, "4.0 MiB");
  EXPECT_EQ(size_texts(0, 4194304).first, "0 B");
}

TEST_F(MomentPanels, ATimeAfterTheEndIsAnError) {
  open_file(TIDEMARK_TRACES "/torch/out_of_memory.tier1.tmk");
  const Status s = go_to_start({"", "100s", ""}, model(), selection());
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().message.find("the trace ends at 562 ms: it has no 100.000 s"),
            std::string::npos)
      << s.error().message;
}

// A line that calls something else is another line, however near; one that moved is the same.
TEST_F(MomentPanels, LinesAreComparedByWhatTheyCall) {
  const auto run = [](int line, const char* first, int second_line, uint64_t mib) {
    return told_model([=](Story& s) {
      const auto call = [&](const char* function, int at) {
        return s.stack({std::string(function) + " site-packages/torch/functional.py:5",
                        "main train.py:" + std::to_string(at)});
      };
      s.alloc(mib * kMiB, call(first, line));
      s.alloc(mib * 2 * kMiB, call("linear", second_line));
    });
  };
  const std::shared_ptr<const Model> before = run(12, "relu", 20, 2);
  shell_->set_model(run(15, "_init_group", 23, 50));
  const Lane& old = before->lanes[0];
  selection().go_to_peak(model());
  Selection there;
  there.reset(*before);
  there.go_to_peak(*before);
  std::map<std::string, std::pair<uint64_t, uint64_t>> rows;
  for (const ChangeRow& row :
       change_rows(model(), model().lanes[0], selection().cursor.moment(model()),
                   {*before, old, there.cursor.moment(*before)})) {
    rows[without_spaces(row.name)] = {row.before / kMiB, row.after / kMiB};
  }
  EXPECT_EQ(rows["maintrain.py:12"], std::pair(uint64_t{2}, uint64_t{0}));
  EXPECT_EQ(rows["maintrain.py:15"], std::pair(uint64_t{0}, uint64_t{50}));
  EXPECT_EQ(rows["maintrain.py:23(was:20)"], std::pair(uint64_t{4}, uint64_t{100}));
}

// Two blocks of 30 MiB stay: one from before the steps, one that the first step made. The others
// are freed in a step, or made in a later one.
TEST_F(MomentPanels, BlocksThatLiveThroughAllSteps) {
  shell_->set_model(told_model([](Story& s) {
    s.alloc(30 * kMiB, s.setup());
    for (int step = 0; step < 6; ++step) {
      const uint64_t kept = s.alloc(40 * kMiB, s.forward(step));
      s.free(s.alloc(20 * kMiB, s.forward(20)));
      if (step == 0) s.alloc(30 * kMiB, s.optimizer("init"));
      if (step == 3) s.alloc(30 * kMiB, s.user(8));
      s.optimizer_mark();
      s.free(kept);
    }
    s.alloc(kMiB, s.user(9));
  }));
  show("tables:allocations");
  ASSERT_EQ(model().steps_of(model().lanes[0]).count(), 6U);
  EXPECT_TRUE(reads("", "alive through all steps")) << "can be chosen";
  EXPECT_FALSE(reads("", "from step 0"));
  show("tables:all-steps");
  const std::string said = "2 blocks, 60.0 MiB, from step 0 to step 5";
  EXPECT_TRUE(reads("", said)) << read_window("");
  EXPECT_TRUE(reads("", "optimizer state 30.0 MiB in 1 block")) << read_window("");
  EXPECT_EQ(shell_->panels().tables.rows_shown(), 2U);
  selection().set_event(model(), 0, 0);
  frame(4);
  EXPECT_TRUE(reads("", said)) << "wherever the cursor is: " << read_window("");

  shell_->set_model(told_model([](Story& s) { s.alloc(30 * kMiB, s.user(7)); }));
  show("tables:all-steps");
  EXPECT_TRUE(reads("", "The trace does not have two steps.")) << read_window("");
}

TEST_F(MomentPanels, ASearchSaysHowManyBlocksItFinds) {
  shell_->set_model(told_model([](Story& s) {
    for (int i = 0; i < 3; ++i) s.alloc(10 * kMiB, s.user(7));
    s.alloc(50 * kMiB, s.user(8));
  }));
  selection().highlights.search = "train.py:7";
  show("tables:allocations");
  EXPECT_TRUE(reads("", "3 blocks found at the cursor, 30.0 MiB")) << read_window("");
  const uint32_t first = model().lanes[0].memory->allocations[0].birth;
  selection().set_event(model(), 0, first);
  frame(4);
  EXPECT_TRUE(reads("", "1 block found at the cursor, 10.0 MiB")) << read_window("");
  selection().highlights.search.clear();
  frame(4);
  EXPECT_FALSE(reads("", "found at the cursor")) << "all of them";
}

// 40 MiB are free for the stream of the request, and 60 MiB for another one.
TEST_F(MomentPanels, TheMapShowsTheRequestThatFailed) {
  shell_->set_model(told_model([](Story& s) {
    const uint64_t first = s.alloc(40 * kMiB, s.user(1));
    s.free(first);
    s.on(9, 0);
    s.free(s.alloc(60 * kMiB, s.user(2)));
    s.on(0, 0);
    s.run_out(50 * kMiB, kMiB, s.user(3));
  }));
  ASSERT_TRUE(go_to_start({"", "oom", ""}, model(), selection()));
  show("map");
  EXPECT_TRUE(reads("",
                    "asked for 50.0 MiB: the largest hole it could use is 40.0 MiB "
                    "(60.0 MiB is free for another stream, pool or size only); "
                    "1.0 MiB free on the card"))
      << read_window("");
  EXPECT_TRUE(reads("", "the request that failed"));
  EXPECT_TRUE(reads("", "largest usable hole 40.0 MiB"));
  EXPECT_TRUE(reads("", "10.0 MiB missing"));
  const uint64_t hole = selection().cursor.moment(model()).state.holes[0].address;
  const std::optional<ImVec2> bar = place_of_text("", "largest usable hole 40.0 MiB");
  ASSERT_TRUE(bar);
  click(*bar);
  EXPECT_EQ(selection().highlights.hole, hole) << "not the larger one of another stream";
  show("block");
  EXPECT_TRUE(reads("", "hole of 40.0 MiB")) << read_window("");
  show("map");
  selection().set_event(model(), 0, 0);
  frame(4);
  EXPECT_FALSE(reads("", "asked for"));
}

// Of a segment of 2 GiB, 3 MiB are free: a few pixels, or less than one.
TEST_F(MomentPanels, TheLargestHoleIsLabelledHoweverNarrow) {
  for (const uint64_t hole : {3 * kMiB, kMiB / 2}) {
    shell_->set_model(told_model([hole](Story& s) {
      const uint64_t all = s.alloc(2048 * kMiB, s.user(1));
      s.free(all);
      s.alloc(1000 * kMiB, s.user(2));
      const uint64_t gap = s.alloc(hole, s.user(3));
      s.alloc(1048 * kMiB - hole, s.user(4));
      s.free(gap);
    }));
    const Lane& lane = model().lanes[0];
    selection().set_event(model(), 0, lane.memory->event_count() - 1);
    show("map");
    ASSERT_EQ(selection().cursor.moment(model()).state.holes.size(), 1U);
    EXPECT_TRUE(reads("##rows", "largest hole " + size_text(hole))) << read_window("");
  }
}

// A category that was inferred, and of which the report is not sure.
TEST_F(MomentPanels, ProbablyIsSaidInEveryPanel) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/validation_with_grad.bad.tmk");
  selection().go_to_peak(model());
  selection().colouring.by = ColourBy::kCategory;
  shell_->panels().be_patient();
  const std::string words = "activation, probably";
  EXPECT_EQ(category_text(model(), model().lanes[0], Category::kActivation), words);
  EXPECT_EQ(category_text(model(), model().lanes[0], Category::kOptimizerState), "optimizer state");
  for (const char* panel : {"map", "moment", "tables:allocations", "tables:categories"}) {
    show(panel);
    EXPECT_TRUE(reads("", words)) << panel << ": " << read_window("");
  }
  show("stack:category");
  EXPECT_TRUE(reads("##legend", words)) << read_window("##legend");
  const auto& blocks = model().lanes[0].memory->allocations;
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    if (blocks.category(b) != Category::kActivation) continue;
    selection().choose_allocation(b);
    break;
  }
  show("block");
  EXPECT_TRUE(reads("", words)) << read_window("");
}

TEST_F(MomentPanels, BlocksWithoutAStackAreNamedAsInTheReport) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/validation_with_grad.bad.tmk");
  selection().go_to_peak(model());
  show("moment");
  EXPECT_TRUE(reads("", "(no Python stack: backward pass or another C++ thread)"))
      << read_window("");
  // Without Python stacks, that says nothing.
  shell_->set_model(told_model([](Story& s) { s.alloc(30 * kMiB, 0); }));
  show("moment");
  EXPECT_TRUE(reads("", "(no stack recorded)")) << read_window("");
}

// Its blocks do not say of which private pool they are, its segments do.
TEST_F(MomentPanels, PrivatePoolsOfSegmentsAreNamed) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/graph_pools.bad.tmk");
  selection().go_to_peak(model());
  shell_->panels().be_patient();
  show("stack:stream");
  EXPECT_TRUE(reads("##legend", "private pool 1, stream 0x")) << read_window("##legend");
  EXPECT_TRUE(reads("##legend", "private pool 2, stream 0x")) << read_window("##legend");
  const StackIndex& index = *shell_->panels().stack.view().picture()->index;
  for (const char* name : {"private pool 1, stream 0x3b0f6070", "private pool 3, stream 0x3b0f6070",
                           "stream 0x3b0f6070"}) {
    EXPECT_EQ(std::count(index.names.begin(), index.names.end(), name), 1) << name;
  }
  show("map");
  EXPECT_TRUE(reads("##rows", "% used private pool 1, stream 0x3b0f6070")) << read_window("##rows");
  EXPECT_TRUE(reads("##rows", "largest hole 20.0 MiB, one of 3, for private pool 1 only"));
  show("tables:segments");
  EXPECT_TRUE(reads("", "private pool 1, stream 0x3b0f6070")) << read_window("");
  ImGui::GetIO().DisplaySize = {640, 480};
  frame(4);
  EXPECT_TRUE(reads("", "private pool 1")) << read_window("");
}

// Only a refusal is known of it.
TEST_F(MomentPanels, TheMapSaysThatALimitMayBeHigher) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/varying_sizes.bad.tmk");
  selection().go_to_oom_at(model(), 0);
  show("map");
  EXPECT_TRUE(reads("", "the allocator's own limit is at least 1008.0 MiB")) << read_window("");
}

TEST_F(MomentPanels, OtherProcessesMayBeRanksOfTheJob) {
  open_file(TIDEMARK_TEST_DATA "/planted/seed00054/trace");
  const Lane& lane = model().lanes[0];
  selection().set_time(model(), 0, 4.193e9);
  show("moment");
  const std::string words = "other processes (also ranks of this job)";
  EXPECT_TRUE(reads("", words)) << read_window("");
  EXPECT_EQ(owner_text(model(), lane, "nccl", selection().cursor.time_ns(model())), "NCCL");
  // After the end of the other one.
  const int64_t end_ns = model().end_of(model().trace.processes[1]);
  EXPECT_EQ(owner_text(model(), lane, "other_processes", end_ns), words);
  EXPECT_EQ(owner_text(model(), lane, "other_processes", end_ns + 1), "other processes");
}

// A block on a stream in a private pool: the same words in every panel.
TEST_F(MomentPanels, AStreamAndItsPoolHaveOneName) {
  EXPECT_EQ(stream_text(0), "default stream");
  EXPECT_EQ(stream_text(7), "stream 7");
  EXPECT_EQ(stream_text(0x55fb5c2a1900), "stream 0x55fb5c2a1900");
  shell_->set_model(told_model([](Story& s) {
    s.alloc(30 * kMiB, s.user(1));
    s.on(0x55fb5c2a1900, 2);
    s.alloc(40 * kMiB, s.user(2));
  }));
  const AllocationColumns& blocks = model().lanes[0].memory->allocations;
  const std::string name = stream_text(blocks[1].stream, blocks[1].pool);
  EXPECT_EQ(name, "private pool 2, stream 0x55fb5c2a1900");
  selection().set_event(model(), 0, model().lanes[0].memory->event_count() - 1);
  shell_->panels().be_patient();
  show("stack:stream");
  EXPECT_TRUE(reads("##legend", "default stream")) << read_window("##legend");
  EXPECT_TRUE(reads("##legend", name)) << read_window("##legend");
  show("tables:segments");
  EXPECT_TRUE(reads("", "default stream")) << read_window("");
  EXPECT_TRUE(reads("", "private pool 2")) << read_window("");
  selection().choose_allocation(1);
  show("block");
  EXPECT_TRUE(reads("", name)) << read_window("");
}

}  // namespace
}  // namespace tidemark::view
