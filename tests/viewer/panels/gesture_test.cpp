// Gestures on every panel and the text they lead to: flame graph, memory map, tables, overlays, the
// overview of the whole run.
#include <algorithm>

#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "tests/support/serving_story.h"
#include "viewer/widgets/block_colour.h"

namespace tidemark::view {
namespace {

class Gestures : public Interaction {
 protected:
  void open_recorded(const char* name) {
    open_file(std::string(TIDEMARK_TRACES) + "/" + name);
    ASSERT_NE(shell_->model(), nullptr);
  }
  static bool reads(const char* window, const std::string& what) {
    return read_window(window).find(without_spaces(what)) != std::string::npos;
  }
  // Moves over a row of a window until the name of the hovered item contains `id`.
  std::optional<ImVec2> find_item(const char* title, const char* id, float from_y, float to_y) {
    const ImGuiWindow* w = ImGui::FindWindowByName(title);
    const ImGuiID wanted = ImHashStr(id, 0, w->ID);
    const ImRect r = w->Rect();
    for (float y = r.Min.y + from_y; y < r.Min.y + to_y; y += 9) {
      for (float x = r.Min.x + 14; x < r.Max.x; x += 30) {
        move({x, y});
        if (ImGui::GetCurrentContext()->HoveredIdPreviousFrame == wanted) return ImVec2(x, y);
      }
    }
    return std::nullopt;
  }
  // Opens the combo at this point and clicks on its n-th entry.
  void choose(ImVec2 combo, int entry) {
    click(combo);
    frame(2);
    ImRect popup;
    for (const ImGuiWindow* w : ImGui::GetCurrentContext()->Windows) {
      if (w->Active && std::string(w->Name).starts_with("##Combo")) popup = w->Rect();
    }
    ASSERT_GT(popup.GetHeight(), 10) << "no list came";
    const float line = ImGui::GetTextLineHeightWithSpacing();
    click({popup.Min.x + 20, popup.Min.y + 12 + (static_cast<float>(entry) + 0.3F) * line});
    frame(2);
  }
};

TEST_F(Gestures, FlameZoomsOnAClickAndOutAgain) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_P);
  key(ImGuiKey_3);
  FlamePanel& flame = shell_->panels().flame;
  ASSERT_GT(flame.tree().nodes.size(), 10U);
  EXPECT_EQ(flame.zoomed(), 0U);
  const ImRect r = window(FlamePanel::kTitle);
  // The third row from the top, at the left: the widest function two calls deep.
  const ImVec2 at(r.Min.x + 40, r.Min.y + 72 + 2.5F * 21);
  click(at);
  ASSERT_NE(flame.zoomed(), 0U);
  const FlameNode node = flame.tree().nodes[flame.zoomed()];
  EXPECT_GE(node.depth, 1U);
  // A move of the cursor keeps the zoom.
  key(ImGuiKey_LeftArrow);
  EXPECT_EQ(flame.tree().nodes[flame.zoomed()].key, node.key);
  const uint32_t parent = flame.tree().nodes[flame.zoomed()].parent;
  click(at, 1);
  EXPECT_EQ(flame.zoomed(), parent) << "a right click goes one step out";
  click(at);
  const uint32_t again = flame.zoomed();
  ASSERT_NE(again, 0U);
  key(ImGuiKey_Backspace);
  EXPECT_EQ(flame.zoomed(), flame.tree().nodes[again].parent);
}

