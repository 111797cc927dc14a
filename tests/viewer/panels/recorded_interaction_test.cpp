// Clicks, keys and drags on recorded traces: kernels, collectives, holes, findings, tables, export.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "analysis/wording.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"

namespace tidemark::view {
namespace {

class RecordedInteraction : public Interaction {
 protected:
  // Moves over an area until `found` holds; returns that point.
  template <typename Found>
  std::optional<ImVec2> click_until(const ImRect& area, float step_x, float step_y,
                                    const Found& found) {
    for (float y = area.Min.y; y < area.Max.y; y += step_y) {
      for (float x = area.Min.x; x < area.Max.x; x += step_x) {
        click({x, y});
        if (found()) return ImVec2(x, y);
      }
    }
    return std::nullopt;
  }
  static ImRect below_curves() {
    const ImRect r = window(TimelinePanel::kTitle);
    return {{r.Min.x + 110, r.Min.y + r.GetHeight() * 0.55F}, {r.Max.x - 20, r.Max.y - 12}};
  }
  bool in_front(const char* title) {
    const ImGuiWindow* w = ImGui::FindWindowByName(title);
    return w != nullptr && w->DockTabIsVisible;
  }

  const AllocationHistory& memory_of(const ActivityRef& ref) {
    const ActivityRow& row = model().activity[ref.process].rows[ref.row];
    return *model().lanes[model().lane_of(ref.process, row.device)].memory;
  }
  // Block by block: allocated, freed, kept and short-lived while it ran.
  StretchSums sums_of(const ActivityRef& ref) {
    const SpanRow& spans = model().activity[ref.process].rows[ref.row].spans;
    const AllocationHistory& memory = memory_of(ref);
    const auto within = [&](uint32_t event) {
      return event != kNever && memory.time_ns[event] >= spans.begin_ns(ref.index) &&
             memory.time_ns[event] <= spans.end_ns(ref.index);
    };
    StretchSums sums{};
    for (uint32_t i = 0; i < memory.allocations.size(); ++i) {
      const Allocation a = memory.allocations[i];
      const bool made = !a.seeded && within(a.birth);
      const bool freed = within(a.release);
      const bool in[] = {made, freed, made && !freed, made && freed};
      for (size_t part = 0; part < kStretchParts; ++part) {
        sums[part].bytes += in[part] ? a.block_bytes : 0;
        sums[part].count += in[part] ? 1 : 0;
      }
    }
    return sums;
  }
  void shows_memory_of(const ActivityRef& ref) {
    const std::string text = read_window(DetailPanel::kTitle);
    const StretchSums sums = sums_of(ref);
    const char* names[] = {"allocated", "freed", "kept", "short-lived"};
    for (size_t part = 0; part < kStretchParts; ++part) {
      const std::string fact = fmt::format("{} {} in {}", names[part], size_text(sums[part].bytes),
                                           counted(sums[part].count, "block"));
      EXPECT_NE(text.find(without_spaces(fact)), std::string::npos) << fact << "\n" << text;
    }
  }
};

TEST_F(RecordedInteraction, AClickOnAKernelShowsItAndItsMemory) {
  open_file(TIDEMARK_TRACES "/train");
  const auto at = click_until(below_curves(), 37, 9,
                              [&] { return selection().highlights.activity.has_value(); });
  ASSERT_TRUE(at);
  const ActivityRef ref = *selection().highlights.activity;
  const ActivityRow& row = model().activity[ref.process].rows[ref.row];
  EXPECT_EQ(row.kind, ActivityKind::kKernels);
  EXPECT_NEAR(selection().cursor.time(model()),
              static_cast<double>(row.spans.begin_ns(ref.index) - model().trace.start_ns), 1)
      << "the cursor is where it began";
  frame(3);
  EXPECT_TRUE(in_front(DetailPanel::kTitle));
  shows_memory_of(ref);
  key(ImGuiKey_Escape);
  EXPECT_FALSE(selection().highlights.activity);
}

// Few kernels run while their program allocates something.
TEST_F(RecordedInteraction, AKernelShowsWhatIsAllocatedAndFreedWhileItRuns) {
  ImGui::GetIO().DisplaySize = {1400, 4000};
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  size_t seen = 0;
  const std::vector<ActivityRow>& rows = model().activity[0].rows;
  for (uint32_t row = 0; row < rows.size() && seen < 20; ++row) {
    for (uint32_t i = 0; i < rows[row].spans.size() && seen < 20; ++i) {
      const ActivityRef ref{0, row, i};
      const StretchSums sums = sums_of(ref);
      if (sums[0].bytes == 0 || sums[1].bytes == 0) continue;
      ++seen;
      selection().choose_activity(model(), ref);
      frame(3);
      shows_memory_of(ref);
    }
  }
  EXPECT_EQ(seen, 20U);
}

TEST_F(RecordedInteraction, AClickOnACollectiveShowsItOnAllRanks) {
  open_file(TIDEMARK_TRACES "/ranks/ddp4");
  // The NCCL rows come first below the curves of the selected rank.
  const auto chosen = [&] {
    if (!selection().highlights.activity) return false;
    const ActivityRef ref = *selection().highlights.activity;
    return model().activity[ref.process].rows[ref.row].kind == ActivityKind::kCollectives;
  };
  const ImRect r = window(TimelinePanel::kTitle);
  const ImRect area{{r.Min.x + 110, r.Min.y + 150}, {r.Max.x - 20, r.Max.y - 12}};
  ASSERT_TRUE(click_until(area, 61, 9, chosen));
  const ActivityRef ref = *selection().highlights.activity;
  const uint32_t op = model().activity[ref.process].rows[ref.row].spans.item(ref.index);
  EXPECT_LT(op, model().trace.processes[ref.process].nccl.size());
  EXPECT_EQ(model().lanes[selection().cursor.lane()].process, ref.process);
}

TEST_F(RecordedInteraction, TheWheelOverKernelsZoomsAndADragPans) {
  open_file(TIDEMARK_TRACES "/train");
  const auto at = click_until(below_curves(), 37, 9,
                              [&] { return selection().highlights.activity.has_value(); });
  ASSERT_TRUE(at);
  key(ImGuiKey_Escape);
  const VisibleRange before = selection().view.range();
  move(*at);
  ImGui::GetIO().AddMouseWheelEvent(0, 5);
  frame();
  const VisibleRange zoomed = selection().view.range();
  EXPECT_LT(zoomed.span(), before.span() * 0.5);
  button(true);
  move({at->x - 150, at->y});
  button(false);
  EXPECT_GT(selection().view.range().begin, zoomed.begin);
  EXPECT_FALSE(selection().highlights.activity) << "a drag is no click";
}

TEST_F(RecordedInteraction, CurvesCanBeSwitchedOff) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  ASSERT_FALSE(model().lanes[0].used.empty());
  const ImRect r = window(TimelinePanel::kTitle);
  TimelineOptions& options = shell_->panels().timeline.options;
  ASSERT_TRUE(options.used && options.activity);
  for (float x = r.Min.x + 16; x < r.Max.x && (options.used || options.activity); x += 12) {
    const TimelineOptions was = options;
    click({x, r.Min.y + 42});
    // Every box is hit more than once on the way: restore the others.
    if (was.used && !options.used) continue;
    if (was.activity && !options.activity) continue;
    options = was;
  }
  EXPECT_FALSE(options.used);
  EXPECT_FALSE(options.activity);
}

TEST_F(RecordedInteraction, AClickOnAHoleShowsWhatPinsIt) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/varying_sizes.bad.tmk");
  key(ImGuiKey_2);
  key(ImGuiKey_Escape);  // the finding's own hole
  ASSERT_FALSE(selection().highlights.hole);
  ASSERT_FALSE(selection().cursor.moment(model()).state.holes.empty());
  const ImRect r = window(MapPanel::kTitle);
  const ImRect area{{r.Min.x + 190, r.Min.y + 100}, {r.Max.x - 20, r.Max.y - 10}};
  ASSERT_TRUE(click_until(area, 23, 11, [&] { return selection().highlights.hole.has_value(); }));
  const auto hole = selection().cursor.moment(model()).layout.hole_at(*selection().highlights.hole);
  ASSERT_GT(hole.size_bytes, 0U);
  EXPECT_FALSE(hole.before == kNever && hole.after == kNever);
  frame(3);
  EXPECT_TRUE(in_front(DetailPanel::kTitle));
}

