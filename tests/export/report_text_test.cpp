// The report as text, of findings that are made up.
#include "export/report/report_text.h"

#include <gtest/gtest.h>

#include "analysis/report/diff.h"
#include "export/report/diff_text.h"
#include "export/report/kernel_bursts.h"
#include "export/report/report_wording.h"

namespace tidemark {
namespace {

Finding note(int64_t rank, const std::string& line) {
  Finding f;
  f.id = "creep";
  f.severity = kInfo;
  f.rank = rank;
  f.summary = "5.8 GiB stays";
  f.frames = {"forward " + line};
  return f;
}

std::string text_of(const std::vector<Finding>& findings) {
  Report report;
  report.findings = findings;
  return report_as_text(report, {});
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

TEST(ReportText, EqualNotesOfSeveralRanksAreOne) {
  const std::string text = text_of({note(0, "model.py:7"), note(2, "model.py:7")});
  EXPECT_TRUE(has(text, "note creep (ranks 0, 2): 5.8 GiB stays")) << text;
}

TEST(ReportText, DiffsNameNewNotes) {
  Report before;
  Report after;
  after.findings = {note(-1, "model.py:7")};
  EXPECT_TRUE(has(diff_as_text(*compare(before, after), {}), "new notes: creep"));
  EXPECT_TRUE(has(diff_as_text(*compare(after, before), {}), "notes gone: creep"));
  // It was more than a note.
  before.findings = after.findings;
  before.findings[0].severity = kWarning;
  const std::string text = diff_as_text(*compare(before, after), {});
  EXPECT_FALSE(has(text, "new notes")) << text;
  EXPECT_TRUE(has(text, "findings gone: creep")) << text;
}

// As two snapshots without a history.
TEST(ReportText, DiffOfStatesHasNoPeaks) {
  const auto report = [](bool state_only, uint64_t bytes) {
    Report made;
    RankReport& rank = made.ranks.emplace_back();
    rank.detailed = true;
    DeviceReport& d = rank.devices.emplace_back();
    d.state_only = state_only;
    d.has_framework = true;
    d.reserved_peak.bytes = d.allocated_peak.bytes = bytes;
    StackShare& share = d.stacks.emplace_back();
    share.bytes = bytes;
    share.frames = {"main train.py:7"};
    return made;
  };
  const std::string states = diff_as_text(*compare(report(true, 100), report(true, 300)), {});
  EXPECT_TRUE(has(states, "by stack\n")) << states;
  EXPECT_FALSE(has(states, "peak")) << states;
  const std::string runs = diff_as_text(*compare(report(false, 100), report(false, 300)), {});
  EXPECT_TRUE(has(runs, "by stack at the peak\n")) << runs;
}

TEST(ReportText, DiffsPutOtherProcessesLast) {
  const auto report = [](int64_t own, int64_t others) {
    Report made;
    RankReport& rank = made.ranks.emplace_back();
    rank.detailed = true;
    DeviceReport& d = rank.devices.emplace_back();
    d.has_framework = true;
    d.driver_peak.bytes = static_cast<uint64_t>(own);
    d.device_used_peak.bytes = static_cast<uint64_t>(own + others);
    d.ledger.lines = {{"torch.allocated", own}, {"other_processes", others}};
    return made;
  };
  const std::string shared = diff_as_text(*compare(report(100, 0), report(300, 9000)), {});
  EXPECT_TRUE(has(shared, "card used peak (with other processes)")) << shared;
  EXPECT_LT(shared.find("torch.allocated"), shared.find("  other_processes")) << shared;
  const std::string alone = diff_as_text(*compare(report(100, 0), report(300, 0)), {});
  EXPECT_FALSE(has(alone, "with other processes")) << alone;
}

// A caller's line is found by its place among the lines of Python: native frames may differ.
TEST(ReportText, DiffsNameTheOldLineOfACallerAmongOtherNativeFrames) {
  Diff diff;
  DeviceDiff& device = diff.devices.emplace_back();
  const auto stack = [](const std::string& native, int line) {
    return std::vector<std::string>{native, "f net.py:5", "wrap() ??",
                                    "train run.py:" + std::to_string(line)};
  };
  DiffLine moved;
  moved.frames = stack("exp() ??", 24);
  moved.before_frames = stack("exp() ??", 22);
  moved.before_frames.insert(moved.before_frames.begin() + 1, "call() ??");
  moved.after_bytes = 100;
  DiffLine other;
  other.frames = stack("exp() ??", 90);
  other.after_bytes = 50;
  device.stacks = {moved, other};
  const std::string text = diff_as_text(diff, {});
  EXPECT_TRUE(has(text, "called by train run.py:24 (was :22)")) << text;
}

DeviceReport with_holes(int64_t at_ns, int64_t holes_ns) {
  DeviceReport d;
  d.at_ns = at_ns;
  d.fragmentation.time_ns = holes_ns;
  d.fragmentation.holes = 66;
  d.fragmentation.cached_free_bytes = 1000;
  return d;
}

TEST(ReportText, TimesThatLookTheSameHaveTheUnitsOfTheOther) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto text = [](int64_t ns) { return holes_time_text(with_holes(ns, ns + 1000), 0); };
  EXPECT_EQ(text(5'000'000), "+5.001 ms");
  EXPECT_EQ(text(3 * kSecond), "+3.000001 s");
  EXPECT_EQ(text(125 * kSecond), "+2 min 5.000001 s");
  EXPECT_EQ(text(17'497 * kSecond), "+4 h 51 min 37.000001 s");
}

TEST(ReportText, LongTimesDoNotTouchWhatFollows) {
  Report report;
  DeviceReport d = with_holes(17'497'000'000'000, 17'497'000'001'000);
  d.events = 1;
  d.has_framework = true;
  d.reserved_peak.bytes = 1000;
  report.ranks.emplace_back().devices = {d};
  const std::string text = report_as_text(report, {});
  EXPECT_TRUE(has(text, "+4 h 51 min 37.000001 s in 66 holes")) << text;
}

// All of its first frames may be the allocator's.
TEST(ReportText, OutOfMemoryShowsTheProgramsLines) {
  Report report;
  DeviceReport& d = report.ranks.emplace_back().devices.emplace_back();
  d.events = 1;
  d.has_framework = true;
  OomReport& oom = d.ooms.emplace_back();
  d.oom_count = 1;
  oom.frames = {"torch::unwind::unwind() ??", "torch::CapturedTraceback::gather(bool) ??"};
  oom.frames.resize(20, "c10::cuda::CUDACachingAllocator::malloc() ??");
  oom.frames.insert(oom.frames.end(),
                    {"at::_ops::relu::call(at::Tensor const&) ??", "_PyEval_EvalFrameDefault ??",
                     "update models.py:181", "_PyEval_EvalFrameDefault ??", "main train.py:7"});
  const std::string python = report_as_text(report, {});
  EXPECT_TRUE(has(python, "    aten::relu\n    update models.py:181\n    main train.py:7\n"))
      << python;
  EXPECT_FALSE(has(python, "unwind")) << python;
  oom.frames = {"torch::unwind::unwind() ??", "c10::StorageImpl::StorageImpl() ??",
                "run() app.cpp"};
  const std::string native = report_as_text(report, {});
  EXPECT_TRUE(has(native, "    run() app.cpp\n")) << native;
  EXPECT_FALSE(has(native, "unwind")) << native;
}

TEST(ReportText, NearlyAllKernelsAreNotBursts) {
  KernelBursts bursts;
  bursts.budget = "2 %";
  bursts.pauses = 3;
  bursts.time_ns = 45'000'000'000;
  bursts.unrecorded_ns = 61'000'000;
  const std::string nearly = bursts_text(bursts);
  EXPECT_TRUE(has(nearly, "nearly all kernels were recorded: all but those of 61")) << nearly;
  EXPECT_FALSE(has(nearly, "bursts")) << nearly;
  bursts.unrecorded_ns = 20'000'000'000;
  EXPECT_TRUE(has(bursts_text(bursts), "kernels recorded in bursts: 56 % of the time"));
}

TEST(ReportText, NotesOfSeveralLinesStayApart) {
  const std::string text = text_of({note(-1, "model.py:7"), note(-1, "model.py:9")});
  EXPECT_TRUE(has(text, "model.py:7")) << text;
  EXPECT_TRUE(has(text, "model.py:9")) << text;
  EXPECT_FALSE(has(text, "creep (")) << text;
  const std::string ranks = text_of({note(0, "model.py:7"), note(1, "model.py:9")});
  EXPECT_TRUE(has(ranks, "note creep (rank 1)")) << ranks;
}

}  // namespace
}  // namespace tidemark