TEST_F(Gestures, FlameViewsAndSearch) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_P);
  key(ImGuiKey_3);
  FlamePanel& flame = shell_->panels().flame;
  const auto order = find_item(FlamePanel::kTitle, "##order", 30, 60);
  ASSERT_TRUE(order);
  choose(*order, 1);
  EXPECT_EQ(flame.order, FlameOrder::kBottomUp);
  // The widest line that allocated is the first box below the root.
  const FlameNode line = flame.tree().nodes[1];
  EXPECT_EQ(line.depth, 1U);
  uint64_t same = 0;
  const Moment& moment = selection().cursor.moment(model());
  const Lane& lane = model().lanes[0];
  for (const uint32_t i : moment.state.live) {
    const Allocation& a = lane.memory->allocations[i];
    if (a.stack != 0 && model().process_of(lane).names.stack(a.stack).frame == line.frame) {
      same += a.block_bytes;
    }
  }
  EXPECT_EQ(line.bytes, same);

  const auto view = find_item(FlamePanel::kTitle, "##view", 30, 60);
  ASSERT_TRUE(view);
  choose(*view, 1);
  EXPECT_EQ(flame.view, FlameView::kFlame);
  choose(*view, 2);
  EXPECT_EQ(flame.view, FlameView::kRows);
  frame(2);
  const size_t rows = flame.rows_shown();
  ASSERT_GT(rows, 2U);
  EXPECT_TRUE(reads("##rows", "all blocks"));
  // A click on the root collapses it, a second one expands it again.
  const ImRect r = window(FlamePanel::kTitle);
  ImVec2 root(r.Min.x + 200, r.Min.y + 70);  // the first row below the headings
  while (root.y < r.Min.y + 140 && flame.rows_shown() == rows) {
    root.y += 6;
    click(root);
    frame(2);
  }
  EXPECT_EQ(flame.rows_shown(), 1U);
  click(root);
  frame(2);
  EXPECT_EQ(flame.rows_shown(), rows);

  key(ImGuiKey_Slash);
  frame(3);
  ImGui::GetIO().AddInputCharactersUTF8("adam");
  frame(4);
  EXPECT_GT(flame.found_bytes(), 0U);
  EXPECT_LT(flame.found_bytes(), flame.tree().nodes[0].bytes);
  EXPECT_TRUE(reads(FlamePanel::kTitle, "match 'adam'"));
}

TEST_F(Gestures, FlameOfTwoTimesAndTwoRanksHasTheColoursOfMoreAndLess) {
  open_recorded("ranks/guilty4");
  key(ImGuiKey_3);
  FlamePanel& flame = shell_->panels().flame;
  const uint32_t peak = model().lanes[2].memory->allocated_peak.event;
  selection().set_event(model(), 2, peak / 2);
  key(ImGuiKey_C);
  selection().set_event(model(), 2, peak);
  frame(3);
  EXPECT_GT(flame.tree().nodes[0].net, 0);
  EXPECT_TRUE(painted("##icicle", 230, 159, 0)) << "what was allocated";
  EXPECT_TRUE(reads(FlamePanel::kTitle, "allocated"));
  key(ImGuiKey_C);
  // Compared with another rank at the same time.
  selection().compare_with(model(), {false, 1, 0, true});
  frame(3);
  const auto other = selection().compared(model());
  ASSERT_TRUE(other);
  EXPECT_EQ(flame.tree().nodes[0].net,
            static_cast<int64_t>(selection().cursor.moment(model()).state.totals.active) -
                static_cast<int64_t>(other->moment.state.totals.active));
  EXPECT_TRUE(reads(FlamePanel::kTitle, "against rank 1"));
  selection().set_event(model(), 1, model().lanes[1].memory->allocated_peak.event);
  selection().compare_with(model(), {false, 2, peak, false});
  frame(3);
  EXPECT_LT(flame.tree().nodes[0].net, 0);
  EXPECT_TRUE(painted("##icicle", 86, 180, 233)) << "what rank 1 does not have";
}