TEST_F(RecordedInteraction, AClickOnAFindingGoesToItsProof) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/losses_kept.bad.tmk");
  ASSERT_FALSE(model().report.findings.empty());
  key(ImGuiKey_P);
  key(ImGuiKey_6);
  ASSERT_TRUE(in_front(FindingsPanel::kTitle));
  const uint64_t version = selection().version();
  const ImRect r = window(FindingsPanel::kTitle);
  // Anywhere on the first card.
  click({r.Max.x - 30, r.Min.y + 52});
  frame(3);
  EXPECT_NE(selection().version(), version);
  EXPECT_TRUE(in_front(FlamePanel::kTitle)) << "growth is seen as a difference of two instants";
  EXPECT_TRUE(selection().compared(model()));
}

TEST_F(RecordedInteraction, TheOomOfACardIsShown) {
  open_file(TIDEMARK_TEST_DATA "/snapshots/oom_fraction.pickle.gz");
  ASSERT_FALSE(model().ooms.empty());
  key(ImGuiKey_P);
  key(ImGuiKey_6);
  selection().set_event(model(), 0, 0);
  const ImRect r = window(FindingsPanel::kTitle);
  const ImRect area{{r.Min.x + 24, r.Min.y + 40}, {r.Min.x + 40, r.Max.y - 10}};
  move(area.GetCenter());
  ImGui::GetIO().AddMouseWheelEvent(0, -3);  // to the second card
  frame(3);
  const auto gone = [&] { return selection().cursor.event() == model().ooms[0].event; };
  EXPECT_TRUE(click_until(area, 50, 10, gone));
}

