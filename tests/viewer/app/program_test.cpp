// The program around the panels: keys, files, stored settings, errors and losses.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "analysis/report/diff.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "viewer/app/draw_hash.h"
#include "viewer/widgets/key_table.h"

namespace tidemark::view {
namespace {

namespace fs = std::filesystem;

class Program : public Interaction {
 protected:
  Program()
      : folder_(fs::temp_directory_path() / ("tidemark-program-" + std::to_string(::getpid()))),
        before_(fs::current_path()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Program() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  static std::string recorded(const std::string& name) {
    return std::string(TIDEMARK_TRACES) + "/" + name;
  }
  static bool reads(const char* window, const std::string& what) {
    return read_window(window).find(without_spaces(what)) != std::string::npos;
  }
  void wait() {
    for (int i = 0; i < 20'000 && (shell_->loading() || shell_->loading_other()); ++i) {
      frame(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    frame(3);
  }
  // Until the findings are there, too.
  void wait_for_report() {
    wait();
    for (int i = 0; i < 20'000 && !model().report_ready; ++i) {
      frame(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    frame(10);
  }
  std::string shown_path() const {
    return shell_->model() == nullptr ? "" : shell_->model()->trace.path;
  }

  fs::path folder_;
  fs::path before_;
};

TEST_F(Program, EveryKeyIsBoundOnceAndDocumented) {
  std::ifstream file(TIDEMARK_DOCS "/viewer.md");
  std::stringstream all;
  all << file.rdbuf();
  const std::string docs = all.str();
  std::set<Command> commands;
  std::set<ImGuiKeyChord> chords;
  for (const KeyLine& line : key_lines()) {
    if (line.keys == nullptr) continue;
    const std::string row = std::string("| ") + line.keys + " | " + line.meaning + " |";
    EXPECT_NE(docs.find(row), std::string::npos) << "docs/viewer.md lacks: " << row;
    for (const KeyBinding& b : line.bindings) {
      if (b.command == Command::kNone) continue;
      commands.insert(b.command);
      EXPECT_TRUE(chords.insert(b.chord).second) << line.keys << " has two meanings";
    }
  }
  for (int c = 1; c <= static_cast<int>(Command::kQuit); ++c) {
    EXPECT_TRUE(commands.contains(static_cast<Command>(c))) << "command " << c << " has no key";
  }
  EXPECT_EQ(shortcut(Command::kOpenOther), "Ctrl+Shift+O");
}

TEST_F(Program, TheHelpPageShowsTheTable) {
  open();
  ImGui::GetIO().DisplaySize = {1400, 1200};
  frame(3);
  key(ImGuiKey_F1);
  frame(4);
  for (const KeyLine& line : key_lines()) {
    EXPECT_TRUE(reads("Keys", line.meaning)) << line.meaning;
  }
  key(ImGuiKey_F1);
  EXPECT_FALSE(reads("Keys", "the peak"));
}

// Also panels that were drawn once, before the one beside them came to the front.
TEST_F(Program, IsAtRestOnceWhatItShowsIsDrawn) {
  ImGui::GetIO().DisplaySize = {1500, 950};
  shell_->open(TIDEMARK_SNAPSHOTS "/long.pickle.gz");
  wait_for_report();
  for (int i = 0; i < 300 && shell_->unfinished(); ++i) frame(1);
  EXPECT_FALSE(shell_->unfinished());
}

TEST_F(Program, NumbersBringPanelsForward) {
  open();
  const char* titles[] = {"Timeline", "Memory map", "Flame graph", "Tables",  "At this moment",
                          "Findings", "Ranks",      "Compare",     "Details", "Stack"};
  for (int i = 0; i < 10; ++i) {
    key(static_cast<ImGuiKey>(ImGuiKey_0 + (i + 1) % 10));
    frame(3);
    const ImGuiWindow* w = ImGui::FindWindowByName(titles[i]);
    ASSERT_NE(w, nullptr) << titles[i];
    EXPECT_TRUE(w->DockTabIsVisible) << titles[i];
  }
}

TEST_F(Program, TheFileDialogOpensWhatIsClicked) {
  fs::copy_file(recorded("torch/inference.tier1.tmk"), folder_ / "run.tmk");
  std::ofstream(folder_ / "notes.txt") << "not a trace";
  fs::current_path(folder_);
  frame(2);
  hold(ImGuiMod_Ctrl, true);
  key(ImGuiKey_O);
  hold(ImGuiMod_Ctrl, false);
  frame(3);
  EXPECT_TRUE(reads("Open a trace", "run.tmk"));
  EXPECT_FALSE(reads("Open a trace", "notes.txt"));
  const ImRect r = window("Open a trace");
  // The list: "..", then the file.
  for (float y = r.Min.y + 50; y < r.Max.y - 40 && !shell_->loading() && shown_path().empty();
       y += 8) {
    move({r.Min.x + 60, y});
    if (ImGui::GetCurrentContext()->HoveredWindow == nullptr) continue;
    if (y > r.Min.y + 95) click({r.Min.x + 60, y});
  }
  wait();
  EXPECT_NE(shown_path().find("run.tmk"), std::string::npos);

  // Typed, with the keyboard only.
  hold(ImGuiMod_Ctrl, true);
  key(ImGuiKey_O);
  hold(ImGuiMod_Ctrl, false);
  frame(3);
  ASSERT_TRUE(ImGui::GetIO().WantTextInput);
  hold(ImGuiMod_Ctrl, true);
  key(ImGuiKey_A);
  hold(ImGuiMod_Ctrl, false);
  const std::string second = recorded("torch/streams.tier1.tmk");
  ImGui::GetIO().AddInputCharactersUTF8(second.c_str());
  frame(3);
  key(ImGuiKey_Enter);
  frame(2);
  wait();
  EXPECT_EQ(shown_path(), second);
}

TEST_F(Program, FilesAreDropped) {
  const std::string a = recorded("torch/training.tier2.tmk");
  const std::string b = recorded("torch/mixed_precision.tier2.tmk");
  shell_->drop({a}, true);
  wait();
  EXPECT_EQ(shown_path(), a) << "with shift, but there was no trace to compare with";
  EXPECT_EQ(selection().comparison.other(), nullptr);
  shell_->drop({b}, true);
  wait();
  EXPECT_EQ(shown_path(), a);
  ASSERT_NE(selection().comparison.other(), nullptr);
  EXPECT_EQ(selection().comparison.other()->trace.path, b);
  shell_->drop({a, b}, false);
  wait();
  EXPECT_EQ(shown_path(), b);
  ASSERT_NE(selection().comparison.other(), nullptr);
  EXPECT_EQ(selection().comparison.other()->trace.path, a);
  shell_->drop({}, false);
  shell_->drop({a}, false);
  wait();
  EXPECT_EQ(selection().comparison.other(), nullptr) << "a new trace starts without a comparison";
}

TEST_F(Program, TwoTracesHaveTheSignsOfTidemarkDiff) {
  const std::string before = recorded("torch/mixed_precision.tier2.tmk");
  const std::string after = recorded("torch/training.tier2.tmk");
  shell_->open_in_order({before, after});
  wait();
  EXPECT_EQ(shown_path(), after);
  EXPECT_TRUE(ImGui::FindWindowByName(ComparePanel::kTitle)->DockTabIsVisible);
  const auto first = load_model(before);
  const auto second = load_model(after);
  ASSERT_TRUE(first && second);
  const auto diff = compare((*first)->report, (*second)->report);
  ASSERT_TRUE(diff);
  const DiffLine& peak = diff->devices.front().peaks.front();
  ASSERT_NE(peak.change(), 0);
  const auto reference = selection().compared(model());
  ASSERT_TRUE(reference);
  const Lane& lane = model().lanes[selection().cursor.lane()];
  const auto rows = change_rows(model(), lane, selection().cursor.moment(model()), *reference);
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const ChangeRow& row) {
    return !row.heading && row.before == peak.before_bytes && row.after == peak.after_bytes &&
           row.change() == peak.change();
  })) << peak.name;
}

// A layout that was stored has no tabs before its first frame.
TEST_F(Program, TwoTracesOpenOnTheComparisonAlsoWithAStoredLayout) {
  open_file(recorded("torch/inference.tier1.tmk"));
  const std::string layout = ImGui::SaveIniSettingsToMemory();
  stop();
  start();
  ImGui::LoadIniSettingsFromMemory(layout.c_str(), layout.size());
  shell_->open_in_order(
      {recorded("torch/inference.tier1.tmk"), recorded("torch/inference.tier2.tmk")});
  wait();
  frame(10);  // the tabs of the layout, the request, and the tab it brings to the front
  EXPECT_TRUE(ImGui::FindWindowByName(ComparePanel::kTitle)->DockTabIsVisible);
}

TEST_F(Program, AWindowStartsWithThePanelTimeAndSearchOfTheCommandLine) {
  const std::string path = recorded("torch/training.tier2.tmk");
  const auto loaded = load_model(path);
  ASSERT_TRUE(loaded);
  const AllocationHistory& memory = *(*loaded)->lanes[0].memory;
  const int64_t after_ns = memory.time_ns[memory.event_count() / 2] - (*loaded)->trace.start_ns;
  const int64_t after_us = after_ns / 1000 + 1;
  shell_->start_with({"tables:kernels", std::to_string(after_us) + "us", "forward"});
  shell_->open(path);
  wait();
  ASSERT_EQ(shown_path(), path);
  const ImGuiWindow* tables = ImGui::FindWindowByName(TablesPanel::kTitle);
  ASSERT_NE(tables, nullptr);
  EXPECT_TRUE(tables->DockTabIsVisible);
  EXPECT_TRUE(reads(TablesPanel::kTitle, "longest")) << "the table of kernels";
  EXPECT_EQ(selection().cursor.time(model()), static_cast<double>(after_us) * 1e3);
  EXPECT_EQ(selection().highlights.search, "forward");
  // Also in front of a comparison.
  shell_->start_with({"tables", "", ""});
  shell_->open_in_order({recorded("torch/inference.tier1.tmk"), path});
  wait();
  EXPECT_TRUE(ImGui::FindWindowByName(TablesPanel::kTitle)->DockTabIsVisible);
  // The next trace starts as usual.
  shell_->open(recorded("torch/inference.tier1.tmk"));
  wait();
  EXPECT_TRUE(selection().highlights.search.empty());

  shell_->start_with({"", "oom", ""});
  shell_->open(recorded("torch/inference.tier1.tmk"));
  wait();
  EXPECT_NE(shell_->error().find("no allocation failed"), std::string::npos) << shell_->error();

  EXPECT_TRUE(check_start({"map:age", "1.5s", ""}));
  EXPECT_TRUE(check_start({}));
  EXPECT_FALSE(check_start({"cellar", "", ""}));
  EXPECT_FALSE(check_start({"map:smell", "", ""}));
  EXPECT_FALSE(check_start({"", "noon", ""}));
  EXPECT_TRUE(check_start({"", "20ms..1.5s", ""}));
  EXPECT_FALSE(check_start({"", "2s..1s", ""}));
  EXPECT_FALSE(check_start({"", "", "", "first"}));
  EXPECT_TRUE(check_start({"stack", "", "", "3", "3,7"}));
  EXPECT_FALSE(check_start({"stack", "", "", "", "3"}));
}

// Everything that --help lists is accepted.
TEST_F(Program, ListsThePanelsAndHowTheyCanBeDrawn) {
  size_t ways = 0;
  for (const Panels::Entry& panel : Panels::entries()) {
    EXPECT_NE(Panels::names_and_ways().find(panel.id), std::string::npos);
    if (panel.ways == nullptr) continue;
    for (const std::string& way : panel.ways()) {
      EXPECT_TRUE(check_start({std::string(panel.id) + ":" + way, "", ""})) << way;
      EXPECT_NE(Panels::names_and_ways().find(way), std::string::npos);
      ++ways;
    }
  }
  EXPECT_GT(ways, 30U);
}

TEST_F(Program, OpensOnARankATimeAndSteps) {
  const auto start_on = [&](const StartView& start, const char* trace) {
    shell_ = std::make_unique<Shell>(Config());
    shell_->start_with(start);
    shell_->open(recorded(trace));
    wait_for_report();
  };
  start_on({"", "", "", "2"}, "ranks/ddp4");
  EXPECT_EQ(model().process_of(model().lanes[selection().cursor.lane()]).info.rank, 2);
  start_on({"", "", "", "7"}, "ranks/ddp4");
  EXPECT_NE(shell_->error().find("no memory of rank 7"), std::string::npos) << shell_->error();

  start_on({"timeline", "4.5s..5s", ""}, "torch/training.tier2.tmk");
  EXPECT_DOUBLE_EQ(selection().view.range().begin, 4.5e9);
  EXPECT_DOUBLE_EQ(selection().view.range().end, 5e9);

  start_on({"stack", "", "", "", "1,3"}, "torch/training.tier2.tmk");
  const StackPanelOptions& options = shell_->panels().stack.options;
  EXPECT_TRUE(options.steps);
  EXPECT_EQ(options.pair, (StepPair{1, 3}));
  start_on({"stack", "", "", "", "1,300"}, "torch/training.tier2.tmk");
  EXPECT_NE(shell_->error().find("no step 300"), std::string::npos) << shell_->error();
}

// As a link of the page asks: how a panel is drawn survives the opening of the trace.
TEST_F(Program, ALinkShowsOnePanelAloneInTheWayItAsksFor) {
  StartView start{"map:age", "", ""};
  start.alone = true;
  shell_->start_with(start);
  shell_->open(recorded("torch/training.tier2.tmk"));
  wait();
  EXPECT_EQ(selection().colouring.by, ColourBy::kAge);
  frame();
  EXPECT_EQ(ImGui::FindWindowByName(TimelinePanel::kTitle), nullptr);
}

// A panel in front does not move the cursor away from what the trace opens on.
TEST_F(Program, APanelThatIsAskedForStandsAtTheFinding) {
  const std::string path = TIDEMARK_SNAPSHOTS "/oom_fraction.pickle.gz";
  shell_->open(path);
  wait_for_report();
  ASSERT_EQ(shown_path(), path);
  const double finding = selection().cursor.time(model());
  shell_->start_with({"tables", "", ""});
  shell_->open(path);
  wait_for_report();
  EXPECT_EQ(selection().cursor.time(model()), finding);
  EXPECT_TRUE(ImGui::FindWindowByName(TablesPanel::kTitle)->DockTabIsVisible);
  // A time that is asked for does.
  shell_->start_with({"tables", "1ms", ""});
  shell_->open(path);
  wait_for_report();
  EXPECT_EQ(selection().cursor.time(model()), 1e6);
}

// A picture has its panels where a window has them, which drew the welcome page before.
TEST_F(Program, TheLayoutDoesNotDependOnTheFramesBeforeIt) {
  const std::string path = recorded("torch/training.tier2.tmk");
  const auto heights = [] {
    std::vector<float> all;
    for (const char* title : {TimelinePanel::kTitle, MapPanel::kTitle, MomentPanel::kTitle}) {
      const ImGuiWindow* window = ImGui::FindWindowByName(title);
      all.push_back(window == nullptr ? -1 : window->Pos.y);
      all.push_back(window == nullptr ? -1 : window->Size.y);
    }
    return all;
  };
  open_file(path);
  const std::vector<float> at_once = heights();
  stop();
  start();
  frame(3);
  open_file(path);
  EXPECT_EQ(heights(), at_once);
}

// Typed faster than frames are drawn.
void type(const std::string& text) {
  ImGuiIO& io = ImGui::GetIO();
  for (const char c : text) {
    const auto k = c == '/' ? ImGuiKey_Slash : static_cast<ImGuiKey>(ImGuiKey_A + (c - 'a'));
    io.AddKeyEvent(k, true);
    io.AddInputCharacter(static_cast<unsigned int>(c));
    io.AddKeyEvent(k, false);
  }
}

TEST_F(Program, NothingTypedIntoTheSearchIsLost) {
  open();
  const bool dark = theme().dark;
  type("/test");
  frame(2);
  type("data");
  frame(60);
  EXPECT_EQ(selection().highlights.search, "testdata");
  EXPECT_EQ(theme().dark, dark) << "T switches the theme only outside of a text";
  EXPECT_TRUE(ImGui::GetIO().WantTextInput);
  key(ImGuiKey_Escape);
  frame(2);
  EXPECT_EQ(selection().highlights.search, "");
  type("/next");
  frame(60);
  EXPECT_EQ(selection().highlights.search, "next");
}

// A mouse that moves, or a page that sends keys and text apart, gives them to different frames.
TEST_F(Program, TheKeyOfTheSearchIsNoPartOfIt) {
  open();
  ImGuiIO& io = ImGui::GetIO();
  for (const int frames_between : {1, 3, 30}) {
    io.AddKeyEvent(ImGuiKey_Slash, true);
    frame(frames_between);
    io.AddInputCharacter('/');
    io.AddKeyEvent(ImGuiKey_Slash, false);
    type("conv");
    frame(60);
    EXPECT_EQ(selection().highlights.search, "conv") << frames_between;
    key(ImGuiKey_Escape);
    frame(2);
  }
}

TEST_F(Program, NothingTypedAheadOfTheFileDialogIsLost) {
  open();
  shell_->dialogs().ask_for_file(false);
  type("/tmp/trace");
  frame(60);
  EXPECT_TRUE(reads("Open a trace", "/tmp/trace"));
  EXPECT_EQ(selection().highlights.search, "");
}

TEST_F(Program, EqualFramesHaveEqualHashes) {
  open();
  frame(4);
  const uint64_t before = hash_of(*ImGui::GetDrawData());
  frame(1);
  EXPECT_EQ(hash_of(*ImGui::GetDrawData()), before) << "at rest nothing is drawn again";
  selection().step_events(model(), -1);
  frame(2);
  EXPECT_NE(hash_of(*ImGui::GetDrawData()), before);
}

TEST_F(Program, RecentFilesAreOfferedAndRemembered) {
  const std::string path = recorded("torch/inference.tier1.tmk");
  Config config = Config::load_from(folder_);
  config.note_recent(path);
  shell_ = std::make_unique<Shell>(config);
  frame(3);
  const std::string page = read_window("##welcome");
  ASSERT_NE(page.find("Recent"), std::string::npos);
  const ImRect r = window("##welcome");
  for (float y = r.Min.y + r.GetHeight() * 0.3F; y < r.Max.y && shown_path().empty(); y += 12) {
    click({r.Min.x + r.GetWidth() / 2, y});
    wait();
  }
  EXPECT_EQ(shown_path(), path);
  key(ImGuiKey_T);
  shell_->config().save();
  const Config again = Config::load_from(folder_);
  ASSERT_FALSE(again.recent.empty());
  EXPECT_EQ(again.recent.front(), path);
  EXPECT_FALSE(again.dark);
}

TEST_F(Program, ErrorsSayWhatToDoAndGoAway) {
  shell_->open((folder_ / "nothing.tmk").string());
  wait();
  EXPECT_NE(shell_->error().find("nothing.tmk"), std::string::npos) << "which file";
  EXPECT_TRUE(reads("##error", "Open another"));
  std::ofstream(folder_ / "empty.tmk") << "no trace at all";
  shell_->open((folder_ / "empty.tmk").string());
  wait();
  EXPECT_NE(shell_->error().find("empty.tmk"), std::string::npos);
  // A trace whose file is removed while it is shown: an error appears, and the trace stays.
  fs::copy_file(recorded("torch/inference.tier1.tmk"), folder_ / "run.tmk");
  shell_->open((folder_ / "run.tmk").string());
  wait();
  EXPECT_TRUE(shell_->error().empty());
  fs::remove(folder_ / "run.tmk");
  key(ImGuiKey_F5);
  for (int i = 0; i < 20'000 && shell_->reloading(); ++i) {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  frame(2);
  EXPECT_NE(shell_->error().find("run.tmk"), std::string::npos);
  EXPECT_NE(shown_path().find("run.tmk"), std::string::npos);
  const ImRect r = window("##error");
  for (float x = r.Max.x - 4; x > r.Max.x - 60 && !shell_->error().empty(); x -= 5) {
    click({x, r.GetCenter().y});
  }
  EXPECT_TRUE(shell_->error().empty()) << "x closes it";
}

TEST_F(Program, LossesAreVisibleInEveryView) {
  const std::string whole = recorded("torch/training.tier2.tmk");
  const fs::path cut = folder_ / "cut.tmk";
  fs::copy_file(whole, cut);
  fs::resize_file(cut, fs::file_size(whole) * 6 / 10);
  open_file(cut.string());
  for (int i = 0; i < 9; ++i) {
    key(static_cast<ImGuiKey>(ImGuiKey_1 + i));
    EXPECT_TRUE(reads("##losses", "Incomplete:")) << "panel " << i + 1;
  }
  key(ImGuiKey_1);
  const ImRect r = window("##losses");
  click({r.Min.x + 140, r.GetCenter().y});
  frame(3);
  const ImGuiWindow* findings = ImGui::FindWindowByName(FindingsPanel::kTitle);
  ASSERT_NE(findings, nullptr);
  EXPECT_TRUE(findings->DockTabIsVisible) << "a click shows all of it";
  ASSERT_TRUE(shell_->show_only("map"));
  frame(3);
  EXPECT_TRUE(reads("##losses", "Incomplete:")) << "also in a picture of one panel";
}

TEST_F(Program, LossesOfTheSecondTraceAreShownToo) {
  const std::string whole = recorded("torch/training.tier2.tmk");
  const fs::path cut = folder_ / "cut.tmk";
  fs::copy_file(whole, cut);
  fs::resize_file(cut, fs::file_size(whole) * 6 / 10);
  open_file(whole);
  EXPECT_FALSE(reads("##losses", "Incomplete:"));
  shell_->open_other(cut.string());
  wait();
  EXPECT_TRUE(reads("##losses", "cut.tmk"));
}

TEST_F(Program, EscapeClosesWhatFloatsAboveFirst) {
  open();
  key(ImGuiKey_C);
  ASSERT_TRUE(selection().comparison.reference());
  key(ImGuiKey_F1);
  ASSERT_TRUE(reads("Keys", "the peak"));
  key(ImGuiKey_Escape);
  frame(2);
  EXPECT_FALSE(reads("Keys", "the peak"));
  EXPECT_TRUE(selection().comparison.reference()) << "the page only";
  key(ImGuiKey_Escape);
  EXPECT_FALSE(selection().comparison.reference());
}

TEST_F(Program, ANoticeIsShownWithTheFacts) {
  open();
  shell_->notice = "saved a picture";
  frame(2);
  EXPECT_TRUE(reads("##status", "saved a picture"));
  EXPECT_TRUE(reads("##status", "1 device"));
}

TEST_F(Program, PicturesOfAPanelInAllItsModes) {
  open();
  for (const char* way : {"flame", "flame:rows", "flame:flame:bottom-up", "map:age", "map:owner",
                          "tables:segments", "ranks:curves", "ranks:heat"}) {
    EXPECT_TRUE(shell_->show_only(way)) << way;
    frame(2);
  }
  for (const char* way : {"", "flam", "flame:", "map:colour", "timeline:rows", "tables:x"}) {
    EXPECT_FALSE(shell_->show_only(way)) << way;
  }
}

}  // namespace
}  // namespace tidemark::view
