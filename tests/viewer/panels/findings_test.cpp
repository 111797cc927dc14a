// A trace opens on its worst finding, and every error has advice or says why there is none.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "analysis/names/stack_lines.h"
#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "viewer/model/trace/finding_choice.h"
#include "viewer/model/trace/finding_place.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {
namespace {

class Findings : public Interaction {
 protected:
  static bool in_front(const char* title) {
    const ImGuiWindow* w = ImGui::FindWindowByName(title);
    return w != nullptr && w->DockTabIsVisible;
  }
  static bool reads(const std::string& what) {
    return read_window(FindingsPanel::kTitle).find(without_spaces(what)) != std::string::npos;
  }
  void open_in_background(const std::string& path) {
    shell_->open(path);
    for (int i = 0; i < 20'000 && (shell_->loading() || !model_is_ready()); ++i) {
      frame(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    frame(4);
  }
  bool model_is_ready() const {
    return shell_->model() != nullptr && shell_->model()->report_ready;
  }
};

TEST_F(Findings, ATraceWithoutEventsIsNotCalledFreeOfProblems) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "tidemark-findings-empty.pickle").string();
  constexpr char kEmpty[] =
      "\x80\x04}(\x8c\x08segments]\x8c\x0d"
      "device_traces]u.";
  std::ofstream(path, std::ios::binary).write(kEmpty, sizeof kEmpty - 1);
  open_in_background(path);
  key(ImGuiKey_6);  // the findings
  frame(4);
  EXPECT_TRUE(reads("Nothing was recorded")) << read_window(FindingsPanel::kTitle);
  EXPECT_FALSE(reads("no problems were found"));
  std::filesystem::remove(path);
}

TEST_F(Findings, ATraceOpensOnTheFindingWithItsProofBeside) {
  open_in_background(TIDEMARK_TRACES "/ranks/guilty4");
  ASSERT_FALSE(model().report.findings.empty());
  const Finding& worst = model().report.findings.front();
  ASSERT_EQ(worst.severity, kError);
  EXPECT_TRUE(in_front(FindingsPanel::kTitle));
  EXPECT_TRUE(in_front(FlamePanel::kTitle)) << "what this rank holds";
  EXPECT_TRUE(reads(worst.summary));
  EXPECT_TRUE(reads(worst.advice.front().detail));
  EXPECT_TRUE(reads("train_ddp.py")) << "the line";
  EXPECT_EQ(model().process_of(model().lanes[selection().cursor.lane()]).info.rank, worst.rank);
  EXPECT_TRUE(selection().is_view_untouched());
}

TEST_F(Findings, AFindingOfAProcessWithoutARankIsInItsLane) {
  open_file(TIDEMARK_TRACES "/all_kinds");
  ASSERT_EQ(model().lanes.size(), 2U);
  for (uint32_t lane = 0; lane < 2; ++lane) {
    Finding f;
    f.id = "creep";
    f.pid = model().process_of(model().lanes[lane]).info.pid;
    const auto place = place_of(model(), f);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->lane, lane) << "pid " << f.pid;
  }
}

// The picture of a card is of what the finding is about, which may be outside of the allocator.
TEST_F(Findings, PicturesShowTheOwnerThatTheFindingIsAbout) {
  struct Case {
    const char* scenario;
    const char* finding;
    const char* title;
  };
  for (const Case& c :
       {Case{"many_communicators.bad", "nccl_overhead", "NCCL, up to 3.0 GiB"},
        Case{"pinned_growth.bad", "pinned_growth", "pinned host memory, up to 1.3 GiB"},
        Case{"stray_contexts.bad", "stray_context",
             "other processes (also of this trace), up to 1.9 GiB"}}) {
    open_file(std::string(TIDEMARK_TEST_DATA "/scenarios/") + c.scenario);
    const auto& found = model().report.findings;
    ASSERT_TRUE(std::any_of(found.begin(), found.end(), [&](const Finding& f) {
      return f.id == c.finding;
    })) << c.finding;
    ASSERT_TRUE(shell_->show_only("findings"));
    frame(4);
    EXPECT_NE(read_window("##finding").find(without_spaces(c.title)), std::string::npos)
        << read_window("##finding");
    EXPECT_EQ(read_window("##finding").find(without_spaces("largest stack")), std::string::npos);
  }
  // Nothing is known of NCCL here: no curve, and none of something else.
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  Finding f;
  f.id = "nccl_overhead";
  f.pid = model().process_of(model().lanes[0]).info.pid;
  const auto place = place_of(model(), f);
  ASSERT_TRUE(place);
  ProofView proof(shell_->panels().stack.indexes(), {});
  ImGui::NewFrame();
  ImGui::Begin("proof");
  const float before = ImGui::GetCursorPosY();
  proof.draw(model(), f, *place, true);
  EXPECT_EQ(ImGui::GetCursorPosY(), before);
  ImGui::End();
  ImGui::Render();
}

