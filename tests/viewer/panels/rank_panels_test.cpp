// Many ranks, two ranks, two traces: the numbers are exact, and a click goes to the right place.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/wording.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "tests/support/rank_trace.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/serving_story.h"
#include "viewer/model/compare/change_rows.h"
#include "viewer/model/flame/flame_tree.h"
#include "viewer/model/ranks/rank_heat.h"
#include "viewer/model/stack/steps_apart.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {
namespace {

std::shared_ptr<const Model> load(const std::string& name) {
  auto model = load_model(std::string(TIDEMARK_TRACES) + "/" + name);
  return model ? *model : nullptr;
}

class Ranks : public Interaction {
 protected:
  void show(std::shared_ptr<const Model> model) {
    shell_->set_model(std::move(model));
    frame(6);
    key(ImGuiKey_7);
    frame(3);
  }
  // A point of the heat map: the middle of a drawn row, at a fraction of the time.
  ImVec2 in_heat(size_t row, size_t rows, float share) {
    ImGuiWindow* w = ImGui::FindWindowByName(RanksPanel::kTitle);
    const ImGuiID id = w->GetID("##heat");
    // Find the button's rectangle by moving over the window until it is the hovered item.
    if (area_.GetWidth() < 1) {
      area_ = {1e9F, 1e9F, -1e9F, -1e9F};
      const ImRect r = w->Rect();
      for (float y = r.Min.y + 30; y < r.Max.y; y += 3) {
        move_once({r.Min.x + r.GetWidth() / 2, y});
        if (ImGui::GetCurrentContext()->HoveredIdPreviousFrame != id) continue;
        area_.Min.y = std::min(area_.Min.y, y - 1);
        area_.Max.y = std::max(area_.Max.y, y + 1);
      }
      area_.Min.x = r.Min.x + 12 + 76;
      area_.Max.x = r.Max.x - 12;
    }
    const float y = (static_cast<float>(row) + 0.5F) / static_cast<float>(rows);
    return {area_.Min.x + area_.GetWidth() * share, area_.Min.y + area_.GetHeight() * y};
  }
  void move_once(ImVec2 to) {
    ImGui::GetIO().AddMousePosEvent(to.x, to.y);
    frame(2);
  }