TEST_F(Gestures, MapUsesAllFiveColourings) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_P);
  key(ImGuiKey_2);
  const auto combo = find_item(MapPanel::kTitle, "##colour", 30, 60);
  ASSERT_TRUE(combo);
  const Moment& moment = selection().cursor.moment(model());
  uint32_t largest = moment.state.live.front();
  const auto& all = model().lanes[0].memory->allocations;
  // The largest of the first rows, which are visible.
  for (const uint32_t i : moment.state.live) {
    const bool above = all[i].address < moment.state.segments[4].address;
    if (above && all[i].block_bytes > all[largest].block_bytes) largest = i;
  }
  for (int by = 0; by < kColourings; ++by) {
    choose(*combo, by);
    ASSERT_EQ(static_cast<int>(selection().colouring.by), by) << "the list is in this order";
    const Rgb c = block_colour(model(), selection().colouring.by, selection().cursor, all[largest]);
    EXPECT_TRUE(painted("##rows", c.r, c.g, c.b)) << colouring_name(selection().colouring.by);
  }
  // The legend explains the colours.
  choose(*combo, static_cast<int>(ColourBy::kAge));
  EXPECT_TRUE(reads(MapPanel::kTitle, "young"));
  choose(*combo, static_cast<int>(ColourBy::kOwner));
  EXPECT_TRUE(reads(MapPanel::kTitle, "PyTorch " + std::string("412.6 MiB")));
}

TEST_F(Gestures, TheSliderOfTheMapMovesThroughTime) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_2);
  selection().set_event(model(), 0, 0);
  frame(2);
  const auto slider = find_item(MapPanel::kTitle, "##scrub", 50, 90);
  ASSERT_TRUE(slider);
  const ImRect r = window(MapPanel::kTitle);
  const size_t before = selection().cursor.moment(model()).state.live.size();
  move(*slider);
  button(true);
  move({r.Max.x - 200, slider->y});
  const uint32_t middle = selection().cursor.event();
  EXPECT_GT(middle, 0U);
  EXPECT_NE(selection().cursor.moment(model()).state.live.size(), before) << "the map follows";
  move({r.Max.x + 50, slider->y});
  button(false);
  EXPECT_EQ(selection().cursor.event(), model().lanes[0].memory->event_count() - 1);
}

TEST_F(Gestures, MapMarksTheLargestHoleAndShowsWhatPinsIt) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_P);
  key(ImGuiKey_2);
  const MemoryState& state = selection().cursor.moment(model()).state;
  ASSERT_FALSE(state.holes.empty());
  EXPECT_TRUE(painted("##rows", theme().hole.r, theme().hole.g, theme().hole.b));
  // Sorted by free bytes, the segment with the largest hole is near the top.
  const auto combo = find_item(MapPanel::kTitle, "##order", 30, 60);
  ASSERT_TRUE(combo);
  choose(*combo, 2);
  EXPECT_TRUE(painted("##rows", theme().warning.r, theme().warning.g, theme().warning.b));
  const ImRect r = window(MapPanel::kTitle);
  for (float y = r.Min.y + 124; y < r.Max.y - 10 && !selection().highlights.hole; y += 22) {
    for (float x = r.Min.x + 190; x < r.Max.x - 30 && !selection().highlights.hole; x += 24) {
      click({x, y});
    }
  }
  ASSERT_TRUE(selection().highlights.hole);
  frame(3);
  EXPECT_TRUE(reads(DetailPanel::kTitle, "Pinned by") ||
              reads(DetailPanel::kTitle, "The whole segment is free"));
}

TEST_F(Gestures, ABlockShowsItsStackSizeLifeAndNeighbours) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_P);
  key(ImGuiKey_2);
  const ImRect r = window(MapPanel::kTitle);
  for (float y = r.Min.y + 124; y < r.Max.y - 10 && !selection().highlights.allocation; y += 22) {
    click({r.Min.x + 340, y});
  }
  ASSERT_TRUE(selection().highlights.allocation);
  frame(4);
  const Lane& lane = model().lanes[0];
  const Allocation& a = lane.memory->allocations[*selection().highlights.allocation];
  EXPECT_TRUE(reads(DetailPanel::kTitle, "requested"));
  EXPECT_TRUE(reads(DetailPanel::kTitle, "allocated"));
  EXPECT_TRUE(reads(DetailPanel::kTitle, "freed"));
  EXPECT_TRUE(reads(DetailPanel::kTitle, "Neighbours"));
  EXPECT_TRUE(reads(DetailPanel::kTitle, "before:"));
  const auto frames = model().process_of(lane).names.frames_of(a.stack);
  if (!frames.empty()) {
    const std::string line = model().process_of(lane).names.frame_text(frames.front());
    EXPECT_TRUE(reads(DetailPanel::kTitle, line.substr(0, 12))) << line;
  }
}

