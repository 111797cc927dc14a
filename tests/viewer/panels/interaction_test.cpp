// Real input events sent to the real panels: no window, no OpenGL.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/support/panel_fixture.h"

namespace tidemark::view {
namespace {

TEST_F(Interaction, WheelZoomsAtTheMouse) {
  open();
  const VisibleRange before = selection().view.range();
  move(in_timeline(0.25F, 0.5F));
  ImGui::GetIO().AddMouseWheelEvent(0, 3);
  frame();
  const VisibleRange after = selection().view.range();
  EXPECT_NEAR(after.span() / before.span(), 0.512, 0.01);
  // The point under the mouse stays there: the left part shrank less than the right part.
  EXPECT_LT(after.begin - before.begin, before.end - after.end);
  ImGui::GetIO().AddMouseWheelEvent(0, -3);
  frame();
  EXPECT_NEAR(selection().view.range().begin, before.begin, before.span() * 1e-3);
}

TEST_F(Interaction, DragPansAndClickSetsTheInstant) {
  open();
  move(in_timeline(0.5F, 0.5F));
  ImGui::GetIO().AddMouseWheelEvent(0, 8);
  frame();
  const VisibleRange before = selection().view.range();
  const uint32_t event = selection().cursor.event();
  button(true);
  move(in_timeline(0.3F, 0.5F));
  button(false);
  EXPECT_GT(selection().view.range().begin, before.begin);
  EXPECT_NEAR(selection().view.range().span(), before.span(), before.span() * 1e-9);
  EXPECT_EQ(selection().cursor.event(), event) << "a drag is no click";
  click(in_timeline(0.5F, 0.5F));
  EXPECT_NE(selection().cursor.event(), event);
  const double middle = selection().view.range().begin + selection().view.range().span() / 2;
  EXPECT_NEAR(selection().cursor.time(model()), middle, selection().view.range().span() * 0.05);
}

TEST_F(Interaction, ShiftDragMeasures) {
  open();
  const VisibleRange before = selection().view.range();
  hold(ImGuiMod_Shift, true);
  move(in_timeline(0.2F, 0.5F));
  button(true);
  move(in_timeline(0.4F, 0.5F));
  move(in_timeline(0.6F, 0.5F));
  button(false);
  hold(ImGuiMod_Shift, false);
  ASSERT_TRUE(selection().highlights.measure);
  const double measured = since_start(model(), *selection().highlights.measure).span();
  EXPECT_NEAR(measured / before.span(), 0.4, 0.05);
  EXPECT_EQ(selection().view.range().begin, before.begin);
  key(ImGuiKey_Z);
  EXPECT_NEAR(selection().view.range().span(), measured, 1);
  key(ImGuiKey_Escape);
  EXPECT_FALSE(selection().highlights.measure);
}

TEST_F(Interaction, KeysMoveThroughTime) {
  open();
  move({5, 5});
  const VisibleRange whole = selection().view.range();
  key(ImGuiKey_W);
  EXPECT_LT(selection().view.range().span(), whole.span());
  const VisibleRange zoomed = selection().view.range();
  key(ImGuiKey_D);
  EXPECT_GT(selection().view.range().begin, zoomed.begin);
  key(ImGuiKey_A);
  EXPECT_NEAR(selection().view.range().begin, zoomed.begin, 1);
  key(ImGuiKey_S);
  EXPECT_NEAR(selection().view.range().span(), whole.span(), 1);
  key(ImGuiKey_P);
  EXPECT_EQ(selection().cursor.event(), model().lanes[0].memory->allocated_peak.event);
  const uint32_t peak = selection().cursor.event();
  key(ImGuiKey_RightArrow);
  EXPECT_EQ(selection().cursor.event(), peak + 1);
  key(ImGuiKey_N);
  EXPECT_EQ(selection().cursor.event(), model().ooms[0].event);
  key(ImGuiKey_W);
  key(ImGuiKey_F);
  EXPECT_NEAR(selection().view.range().span(), whole.span(), 1);
}

TEST_F(Interaction, OomsOfAllRanksAreReachedInOrder) {
  SyntheticOptions options;
  options.ranks = 3;
  options.events = 500;
  open(options);
  ASSERT_EQ(model().ooms.size(), 3U);
  selection().go_to_oom_at(model(), 0);
  key(ImGuiKey_N);
  EXPECT_EQ(selection().cursor.lane(), model().ooms[1].lane);
  key(ImGuiKey_N);
  key(ImGuiKey_N);
  EXPECT_EQ(selection().cursor.lane(), model().ooms[0].lane) << "goes around";
  key(ImGuiKey_B);
  EXPECT_EQ(selection().cursor.lane(), model().ooms[2].lane);
}

TEST_F(Interaction, SlashSearchesAndLettersDoNotMove) {
  open();
  const VisibleRange before = selection().view.range();
  key(ImGuiKey_Slash);
  frame(3);
  ASSERT_TRUE(ImGui::GetIO().WantTextInput);
  ImGui::GetIO().AddInputCharactersUTF8("was");
  key(ImGuiKey_W);
  frame(3);
  EXPECT_EQ(selection().highlights.search, "was");
  EXPECT_EQ(selection().view.range().begin, before.begin);
}

TEST_F(Interaction, MinimapMovesTheWindow) {
  open();
  move(in_timeline(0.5F, 0.5F));
  ImGui::GetIO().AddMouseWheelEvent(0, 10);
  frame();
  const double span = selection().view.range().span();
  const ImRect r = window(TimelinePanel::kTitle);
  click({r.Min.x + 110 + (r.GetWidth() - 140) * 0.9F, r.Min.y + 92});
  EXPECT_NEAR(selection().view.range().span(), span, 1);
  EXPECT_GT(selection().view.range().begin, model().span_ns() * 0.7);
}

TEST_F(Interaction, ClickOnABlockShowsIt) {
  open();
  key(ImGuiKey_2);
  const ImRect r = window(MapPanel::kTitle);
  ASSERT_GT(r.GetHeight(), 150);
  for (float y = r.Min.y + 120; y < r.Max.y && !selection().highlights.allocation; y += 11) {
    for (float x = r.Min.x + 190; x < r.Max.x - 30 && !selection().highlights.allocation; x += 60) {
      click({x, y});
    }
  }
  ASSERT_TRUE(selection().highlights.allocation);
  const Allocation& a = model().lanes[0].memory->allocations[*selection().highlights.allocation];
  EXPECT_TRUE(a.alive_at(selection().cursor.event()));
  frame(3);
  const ImGuiWindow* block = ImGui::FindWindowByName(DetailPanel::kTitle);
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(block->DockTabIsVisible) << "its details came to the front";
}

TEST_F(Interaction, CompareTwoInstants) {
  open();
  key(ImGuiKey_P);
  key(ImGuiKey_C);
  ASSERT_TRUE(selection().comparison.reference());
  key(ImGuiKey_3);
  for (int i = 0; i < 5; ++i) key(ImGuiKey_RightArrow);
  frame(3);
  ASSERT_TRUE(selection().compared(model()));
  key(ImGuiKey_C);
  EXPECT_FALSE(selection().comparison.reference());
}

TEST_F(Interaction, EveryPanelDrawsWithNoFewAndManyEvents) {
  TraceModel empty;
  auto made = make_model(std::move(empty), {"rank 3 is missing: no such file"});
  ASSERT_TRUE(made);
  SyntheticOptions one;
  one.events = 1;
  one.oom = false;
  SyntheticOptions many;
  many.events = 300;
  many.ranks = 64;
  const std::shared_ptr<const Model> models[] = {std::shared_ptr<const Model>(std::move(*made)),
                                                 model_of(one), model_of(many)};
  for (const auto& m : models) {
    for (const ImVec2 size : {ImVec2(640, 480), ImVec2(3840, 2160), ImVec2(160, 120)}) {
      ImGui::GetIO().DisplaySize = size;
      shell_->set_model(m);
      frame(3);
      for (int i = 0; i < 6; ++i) key(static_cast<ImGuiKey>(ImGuiKey_1 + i));
      for (const ImGuiKey k : {ImGuiKey_P, ImGuiKey_N, ImGuiKey_B, ImGuiKey_C, ImGuiKey_W,
                               ImGuiKey_LeftArrow, ImGuiKey_RightArrow, ImGuiKey_F}) {
        key(k);
      }
      for (float y = 5; y < size.y; y += size.y / 12) move({size.x / 2, y});
      key(ImGuiKey_Escape);
    }
  }
}

TEST_F(Interaction, ErrorsAreShownAndTheProgramContinues) {
  shell_->open("/no/such/trace.tmk");
  while (shell_->loading()) {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  frame(3);
  EXPECT_NE(ImGui::FindWindowByName("##error"), nullptr);
  open();
  EXPECT_NE(shell_->model(), nullptr);
}

TEST_F(Interaction, ThemeAndHelpKeys) {
  open();
  EXPECT_TRUE(theme().dark);
  key(ImGuiKey_T);
  EXPECT_FALSE(theme().dark);
  key(ImGuiKey_F1);
  EXPECT_NE(ImGui::FindWindowByName("Keys"), nullptr);
  key(ImGuiKey_F12);
  EXPECT_TRUE(shell_->picture_wanted);
}

TEST(Config, RemembersAndForgivesDamage) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("tidemark-config-" + std::to_string(::getpid()));
  Config config = Config::load_from(folder);
  EXPECT_TRUE(config.recent.empty());
  for (int i = 0; i < 20; ++i) config.note_recent("/tmp/run" + std::to_string(i) + ".tmk");
  config.note_recent("/tmp/run15.tmk");
  config.dark = false;
  config.save();
  const Config again = Config::load_from(folder);
  EXPECT_EQ(again.recent.size(), 12U);
  EXPECT_EQ(again.recent.front(), "/tmp/run15.tmk");
  EXPECT_FALSE(again.dark);
  fs::remove_all(folder);
  Config nowhere;
  nowhere.save();
  Config forbidden = Config::load_from("/proc/nothing/here");
  forbidden.save();
}

}  // namespace
}  // namespace tidemark::view