  ImRect area_;
};

// Snapshots of three ranks, one of which is the first to end.
TEST_F(Ranks, NothingIsDrawnAfterTheLastEventOfASnapshot) {
  const auto loaded = load_model(TIDEMARK_TEST_DATA "/scenarios/larger_images_on_one_rank.bad");
  ASSERT_TRUE(loaded);
  const Model& model = **loaded;
  ASSERT_EQ(model.lanes.size(), 3U);
  for (const Lane& lane : model.lanes) {
    EXPECT_EQ(model.end_of(lane), model.process_of(lane).last_ns);
    EXPECT_GE(model.end_of(lane), lane.memory->time_ns.back());
  }
  EXPECT_LT(model.end_of(model.lanes[1]), model.trace.end_ns);
}

TEST_F(Ranks, TheColumnsOfAComparisonHaveNames) {
  show(load("ranks/guilty4"));
  selection().compare_with(model(),
                           {false, 1, model().lanes[1].memory->allocated_peak.event, false});
  ASSERT_TRUE(shell_->show_only("compare"));
  frame(4);
  const std::string table = read_window("##changes");
  for (const uint32_t lane : {selection().cursor.lane(), 1U}) {
    const std::string& name = model().lanes[lane].name;
    EXPECT_NE(table.find(without_spaces(name)), std::string::npos) << name << " in " << table;
  }
}

TEST_F(Ranks, TheScaleSaysWhatNoDataLooksLike) {
  show(load("ranks/guilty4"));
  const std::string seen = read_window(RanksPanel::kTitle);
  for (const char* key : {"after the last event", "no data"}) {
    EXPECT_NE(seen.find(without_spaces(key)), std::string::npos) << key;
  }
}

// A job of more ranks than are loaded: all are drawn by their summaries, and a click loads one.
TEST_F(Ranks, OfVeryManyTheChosenOnesAreLoaded) {
  constexpr size_t kRanks = 70;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const test::ScratchDirectory folder;
  test::RankTrace made;
  made.world_size = kRanks;
  made.collectives = 20;
  made.events = 40;
  for (made.rank = 0; made.rank < static_cast<int64_t>(kRanks); ++made.rank) {
    made.seed = static_cast<uint64_t>(made.rank) + 1;
    made.keeps_bytes = (made.rank == 33 ? 300 : 20) * kMiB;
    ASSERT_TRUE(test::write_rank_trace(made, folder / fmt::format("rank{}.tmk", made.rank)));
  }
  ImGui::GetIO().DisplaySize = {1400, 1400};
  const auto loaded = load_model(folder.path());
  ASSERT_TRUE(loaded) << loaded.error().message;
  show(*loaded);
  const auto ranks_loaded = [&] {
    std::vector<int64_t> ranks;
    for (const ProcessModel& p : shell_->model()->trace.processes) ranks.push_back(p.info.rank);
    return ranks;
  };
  ASSERT_NE(shell_->model()->job, nullptr);
  ASSERT_EQ(ranks_loaded().size(), 2u);
  EXPECT_EQ(ranks_loaded()[0], 33);
  EXPECT_EQ(shell_->model()->report.comparison.highest.rank, 33);

  const RankRows rows = RankRows::of(*shell_->model());
  ASSERT_EQ(rows.size(), kRanks);
  RankHeat heat;
  heat.want(*shell_->model(), rows, RankValue::kAllocated, {0, shell_->model()->span_ns()}, 100);
  ASSERT_TRUE(heat.work(-1));
  for (size_t row = 0; row < kRanks; ++row) {
    uint64_t most = 0;
    for (uint32_t c = 0; c < 100; ++c) {
      const uint64_t bytes = heat.shown().at(row, c);
      if (bytes != HeatTable::kUnknown) most = std::max(most, bytes);
    }
    EXPECT_EQ(most, (row == 33 ? 300 : 20) * kMiB + 39 * 512) << row;
  }

  click(in_heat(50, kRanks, 0.7F));
  for (int i = 0; i < 20'000 && shell_->reloading(); ++i) {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(ranks_loaded().size(), 2u);
  EXPECT_EQ(ranks_loaded()[0], 50);
  const Lane& lane = shell_->model()->lanes[shell_->selection().cursor.lane()];
  EXPECT_EQ(shell_->model()->process_of(lane).info.rank, 50);
  EXPECT_NEAR(shell_->selection().cursor.time(*shell_->model()), 0.7 * shell_->model()->span_ns(),
              0.05 * shell_->model()->span_ns());
  EXPECT_EQ(shell_->error(), "");
}

TEST_F(Ranks, ProcessesWithoutARankHaveNamesThatFit) {
  open_file(TIDEMARK_TRACES "/all_kinds");
  ASSERT_EQ(model().lanes.size(), 2U);
  ASSERT_TRUE(shell_->show_only("ranks"));
  frame(4);
  for (const Lane& lane : model().lanes) {
    const std::string name = fmt::format("pid {}", model().process_of(lane).info.pid);
    EXPECT_NE(read_window("##only").find(without_spaces(name)), std::string::npos)
        << name << " in " << read_window("##only");
  }
}

TEST_F(Ranks, TheTimelineHasOneScaleForAllRanksUnlessAskedOtherwise) {
  ImGui::GetIO().DisplaySize = {1400, 2000};
  shell_->set_model(load("ranks/guilty4"));
  frame(6);
  TimelinePanel& timeline = shell_->panels().timeline;
  ASSERT_EQ(model().lanes.size(), 4U);
  const double top = timeline.drawn(0).top_bytes;
  for (uint32_t i = 0; i < 4; ++i) {
    const Lane& lane = model().lanes[i];
    EXPECT_EQ(timeline.drawn(i).top_bytes, top);
    EXPECT_GE(top, static_cast<double>(lane.memory->reserved_peak.bytes));
    EXPECT_LT(top, static_cast<double>(lane.used.peak())) << "the card's use sets no scale";
  }
  timeline.options.own_scale = true;
  frame(2);
  EXPECT_LT(timeline.drawn(0).top_bytes, timeline.drawn(2).top_bytes / 2);
  EXPECT_LE(timeline.drawn(2).top_bytes, top);
}

TEST_F(Ranks, TheTimelineAndThePanelBesideItAgreeOnTheCardsUse) {
  ImGui::GetIO().DisplaySize = {1400, 2000};
  shell_->set_model(load("ranks/guilty4"));
  frame(6);
  key(ImGuiKey_5);
  for (const double share : {0.3, 0.5, 0.83, 0.9}) {
    selection().set_time(model(), 2, model().span_ns() * share);
    frame(3);
    const Lane& lane = model().lanes[2];
    const uint64_t used = lane.ledger->at(selection().cursor.time_ns(model())).device_used_bytes;
    ASSERT_NE(used, 0U);
    const auto reads = [&](const char* window, const std::string& what) {
      return read_window(window).find(without_spaces(what)) != std::string::npos;
    };
    EXPECT_TRUE(reads(MomentPanel::kTitle, size_text(used) + " used")) << share;
    EXPECT_TRUE(reads(TimelinePanel::kTitle, "card used " + size_text(used))) << share;
  }
  for (const float share : {0.4F, 0.6F, 0.765F, 0.8F}) {
    click(in_timeline(share, 0.1F));
    frame(3);
    const Lane& lane = model().lanes[selection().cursor.lane()];
    const uint64_t used = lane.card_used_at(selection().cursor.time_ns(model()));
    const std::string tooltip = read_window("##Tooltip");
    EXPECT_NE(tooltip.find(without_spaces("card used " + size_text(used))), std::string::npos)
        << share << ": " << size_text(used) << " in " << tooltip;
  }
}

TEST_F(Ranks, HeatEqualsBruteForce) {
  SyntheticOptions options;
  options.ranks = 5;
  options.events = 700;
  options.spike_bytes = uint64_t{3} << 30;
  const auto model = model_of(options);
  const RankRows rows = RankRows::of(*model);
  ASSERT_EQ(rows.size(), 5U);
  const VisibleRange view{model->span_ns() * 0.1, model->span_ns() * 0.9};
  const uint32_t columns = 37;
  RankHeat heat;
  for (const RankValue curve : {RankValue::kAllocated, RankValue::kReserved}) {
    heat.want(*model, rows, curve, view, columns);
    while (!heat.work(0)) EXPECT_LT(heat.progress(), 1);
    const HeatTable& t = heat.shown();
    for (size_t r = 0; r < rows.size(); ++r) {
      const AllocationHistory& m = *model->lanes[rows.lanes[r]].memory;
      uint32_t event = 0;
      uint64_t now = HeatTable::kUnknown;
      const auto value = [&](uint32_t e) {
        const MemoryTotals totals = m.totals_after(e);
        return curve == RankValue::kAllocated ? totals.allocated : totals.reserved;
      };
      const auto time = [&](uint32_t e) {
        return static_cast<double>(m.time_ns[e] - model->trace.start_ns);
      };
      for (; event < m.event_count() && time(event) < view.begin; ++event) now = value(event);
      for (uint32_t c = 0; c < columns; ++c) {
        const double right = view.begin + view.span() * (static_cast<double>(c + 1) / columns);
        uint64_t most = now;
        for (; event < m.event_count() && time(event) < right; ++event) {
          now = value(event);
          most = most == HeatTable::kUnknown ? now : std::max(most, now);
        }
        ASSERT_EQ(t.at(r, c), most) << "row " << r << ", column " << c;
      }
    }
  }
}

TEST_F(Ranks, ClickOnACellSelectsRankAndTime) {
  SyntheticOptions options;
  options.ranks = 4;
  options.events = 2000;
  options.oom = false;
  show(model_of(options));
  click(in_heat(2, 4, 0.7F));
  EXPECT_EQ(selection().cursor.lane(), 2U);
  const VisibleRange view = selection().view.range();
  EXPECT_NEAR(selection().cursor.time(model()), view.begin + view.span() * 0.7, view.span() * 0.02);
  click(in_heat(0, 4, 0.3F));
  EXPECT_EQ(selection().cursor.lane(), 0U);

  hold(ImGuiMod_Ctrl, true);
  click(in_heat(3, 4, 0.5F));
  hold(ImGuiMod_Ctrl, false);
  ASSERT_TRUE(selection().comparison.reference());
  EXPECT_EQ(selection().cursor.lane(), 0U) << "the cursor stays";
  EXPECT_EQ(selection().comparison.reference()->lane, 3U);
  EXPECT_NEAR(selection().comparison.time(model()), selection().cursor.time(model()), 1e5);
  click(in_heat(0, 4, 0.6F));
  EXPECT_NEAR(selection().comparison.time(model()), selection().cursor.time(model()), 1e5)
      << "it follows";

  const double span = selection().view.range().span();
  ImGui::GetIO().AddMouseWheelEvent(0, 2);
  frame();
  EXPECT_LT(selection().view.range().span(), span);
}

TEST_F(Ranks, TheGuiltyOneIsFoundInARecordedJob) {
  show(load("ranks/guilty4"));
  ASSERT_NE(shell_->model(), nullptr);
  const RankRows rows = RankRows::of(model());
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows.outlier(model()), 2U);
  EXPECT_EQ(rows.name(model(), 2), "rank 2");
  ASSERT_EQ(model().report.comparison.stuck.size(), 1U);
  // The line about the stuck collective is a link to the rank that the others wait for.
  selection().set_event(model(), rows.lanes[0], 0);
  frame();
  ImRect line;
  for (const ImGuiWindow* w : ImGui::GetCurrentContext()->Windows) {
    if (std::string(w->Name).find("##stuck") != std::string::npos) line = w->Rect();
  }
  ASSERT_GT(line.GetHeight(), 5);
  click({line.Min.x + 60, line.Min.y + 8});
  EXPECT_EQ(selection().cursor.lane(), rows.lanes[2]);
  const auto since =
      static_cast<double>(model().report.comparison.stuck[0].since_ns - model().trace.start_ns);
  EXPECT_NEAR(selection().cursor.time(model()), since, 0.2e9);
}

TEST_F(Ranks, AThousandRanksAreDrawnInBothViews) {
  SyntheticOptions options;
  options.ranks = 1000;
  options.events = 60;
  show(model_of(options));
  for (int i = 0; i < 500 && shell_->unfinished(); ++i) frame(1);
  EXPECT_FALSE(shell_->unfinished());
  // Neighbours share a row; a click selects the highest of them.
  click(in_heat(1, 2, 0.5F));
  EXPECT_GT(selection().cursor.lane(), 500U);
  shell_->panels().ranks.curves = true;
  frame(3);
  const ImDrawData* drawn = ImGui::GetDrawData();
  EXPECT_LT(drawn->TotalVtxCount, 600'000) << "only what is visible is drawn";
}

TEST_F(Ranks, TwoRanksInOnePlot) {
  show(load("ranks/guilty4"));
  const RankRows rows = RankRows::of(model());
  selection().set_event(model(), rows.lanes[2], 0);
  selection().compare_with(model(), {false, rows.lanes[1], 0, true});
  key(ImGuiKey_8);
  frame(3);
  const auto peak = [&](size_t row) {
    return static_cast<double>(model().lanes[rows.lanes[row]].memory->allocated_peak.bytes);
  };
  EXPECT_EQ(shell_->panels().compare.drawn_top[0], peak(2));
  EXPECT_EQ(shell_->panels().compare.drawn_top[1], peak(1));
}

TEST_F(Ranks, DifferenceOfRanksAddsUp) {
  const auto model = load("ranks/guilty4");
  Selection s;
  s.reset(*model);
  const RankRows rows = RankRows::of(*model);
  const auto peak = [&](size_t r) {
    return model->lanes[rows.lanes[r]].memory->allocated_peak.event;
  };
  s.set_event(*model, rows.lanes[2], peak(2));
  s.compare_with(*model, {false, rows.lanes[1], peak(1), false});
  const auto before = s.compared(*model);
  ASSERT_TRUE(before);
  const Lane& lane = model->lanes[s.cursor.lane()];
  const auto net = static_cast<int64_t>(s.cursor.moment(*model).state.totals.allocated) -
                   static_cast<int64_t>(before->moment.state.totals.allocated);
  const FlameTree tree =
      FlameTree::difference({model->process_of(before->lane).names, before->moment.live},
                            {model->process_of(lane).names, s.cursor.moment(*model).live});
  EXPECT_EQ(tree.nodes[0].net, net);
  EXPECT_GT(tree.nodes.size(), 5U);
  for (const FlameNode& n : tree.nodes) {
    EXPECT_LE(static_cast<uint64_t>(n.net < 0 ? -n.net : n.net), n.bytes);
    EXPECT_LE(n.begin + n.bytes, tree.nodes[0].bytes);
  }
  // Both ranks ran the same code: most of it must be matched although ids differ.
  const auto other = std::count_if(tree.nodes.begin(), tree.nodes.end(),
                                   [](const FlameNode& n) { return n.other; });
  EXPECT_LT(static_cast<size_t>(other) * 4, tree.nodes.size());

  std::map<std::string, int64_t> changes;
  std::string heading;
  for (const ChangeRow& row : change_rows(*model, lane, s.cursor.moment(*model), *before)) {
    if (row.heading) heading = row.name;
    if (!row.heading) changes[heading] += row.change();
  }
  EXPECT_EQ(changes["by line, at these two instants"], net);
  EXPECT_EQ(changes["by category, at these two instants"], net);
  EXPECT_TRUE(changes.contains("peaks of both"));
}

TEST_F(Ranks, TwoInstantsOfOneRankHaveNoPeaksToCompare) {
  const auto model = load("torch/training.tier2.tmk");
  ASSERT_NE(model, nullptr);
  Selection s;
  s.reset(*model);
  s.go_to_peak(*model);
  const Lane& lane = model->lanes[s.cursor.lane()];
  const Moment now = s.cursor.moment(*model);
  const Compared itself{*model, lane, now};
  for (const ChangeRow& row : change_rows(*model, lane, now, itself)) {
    EXPECT_EQ(row.name.find("peak"), std::string::npos) << row.name;
  }
}

TEST_F(Ranks, DifferenceWithItselfIsEmpty) {
  const auto a = load("torch/training.tier2.tmk");
  const auto b = load("torch/training.tier2.tmk");
  ASSERT_NE(a, nullptr);
  Selection s;
  s.reset(*a);
  s.go_to_peak(*a);
  s.set_other(*a, b);
  const auto before = s.compared(*a);
  ASSERT_TRUE(before);
  EXPECT_EQ(&before->model, b.get());
  const Lane& lane = a->lanes[s.cursor.lane()];
  const FlameTree tree =
      FlameTree::difference({b->process_of(before->lane).names, before->moment.live},
                            {a->process_of(lane).names, s.cursor.moment(*a).live});
  EXPECT_EQ(tree.nodes[0].bytes, 0U);
  EXPECT_EQ(tree.nodes.size(), 1U);
}

TEST_F(Ranks, ASecondTraceIsComparedWithTheFirst) {
  show(load("torch/training.tier2.tmk"));
  shell_->open_other(std::string(TIDEMARK_TRACES) + "/torch/mixed_precision.tier2.tmk");
  while (shell_->loading_other()) frame(1);
  frame(4);
  ASSERT_NE(selection().comparison.other(), nullptr);
  ASSERT_TRUE(selection().comparison.reference() && selection().comparison.reference()->other);
  const ImGuiWindow* panel = ImGui::FindWindowByName(ComparePanel::kTitle);
  ASSERT_NE(panel, nullptr);
  EXPECT_TRUE(panel->DockTabIsVisible);
  key(ImGuiKey_3);  // the flame graph shows the difference
  frame(3);
  selection().place_other_by_clock(model(), true);
  EXPECT_NE(selection().comparison.offset(model()), 0);
  selection().set_other(model(), nullptr);
  frame(3);
  EXPECT_FALSE(selection().comparison.reference());
}

// The rank is found by samples of all curves: between them it may be below the others.
TEST_F(Ranks, TheRankThatPartedIsNotSaidToBeAlwaysAbove) {
  open_file(TIDEMARK_TRACES "/ranks/guilty4");
  shell_->show_only("ranks");
  frame(4);
  ASSERT_TRUE(model().report.comparison.divergence.time_ns);
  EXPECT_NE(
      read_window("").find(without_spaces("rank 2 is mostly above the median of the ranks from")),
      std::string::npos)
      << read_window("");
  EXPECT_NE(read_window("").find(without_spaces("rank 2 apart since +10.152 s")), std::string::npos)
      << "in the heat map: " << read_window("");
  shell_->panels().ranks.curves = true;
  frame(4);
  EXPECT_NE(read_window("").find(without_spaces("apart since +10.152 s")), std::string::npos);
}

// Snapshots have no common clock, but their ranks run the same steps.
TEST_F(Ranks, WithoutAClockTheStepSaysSinceWhen) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/larger_images_on_one_rank.bad");
  const RankComparison& c = model().report.comparison;
  ASSERT_TRUE(c.divergence.found);
  const RankRows rows = RankRows::of(model());
  const Lane& guilty = model().lanes[rows.lanes[rows.of_rank(c.divergence.rank)]];
  const Lane& typical = model().lanes[rows.lanes[rows.of_rank(c.typical.rank)]];
  const auto apart = steps_apart(model(), guilty, typical);
  ASSERT_TRUE(apart);
  EXPECT_GT(apart->bytes, apart->other_bytes);
  EXPECT_FALSE(steps_apart(model(), typical, guilty)) << "it is below";
  EXPECT_FALSE(steps_apart(model(), guilty, guilty)) << "it is the same";
}

// As many digits as it takes to see which is larger.
TEST_F(Ranks, PeaksThatDifferDoNotReadTheSame) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const auto close = std::const_pointer_cast<Model>(load("ranks/guilty4"));
  close->report.comparison.highest.bytes = 5 * kGiB + 20 * kMiB;
  close->report.comparison.typical.bytes = 5 * kGiB;
  shell_->set_model(close);
  shell_->show_only("ranks");
  frame(4);
  EXPECT_NE(read_window("").find(without_spaces("the highest peak, 5.02 GiB; 5.00 GiB is typical")),
            std::string::npos)
      << read_window("");
  const auto told = [](uint64_t bytes) {
    return told_model([bytes](Story& s) { s.alloc(bytes, s.user(7)); });
  };
  shell_->set_model(told(5 * kGiB + 20 * kMiB));
  shell_->set_other(told(5 * kGiB));
  ASSERT_TRUE(shell_->show_only("compare"));
  frame(6);
  for (const char* bytes : {"5.02 GiB", "5.00 GiB"}) {
    EXPECT_NE(read_window("").find(without_spaces(bytes)), std::string::npos) << read_window("");
  }
}

}  // namespace
}  // namespace tidemark::view