TEST_F(Gestures, TablesSortByAClickAndFilterByTyping) {
  open_recorded("torch/training.tier2.tmk");
  key(ImGuiKey_P);
  key(ImGuiKey_4);
  shell_->panels().tables.show_table("Allocations");
  frame(4);
  const std::string by_size = read_window("##allocations");
  const ImRect r = window(TablesPanel::kTitle);
  // The headings of the first two columns.
  const ImVec2 size(r.Min.x + 40, r.Min.y + 74);
  click(size);
  frame(3);
  const std::string smallest = read_window("##allocations");
  EXPECT_NE(smallest, by_size) << "in reverse order";
  click(size);
  frame(3);
  EXPECT_EQ(read_window("##allocations"), by_size);
  const size_t all = shell_->panels().tables.rows_shown();
  key(ImGuiKey_Slash);
  frame(3);
  ImGui::GetIO().AddInputCharactersUTF8("adam");
  frame(4);
  EXPECT_GT(shell_->panels().tables.rows_shown(), 0U);
  EXPECT_LT(shell_->panels().tables.rows_shown(), all);
}

TEST_F(Gestures, ASecondTraceIsLaidOverTheTimelineAndF5KeepsIt) {
  open_recorded("torch/training.tier2.tmk");
  shell_->open(std::string(TIDEMARK_TRACES) + "/torch/training.tier2.tmk");
  shell_->open_other(std::string(TIDEMARK_TRACES) + "/torch/mixed_precision.tier2.tmk");
  while (shell_->loading() || shell_->loading_other()) frame(1);
  frame(4);
  selection().requests.panel = TimelinePanel::kTitle;
  frame(4);
  ASSERT_NE(selection().comparison.other(), nullptr);
  const auto highest = [&] {
    const std::vector<double>& ys =
        shell_->panels().timeline.drawn(0).laid_over.ys(Curve::kAllocated);
    return ys.empty() ? 0 : *std::max_element(ys.begin(), ys.end());
  };
  const auto peak =
      static_cast<double>(selection().comparison.other()->lanes[0].memory->allocated_peak.bytes);
  ASSERT_TRUE(shell_->panels().timeline.drawn(0).overlay);
  EXPECT_EQ(highest(), peak);
  EXPECT_TRUE(reads("##lanes", "mixed_precision.tier2.tmk"));
  EXPECT_GE(selection().view.range().end, selection().comparison.other()->span_ns())
      << "all of both is in view";

  const Model* before = shell_->model();
  const Model* second = selection().comparison.other().get();
  selection().view.show(1e9, 2e9);
  const VisibleRange view = selection().view.range();
  key(ImGuiKey_F5);
  for (int i = 0; i < 20'000 && shell_->reloading(); ++i) {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  frame(4);
  EXPECT_NE(shell_->model(), before);
  EXPECT_EQ(selection().comparison.other().get(), second);
  EXPECT_EQ(selection().view.range().begin, view.begin);
  EXPECT_TRUE(selection().compared(model()));
  ASSERT_TRUE(shell_->panels().timeline.drawn(0).overlay);
  EXPECT_EQ(shell_->panels().timeline.drawn(0).overlay->model, second);

  shell_->panels().timeline.options.overlay = false;
  frame(2);
  EXPECT_FALSE(shell_->panels().timeline.drawn(0).overlay);
}

TEST_F(Gestures, CtrlClickLaysARankOverAnother) {
  SyntheticOptions options;
  options.ranks = 2;
  options.events = 2000;
  options.oom = false;
  options.marks = false;
  open(options);
  selection().set_event(model(), 0, 100);
  frame(2);
  EXPECT_FALSE(shell_->panels().timeline.drawn(0).overlay);
  hold(ImGuiMod_Ctrl, true);
  click(in_timeline(0.5F, 0.8F));
  hold(ImGuiMod_Ctrl, false);
  frame(2);
  EXPECT_EQ(selection().cursor.lane(), 0U) << "the cursor stays";
  const auto& overlay = shell_->panels().timeline.drawn(0).overlay;
  ASSERT_TRUE(overlay);
  EXPECT_EQ(overlay->lane, 1U);
  EXPECT_FALSE(shell_->panels().timeline.drawn(0).laid_over.xs(Curve::kAllocated).empty());
  EXPECT_FALSE(shell_->panels().timeline.drawn(1).overlay);
  key(ImGuiKey_Escape);
  frame(2);
  EXPECT_FALSE(shell_->panels().timeline.drawn(0).overlay);
}

TEST_F(Gestures, AClickOnASmallCurveSelectsTheRank) {
  SyntheticOptions options;
  options.ranks = 4;
  options.events = 2000;
  options.oom = false;
  open(options);
  key(ImGuiKey_7);
  shell_->panels().ranks.curves = true;
  selection().set_event(model(), 0, 0);
  frame(3);
  const ImRect r = window(RanksPanel::kTitle);
  // The last one of the first row: as far to the right as possible.
  ImVec2 at(r.Max.x - 40, r.Min.y + 130);
  while (at.x > r.GetCenter().x && selection().cursor.lane() == 0) {
    at.x -= 30;
    click(at);
  }
  const uint32_t chosen = selection().cursor.lane();
  EXPECT_NE(chosen, 0U);
  hold(ImGuiMod_Ctrl, true);
  click({r.Min.x + 60, at.y});
  hold(ImGuiMod_Ctrl, false);
  ASSERT_TRUE(selection().comparison.reference());
  EXPECT_EQ(selection().cursor.lane(), chosen) << "the cursor stays";
  EXPECT_EQ(selection().comparison.reference()->lane, 0U);
}

TEST_F(Gestures, TheStripOfTheWholeRunIsDragged) {
  open();
  move(in_timeline(0.5F, 0.5F));
  ImGui::GetIO().AddMouseWheelEvent(0, 10);
  frame();
  const VisibleRange before = selection().view.range();
  const ImRect r = window(TimelinePanel::kTitle);
  const auto x_of = [&](double time) {
    const auto share = static_cast<float>(time / model().span_ns());
    return r.Min.x + 110 + (r.GetWidth() - 140) * share;
  };
  const float y = r.Min.y + 92;
  move({x_of(before.begin + before.span() / 2), y});
  button(true);
  move({x_of(before.begin + before.span() / 2) + 100, y});
  move({x_of(before.begin + before.span() / 2) + 200, y});
  button(false);
  EXPECT_NEAR(selection().view.range().span(), before.span(), 1);
  const double by = 200.0 / static_cast<double>(r.GetWidth() - 100) * model().span_ns();
  EXPECT_NEAR(selection().view.range().begin - before.begin, by, by * 0.15);
}

TEST_F(Gestures, SlashFindsTheFieldFromEverywhere) {
  open();
  key(ImGuiKey_7);  // the ranks cover the timeline
  frame(3);
  ASSERT_FALSE(ImGui::GetIO().WantTextInput);
  key(ImGuiKey_Slash);
  frame(4);
  EXPECT_TRUE(ImGui::GetIO().WantTextInput);
  ImGui::GetIO().AddInputCharactersUTF8("relu");
  frame(3);
  EXPECT_EQ(selection().highlights.search, "relu");
}

TEST_F(Gestures, WZoomsWhereTheMouseIs) {
  open();
  const ImVec2 at = in_timeline(0.8F, 0.5F);
  move(at);
  const VisibleRange before = selection().view.range();
  for (int i = 0; i < 5; ++i) key(ImGuiKey_W);
  const VisibleRange after = selection().view.range();
  EXPECT_GT(after.begin - before.begin, 3 * (before.end - after.end));
}

// Nine tenths of the run are setup: the view begins after it, and F shows all.
TEST_F(Gestures, ALongSetupIsLeftOutAtFirst) {
  const auto open_after = [&](int64_t setup_ns) {
    shell_->set_model(told_model([setup_ns](Story& s) {
      s.alloc(kMiB, s.setup());
      s.tick(setup_ns);
      for (int i = 0; i < 500; ++i) {
        s.tick(100'000);
        s.free(s.alloc(20 * kMiB, s.user(1)));
      }
      s.alloc(kMiB, s.user(2));
    }));
    frame(6);
  };
  const auto notes = [] {
    return read_window(TimelinePanel::kTitle).find(without_spaces("beginning left out: press F")) !=
           std::string::npos;
  };
  open_after(1'000'000'000);
  const Lane& lane = model().lanes[0];
  const double busy = since_start(model(), lane.memory->time_ns[10]);
  EXPECT_GT(selection().view.range().begin, model().span_ns() / 2);
  EXPECT_LT(selection().view.range().begin, busy);
  EXPECT_TRUE(selection().view.shows_end());
  EXPECT_TRUE(notes()) << read_window(TimelinePanel::kTitle);
  key(ImGuiKey_F);
  EXPECT_TRUE(selection().view.shows_all());
  EXPECT_FALSE(notes());
  open_after(1'000'000'000);
  shell_->panels().timeline.options.by_event = true;
  frame(4);
  EXPECT_TRUE(selection().view.shows_all()) << "of events, nothing needs to be left out";
  shell_->panels().timeline.options.by_event = false;
  open_after(1'000);
  EXPECT_TRUE(selection().view.shows_all()) << "a short setup stays";
  EXPECT_FALSE(notes());
}

// A model is loaded, nothing happens for a long time, then a request fails, and the program waits.
TEST_F(Gestures, WhatLedToAnErrorIsShownAtFirst) {
  const auto open_with = [&](bool fails) {
    shell_->set_model(told_model([fails](Story& s) {
      for (int i = 0; i < 20; ++i) s.alloc(kMiB, s.setup());
      s.tick(1'000'000'000);
      for (int i = 0; i < 500; ++i) {
        s.tick(100'000);
        s.free(s.alloc(20 * kMiB, s.user(1)));
      }
      const uint64_t last = s.alloc(20 * kMiB, s.user(2));
      if (fails) s.run_out(100 * kMiB, 0, s.user(3));
      s.tick(2'000'000'000);
      s.free(last);
    }));
    frame(6);
  };
  open_with(true);
  const VisibleRange seen = selection().view.range();
  const double error = since_start(model(), model().ooms.front().time_ns);
  EXPECT_LT(seen.span(), model().span_ns() / 10);
  EXPECT_LT(seen.begin, error);
  EXPECT_GT(seen.end, error);
  const std::string note = without_spaces("beginning and end left out: press F for all");
  EXPECT_NE(read_window(TimelinePanel::kTitle).find(note), std::string::npos);
  key(ImGuiKey_F);
  EXPECT_TRUE(selection().view.shows_all());
  EXPECT_EQ(read_window(TimelinePanel::kTitle).find(note), std::string::npos);
  open_with(false);
  EXPECT_TRUE(selection().view.shows_end()) << "without an error the end is as good as the rest";
}

}  // namespace
}  // namespace tidemark::view