TEST_F(RecordedInteraction, TablesOfOwnersKernelsAndCollectives) {
  open_file(TIDEMARK_TRACES "/ranks/ddp2");
  key(ImGuiKey_4);
  for (const char* table : {"Owners", "Kernels", "Collectives", "Stacks"}) {
    shell_->panels().tables.show_table(table);
    frame(4);
    EXPECT_GT(shell_->panels().tables.rows_shown(), 0U) << table;
  }
  shell_->panels().tables.show_table("Kernels");
  frame(4);
  const size_t all = shell_->panels().tables.rows_shown();
  selection().highlights.search = "nccl";
  frame(4);
  EXPECT_LT(shell_->panels().tables.rows_shown(), all);
  selection().highlights.search.clear();
  const ImRect r = window(TablesPanel::kTitle);
  const ImRect rows{{r.Min.x + 300, r.Min.y + 120}, {r.Min.x + 310, r.Max.y - 20}};
  EXPECT_TRUE(
      click_until(rows, 50, 10, [&] { return selection().highlights.activity.has_value(); }));
}

TEST_F(RecordedInteraction, LargeTablesAreSortedInTheBackground) {
  SyntheticOptions options;
  options.events = 200'000;
  options.slots = 60'000;
  options.events_per_step = 200'000;
  open(options);
  key(ImGuiKey_P);
  key(ImGuiKey_4);
  shell_->panels().tables.show_table("Allocations");
  frame(2);
  // First the blocks are looked up, then they are sorted.
  const auto behind = [&] {
    const Moment& shown = selection().cursor.moment(model());
    return !shown.known || shown.event != selection().cursor.event();
  };
  for (int i = 0; i < 30000 && (behind() || shell_->panels().tables.busy()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    frame(1);
  }
  EXPECT_FALSE(shell_->panels().tables.busy());
  EXPECT_EQ(shell_->panels().tables.rows_shown(),
            selection().cursor.moment(model()).state.live.size());
  EXPECT_GT(shell_->panels().tables.rows_shown(), 20'000U);
}

class ExportDialog : public RecordedInteraction {
 protected:
  ExportDialog()
      : folder_(std::filesystem::temp_directory_path() /
                ("tidemark-export-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ExportDialog() override { std::filesystem::remove_all(folder_); }

  ExportPanel& panel() { return shell_->dialogs().exporter; }
  void open_dialog() {
    hold(ImGuiMod_Ctrl, true);
    key(ImGuiKey_E);
    hold(ImGuiMod_Ctrl, false);
    ASSERT_TRUE(panel().visible());
    panel().folder[folder_.string().copy(panel().folder, sizeof panel().folder - 1)] = '\0';
  }
  // The left one of the buttons at the bottom.
  void press_save() {
    frame(3);
    const ImRect r = window(ExportPanel::kTitle);
    click({r.Min.x + 30, r.Max.y - 22});
    for (int i = 0; i < 4000 && panel().busy(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      frame(1);
    }
    frame(2);
  }

  void save_as_and_be_refused(const char* name) {
    panel().name[std::string_view(name).copy(panel().name, sizeof panel().name - 1)] = '\0';
    press_save();
    EXPECT_TRUE(panel().visible()) << name;
    EXPECT_FALSE(panel().asking()) << name;
    EXPECT_NE(panel().error().find("input"), std::string::npos) << panel().error();
  }

  std::filesystem::path folder_;
};

TEST_F(ExportDialog, WritesTheTimeThatWasMeasured) {
  namespace fs = std::filesystem;
  open_file(TIDEMARK_TRACES "/ranks/ddp2");
  const auto save = [&](bool only_time, bool only_rank) {
    open_dialog();
    panel().only_time = only_time;
    panel().only_rank = only_rank;
    const fs::path file = panel().target();
    fs::remove(file);
    press_save();
    EXPECT_FALSE(panel().visible());
    EXPECT_NE(shell_->notice.find("saved"), std::string::npos) << shell_->notice;
    return fs::exists(file) ? fs::file_size(file) : 0;
  };
  const auto whole = save(false, false);
  const auto one_rank = save(false, true);
  selection().highlights.measure =
      absolute_range(model(), {model().span_ns() * 0.5, model().span_ns() * 0.6});
  const auto part = save(true, true);
  EXPECT_GT(part, 0U);
  EXPECT_LT(one_rank, whole);
  EXPECT_LT(part, one_rank);
}

TEST_F(ExportDialog, WritesEveryFormat) {
  open_file(TIDEMARK_TRACES "/torch/inference.tier1.tmk");
  const std::pair<ExportFormat, const char*> formats[] = {
      {ExportFormat::kPerfetto, "inference.tier1.pftrace"},
      {ExportFormat::kSqlite, "inference.tier1.db"},
      {ExportFormat::kCsv, "inference.tier1.csv"},
      {ExportFormat::kSnapshot, "inference.tier1.pickle"}};
  for (const auto& [format, name] : formats) {
    open_dialog();
    panel().set_format(format);
    EXPECT_EQ(panel().target(), (folder_ / name).string());
    press_save();
    EXPECT_TRUE(std::filesystem::exists(folder_ / name)) << panel().error();
    EXPECT_FALSE(panel().visible()) << name;
  }
}

TEST_F(ExportDialog, AsksBeforeItOverwritesAndNeverWritesOverTheTrace) {
  namespace fs = std::filesystem;
  const fs::path trace = folder_ / "run.tmk";
  fs::copy_file(TIDEMARK_TRACES "/torch/inference.tier1.tmk", trace);
  open_file(trace.string());
  open_dialog();
  const fs::path file = panel().target();
  std::ofstream(file) << "mine";
  press_save();
  EXPECT_TRUE(panel().asking());
  EXPECT_EQ(fs::file_size(file), 4U) << "nothing is written before the answer";
  press_save();  // the same place, which says "Overwrite" now
  EXPECT_FALSE(panel().visible());
  EXPECT_GT(fs::file_size(file), 4U);

  const auto size = fs::file_size(trace);
  fs::create_symlink(trace, folder_ / "link.pftrace");
  fs::create_hard_link(trace, folder_ / "hard.pftrace");
  for (const char* name : {"run.tmk", "link.pftrace", "hard.pftrace"}) {
    open_dialog();
    save_as_and_be_refused(name);
    EXPECT_EQ(fs::file_size(trace), size);
  }
}

TEST_F(ExportDialog, NeverWritesOverTheTraceThatIsComparedWith) {
  namespace fs = std::filesystem;
  const fs::path other = folder_ / "other.tmk";
  fs::copy_file(TIDEMARK_TRACES "/torch/inference.tier1.tmk", other);
  open_file(TIDEMARK_TRACES "/torch/training.tier1.tmk");
  const auto loaded = load_model(other.string());
  ASSERT_TRUE(loaded);
  shell_->set_other(*loaded);
  const auto size = fs::file_size(other);
  open_dialog();
  save_as_and_be_refused("other.tmk");
  EXPECT_EQ(fs::file_size(other), size);
}

TEST_F(ExportDialog, NeverWritesATableOverTheTrace) {
  namespace fs = std::filesystem;
  const fs::path trace = folder_ / "run.csv" / "allocations.csv";
  fs::create_directory(trace.parent_path());
  fs::copy_file(TIDEMARK_TRACES "/torch/inference.tier1.tmk", trace);
  open_file(trace.string());
  const auto size = fs::file_size(trace);
  open_dialog();
  panel().set_format(ExportFormat::kCsv);
  save_as_and_be_refused("run.csv");
  EXPECT_EQ(fs::file_size(trace), size);
}

TEST_F(ExportDialog, WritesAPageWhereThereIsOne) {
  const std::string page = (folder_ / "page").string();
  std::ofstream(page) << "<html><!-- traces -->\n</html>";
  open_file(TIDEMARK_TRACES "/torch/inference.tier1.tmk");
  open_dialog();
  panel().page = page;
  panel().set_format(ExportFormat::kPage);
  EXPECT_EQ(panel().target(), (folder_ / "inference.tier1.html").string());
  press_save();
  EXPECT_FALSE(panel().visible()) << panel().error();
  EXPECT_GT(std::filesystem::file_size(folder_ / "inference.tier1.html"),
            std::filesystem::file_size(TIDEMARK_TRACES "/torch/inference.tier1.tmk"));
}

TEST_F(RecordedInteraction, TheReportComesAfterThePanelsAndIsTheSame) {
  const std::string path = TIDEMARK_TEST_DATA "/scenarios/losses_kept.bad.tmk";
  shell_->open(path);
  const auto wait = [&](const auto& until) {
    for (int i = 0; i < 20'000 && !until(); ++i) {
      frame(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    frame(2);
  };
  wait([&] { return shell_->model() != nullptr; });
  ASSERT_NE(shell_->model(), nullptr);
  key(ImGuiKey_6);
  wait([&] { return model().report_ready; });
  ASSERT_TRUE(model().report_ready);
  EXPECT_FALSE(shell_->working());
  const auto at_once = load_model(path);
  ASSERT_TRUE(at_once);
  ASSERT_EQ(model().report.findings.size(), (*at_once)->report.findings.size());
  EXPECT_FALSE(model().report.findings.empty());
  EXPECT_EQ(model().losses, (*at_once)->losses);
  EXPECT_GT(model().steps_of(model().lanes[0]).count(), 0U);
}

// Neither opening a second file nor closing the program waits for unfinished work or crashes
// because of it.
TEST_F(RecordedInteraction, ALoadCanBeAbandonedAtAnyTime) {
  for (int round = 0; round < 20; ++round) {
    shell_->open(TIDEMARK_TEST_DATA "/scenarios/losses_kept.bad.tmk");
    for (int i = 0; i < round; ++i) frame(1);
  }
  shell_.reset();
}

TEST_F(RecordedInteraction, AClickOnTheNameOfAStepMeasuresIt) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/losses_kept.bad.tmk");
  const Lane& lane = model().lanes[0];
  const Steps& steps = model().steps_of(lane);
  ASSERT_GT(steps.count(), 5U);
  const auto begin = [&](uint32_t step) {
    return since_start(model(), lane.memory->time_ns[steps.boundaries[step]]);
  };
  selection().view.show(begin(3), begin(4));
  frame(2);
  for (float y = 1; y > 0.3F && selection().highlights.measured.empty(); y -= 0.01F) {
    click(in_timeline(0.5F, y));
  }
  EXPECT_EQ(selection().highlights.measured, "step 3");
  ASSERT_TRUE(selection().highlights.measure);
  const VisibleRange range = since_start(model(), *selection().highlights.measure);
  EXPECT_EQ(range.begin, begin(3));
  EXPECT_EQ(range.end, begin(4) - 1);  // the next step's first event is not part of it
}

TEST_F(RecordedInteraction, TheLedgerAddsUpWhereverTheCursorIs) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  const Lane& lane = model().lanes[0];
  for (double share = 0.3; share < 1; share += 0.1) {
    selection().set_time(model(), 0, model().span_ns() * share);
    frame(1);
    const Ledger ledger = lane.ledger->at(selection().cursor.time_ns(model()));
    ASSERT_NE(ledger.device_used_bytes, 0U);
    int64_t sum = 0;
    for (const LedgerLine& line : ledger.lines) sum += line.bytes;
    EXPECT_EQ(sum, static_cast<int64_t>(ledger.device_used_bytes));
    EXPECT_NEAR(selection().cursor.time(model()), model().span_ns() * share, 1);
  }
}

}  // namespace
}  // namespace tidemark::view