// Lighting up a line that holds nothing would leave the whole picture dark.
TEST_F(Findings, OnlyALineThatHoldsBlocksIsLitUp) {
  open_file(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  const auto lit = [&](const std::vector<std::string>& frames) {
    Finding f;
    f.id = "eval_keeps_graph";
    f.pid = model().process_of(model().lanes[0]).info.pid;
    f.frames = frames;
    const auto place = place_of(model(), f);
    ProofView proof(shell_->panels().stack.indexes(), {});
    ImGui::NewFrame();
    ImGui::SetNextWindowSize({600, 200});
    ImGui::Begin("proof");
    proof.draw(model(), f, *place, true);
    ImGui::End();
    ImGui::Render();
    return read_window("proof").find("bright:") != std::string::npos;
  };
  EXPECT_TRUE(lit(model().report_of(model().lanes[0])->stacks.front().frames));
  EXPECT_FALSE(lit({"score serve.py:76"}));
}

TEST_F(Findings, ALaneEndsWithTheRecordingOfItsProcess) {
  open_file(TIDEMARK_TRACES "/all_kinds");
  ASSERT_EQ(model().lanes.size(), 2U);
  EXPECT_EQ(model().end_of(model().lanes[0]), model().trace.end_ns);
  EXPECT_LT(model().end_of(model().lanes[1]), model().trace.end_ns - 1'000'000'000);
}

TEST_F(Findings, AHealthyTraceOpensAtItsPeak) {
  open_file(TIDEMARK_TEST_DATA "/scenarios/healthy.bad.tmk");
  EXPECT_FALSE(finding_to_open(model()).has_value());
  EXPECT_FALSE(in_front(FindingsPanel::kTitle));
  EXPECT_EQ(selection().cursor.event(),
            model().lanes[selection().cursor.lane()].memory->allocated_peak.event);
}

TEST_F(Findings, OtherProcessesBesideARunThatFitsAreNotOpened) {
  open_file(TIDEMARK_TRACES "/torch/graphs.tier2.tmk");
  for (const Finding& f : model().report.findings) EXPECT_NE(f.id, "other_process");
  EXPECT_FALSE(in_front(FindingsPanel::kTitle));
  EXPECT_TRUE(in_front(MapPanel::kTitle));
  // Nor beside a limit of the program itself: the card had room.
  open_file(TIDEMARK_TRACES "/torch/out_of_memory.tier2.tmk");
  frame(4);
  EXPECT_TRUE(in_front(FindingsPanel::kTitle));
  const std::string text = read_window(FindingsPanel::kTitle);
  EXPECT_NE(text.find(without_spaces("memory fraction")), std::string::npos);
  EXPECT_EQ(text.find(without_spaces("other process")), std::string::npos);
}

TEST_F(Findings, AReportDoesNotMoveACursorThatWasMoved) {
  shell_->open(TIDEMARK_TRACES "/ranks/guilty4");
  for (int i = 0; i < 20'000 && shell_->model() == nullptr; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    frame(1);
  }
  ASSERT_NE(shell_->model(), nullptr);
  if (model().report_ready) GTEST_SKIP() << "the report came with the trace";
  selection().set_event(model(), 1, 7);
  for (int i = 0; i < 20'000 && !model_is_ready(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    frame(1);
  }
  frame(3);
  EXPECT_EQ(selection().cursor.lane(), 1U);
  EXPECT_EQ(selection().cursor.event(), 7U);
}

TEST(NoAdvice, IsExplained) {
  const auto loaded = load_model(TIDEMARK_TRACES "/ranks/guilty4");
  ASSERT_TRUE(loaded);
  const Model& model = **loaded;
  ASSERT_NE(model.lanes[0].total_bytes, 0U);
  const auto says = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(says(why_no_advice(model, 0), "none of the known changes"));
  EXPECT_TRUE(
      says(why_no_advice(model, 0, model.lanes[0].total_bytes + 1), "larger than the card"));
  const auto cuda = load_model(TIDEMARK_TRACES "/run_out");
  ASSERT_TRUE(cuda);
  EXPECT_TRUE(says(why_no_advice(**cuda, 0), "which owner"));
}

TEST_F(Findings, EveryErrorHasAdviceOrSaysWhyNot) {
  ImGui::GetIO().DisplaySize = {1400, 4000};
  size_t errors = 0;
  const auto check = [&](const std::string& path) {
    const auto loaded = load_model(path);
    ASSERT_TRUE(loaded) << path;
    shell_ = std::make_unique<Shell>(Config());
    shell_->set_model(*loaded);
    ASSERT_TRUE(shell_->show_only("findings"));
    frame(4);
    const std::string text =
        read_window("##only") + read_window("##finding") + read_window("##oom");
    const auto says = [&](const char* what) {
      return text.find(without_spaces(what)) != std::string::npos;
    };
    for (const Finding& f : model().report.findings) {
      if (f.severity != kError) continue;
      ++errors;
      EXPECT_TRUE(!f.advice.empty() || says("No advice:")) << path << ": " << f.id;
    }
    if (!model().ooms.empty()) {
      ++errors;
      EXPECT_TRUE(says("Advice: see") || says("No advice:")) << path;
    }
  };
  for (const auto& scenario :
       std::filesystem::directory_iterator(TIDEMARK_TEST_DATA "/scenarios")) {
    check(scenario.path().string());
  }
  check(TIDEMARK_TRACES "/run_out");
  check(TIDEMARK_TRACES "/ranks/guilty4");
  check(TIDEMARK_TRACES "/torch/out_of_memory.tier1.tmk");
  EXPECT_GE(errors, 25U);
}

TEST_F(Findings, AdviceAboutTheLineAboveHasALineAbove) {
  ImGui::GetIO().DisplaySize = {1400, 4000};
  size_t found = 0;
  for (const char* path :
       {TIDEMARK_TRACES "/ranks/guilty4", TIDEMARK_TEST_DATA "/scenarios/varying_sizes.bad.tmk",
        TIDEMARK_TEST_DATA "/scenarios/inference_cache.bad.tmk",
        TIDEMARK_TEST_DATA "/snapshots/oom_fraction.pickle.gz"}) {
    const auto loaded = load_model(path);
    ASSERT_TRUE(loaded) << path;
    shell_ = std::make_unique<Shell>(Config());
    shell_->set_model(*loaded);
    ASSERT_TRUE(shell_->show_only("findings"));
    frame(4);
    for (const Finding& f : model().report.findings) {
      for (const Advice& a : f.advice) {
        const std::string place = f.frames.empty() ? "(none)" : tidemark::place_of(f.frames);
        if (a.detail.find(place) == std::string::npos) continue;
        ++found;
        const std::string text = read_window("##finding");
        const size_t line = text.find(without_spaces(headline_of(f.frames)));
        EXPECT_LT(line, text.find(without_spaces(a.detail))) << path << ": " << f.id;
      }
    }
  }
  EXPECT_GE(found, 3U);
}

Finding finding(int64_t rank, const std::string& summary) {
  Finding f;
  f.id = "creep";
  f.severity = kWarning;
  f.rank = rank;
  f.summary = summary;
  return f;
}

TEST(SameFindings, AreFoldedIntoOne) {
  Report report;
  report.findings = {finding(0, "grows"), finding(1, "shrinks"), finding(2, "grows"),
                     finding(3, "grows")};
  const std::vector<SameFindings> folded = fold_findings(report.findings);
  ASSERT_EQ(folded.size(), 2U);
  EXPECT_EQ(folded[0], (SameFindings{0, 2, 3}));
  EXPECT_EQ(place_text(report, folded[0]), "ranks 0, 2, 3");
  EXPECT_EQ(place_text(report, folded[1]), "rank 1, cuda:0");
}

TEST(SameFindings, NameTheDeviceOfAProcessWithSeveral) {
  Report report;
  report.findings = {finding(-1, "grows")};
  report.findings[0].device = 1;
  report.ranks.resize(1);
  report.ranks[0].devices.resize(1);
  EXPECT_EQ(place_text(report, SameFindings{0}), "");
  report.ranks[0].devices.resize(2);
  EXPECT_EQ(place_text(report, SameFindings{0}), "cuda:1");
}

TEST_F(Findings, OneCardForAllRanksThatSayTheSame) {
  ImGui::GetIO().DisplaySize = {1400, 4000};
  open_file(TIDEMARK_TRACES "/ranks/guilty4");
  ASSERT_TRUE(shell_->show_only("findings"));
  frame(4);
  const std::vector<SameFindings> folded = fold_findings(model().report.findings);
  std::vector<Finding> alike(2, model().report.findings.front());
  alike[1].rank = alike[0].rank + 1;
  EXPECT_EQ(fold_findings(alike).size(), 1U);
  for (const SameFindings& same : folded) {
    if (same.size() == 1) continue;
    const std::string summary = without_spaces(model().report.findings[same[0]].summary);
    const std::string text = read_window("##finding");
    const size_t first = text.find(summary);
    ASSERT_NE(first, std::string::npos) << summary;
    EXPECT_EQ(text.find(summary, first + 1), std::string::npos) << summary;
  }
}

}  // namespace
}  // namespace tidemark::view
