#include "collector/job/merge.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "collector/job/job.h"
#include "collector/trace_source.h"
#include "proto/read/block_decoder.h"
#include "tests/support/rank_trace.h"
#include "tests/support/scratch_directory.h"

namespace tidemark::test {
namespace {

namespace fs = std::filesystem;

class Merge : public testing::Test {
 protected:
  std::string write(RankTrace made, const std::string& name = "") {
    const std::string path =
        folder_ / (name.empty() ? "rank" + std::to_string(made.rank) + ".tmk" : name);
    made.seed = static_cast<uint64_t>(made.rank) + 1;
    EXPECT_TRUE(write_rank_trace(made, path));
    return path;
  }
  void write_job(int64_t ranks, RankTrace made = {}) {
    made.world_size = static_cast<uint64_t>(ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      made.rank = rank;
      write(made);
    }
  }
  MergeReport merge(unsigned threads = 2) {
    MergeOptions options;
    options.inputs = {folder_.path()};
    options.output = out_ / "job.tmk";
    options.threads = threads;
    const Result<MergeReport> report = merge_traces(options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report ? *report : MergeReport();
  }
  TraceReader merged() { return std::move(open_trace(out_ / "job.tmk")->readers.front()); }

  static bool said(const MergeReport& report, const std::string& first, const std::string& second) {
    return std::any_of(report.notes.begin(), report.notes.end(), [&](const std::string& note) {
      return note.find(first) != std::string::npos && note.find(second) != std::string::npos;
    });
  }
  // The notes in the merged file itself.
  std::vector<std::string> notes_in_file(uint32_t process = 1, bool lost_only = false) {
    const TraceReader reader = merged();
    BlockDecoder decoder(reader);
    std::map<uint32_t, std::string> strings;
    for (const BlockRef& ref : reader.blocks()) {
      if (ref.kind == BlockKind::kStrings && ref.process == process) {
        decoder.strings(ref, [&](uint32_t id, std::string_view text) {
          EXPECT_TRUE(strings.emplace(id, text).second) << "string ids are not used twice";
        });
      }
    }
    std::vector<std::string> notes;
    for_each_block<Health>(reader, decoder, process, [&](auto rows, const BlockRef&) {
      for (const Health& row : rows) {
        if (lost_only && row.kind != HealthKind::kInputSkipped) continue;
        notes.push_back(strings.at(row.detail));
      }
    });
    return notes;
  }

  ScratchDirectory folder_;
  ScratchDirectory out_;
};

uint64_t rows_of(const TraceReader& reader, BlockKind kind, uint32_t process = 0) {
  uint64_t rows = 0;
  for (const BlockRef& ref : reader.blocks()) {
    if (ref.kind == kind && (process == 0 || ref.process == process)) rows += ref.rows;
  }
  return rows;
}

TEST_F(Merge, LauncherOfAnotherJobIsNotRead) {
  RankTrace ours;
  ours.job = "ours";
  write_job(2, ours);
  const auto launcher = [&](const char* job) {
    RankTrace made;
    made.rank = -1;
    made.job = job;
    made.host = std::string("launcher of ") + job;
    write(made, std::string("launcher-") + job + ".tmk");
  };
  launcher("ours");
  launcher("theirs");
  launcher("nobody's");
  RankTrace theirs;
  theirs.rank = 0;
  theirs.job = "theirs";
  theirs.host = "other";
  write(theirs, "theirs.tmk");
  const Result<TraceSource> source = open_trace(folder_.path());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->readers.size(), 4u) << "two ranks, their launcher, and one that may be theirs";
  EXPECT_EQ(source->jobs, (std::vector<std::string>{"ours", "theirs"}));
}

TEST_F(Merge, ProcessThatRanAtAnotherTimeIsNoLauncher) {
  RankTrace made;
  made.job = "ours";
  write_job(2, made);
  made.rank = -1;
  made.job = "later";
  made.host = "launcher";
  made.start_ns += 3'600'000'000'000;
  write(made, "later.tmk");
  const Result<TraceSource> source = open_trace(folder_.path());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->readers.size(), 2u);
  EXPECT_EQ(source->jobs, (std::vector<std::string>{"ours", "later"}));
}

TEST(JobCheck, SnapshotsOfOtherTimesAreTold) {
  const auto notes = [](int64_t second_ns) {
    RankFacts first;
    first.info.rank = -1;
    first.info.source = Source::kTorchSnapshot;
    first.first_ns = 1000;
    first.last_ns = 2000;
    RankFacts second = first;
    second.first_ns = second_ns;
    second.last_ns = second_ns == 0 ? 0 : second_ns + 1000;  // 0: a state without a history
    const std::vector<JobMember> members = {{"b.pickle", &second}, {"a.pickle", &first}};
    return check_job(members).notes;
  };
  ASSERT_EQ(notes(3000).size(), 1U);
  EXPECT_TRUE(notes(3000)[0].starts_with("b.pickle begins after a.pickle ended"));
  EXPECT_TRUE(notes(1500).empty());
  EXPECT_TRUE(notes(0).empty());
}

TEST(JobCheck, SnapshotBesideARecordingIsTold) {
  RankFacts recording;
  recording.info.rank = -1;
  recording.info.source = Source::kCapture;
  RankFacts snapshot = recording;
  snapshot.info.source = Source::kTorchSnapshot;
  const std::vector<JobMember> members = {
      {"a.tmk", &recording}, {"b.tmk", &recording}, {"run.pickle", &snapshot}};
  const JobCheck check = check_job(members);
  ASSERT_EQ(check.notes.size(), 1u);
  EXPECT_TRUE(check.notes[0].starts_with("run.pickle: ")) << check.notes[0];
  EXPECT_TRUE(check_job(std::span(members).first(2)).notes.empty());
  EXPECT_TRUE(check_job(std::span(members).last(1)).notes.empty());
}

TEST_F(Merge, JobsWithoutRanksAreToldApart) {
  RankTrace made;
  made.rank = -1;
  for (const char* job : {"one", "two"}) {
    made.job = job;
    made.host = job;
    write(made, std::string(job) + ".tmk");
  }
  const Result<TraceSource> source = open_trace(folder_.path());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->readers.size(), 2u) << "both are read";
  EXPECT_EQ(source->jobs, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(source->warnings.size(), 1u);
}

TEST_F(Merge, KeepsEveryRowRaw) {
  write_job(8);
  for (const unsigned threads : {1U, 3U, 16U}) {
    const MergeReport report = merge(threads);
    EXPECT_EQ(report.files, 8u);
    EXPECT_EQ(report.processes, 8u);
    EXPECT_TRUE(report.notes.empty());
    const auto raw = TraceReader::open(out_ / "job.tmk");
    ASSERT_TRUE(raw.ok());
    EXPECT_FALSE(raw->damage().any() || raw->damage().unfinished);
    for (uint32_t process = 1; process <= 8; ++process) {
      const auto one = TraceReader::open(folder_ / ("rank" + std::to_string(process - 1) + ".tmk"));
      for (int kind = 1; kind < 30; ++kind) {
        if (BlockKind(kind) == BlockKind::kAlignments) continue;
        EXPECT_EQ(rows_of(*raw, BlockKind(kind), process), rows_of(*one, BlockKind(kind)));
      }
      EXPECT_EQ(rows_of(*raw, BlockKind::kAlignments, process), 1u);
      BlockDecoder decoder(*raw);
      BlockDecoder original(*one);
      std::vector<int64_t> times;
      std::vector<int64_t> expected;
      for_each_block<NcclOperation>(*raw, decoder, process, [&](auto rows, const BlockRef&) {
        for (const auto& row : rows) times.push_back(row.start_ns);
      });
      for_each_block<NcclOperation>(*one, original, 0, [&](auto rows, const BlockRef&) {
        for (const auto& row : rows) expected.push_back(row.start_ns);
      });
      EXPECT_EQ(times, expected);
      EXPECT_EQ(decoder.damage().blocks, 0u);
    }
  }
}

TEST_F(Merge, RanksComeInTheirOrder) {
  write_job(12);  // rank10 sorts before rank2 by name
  merge();
  const TraceReader reader = merged();
  BlockDecoder decoder(reader);
  for_each_block<Process>(reader, decoder, 0, [&](auto rows, const BlockRef& ref) {
    EXPECT_EQ(rows.front().rank, static_cast<int64_t>(ref.process) - 1);
  });
}

TEST_F(Merge, NamesMissingRanks) {
  write_job(9);
  fs::remove(folder_ / "rank2.tmk");
  fs::remove(folder_ / "rank5.tmk");
  fs::remove(folder_ / "rank6.tmk");
  const MergeReport report = merge();
  EXPECT_EQ(report.processes, 6u);
  EXPECT_TRUE(said(report, "3 of 9 ranks missing", "2, 5-6"));
  EXPECT_EQ(notes_in_file(), report.notes);
}

TEST_F(Merge, RefusesSeveralJobs) {
  write_job(4);
  RankTrace other;
  other.rank = 1;
  other.job = "job-2";
  other.host = "elsewhere";
  write(other, "other.tmk");
  MergeOptions options;
  options.inputs = {folder_.path()};
  options.output = out_ / "job.tmk";
  const Result<MergeReport> report = merge_traces(options);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("job-2"), std::string::npos);
  EXPECT_FALSE(fs::exists(options.output));
}

TEST_F(Merge, SkipsFilesThatAreNoTraces) {
  write_job(3);
  std::ofstream(folder_ / "rank1.tmk") << "this was a trace once";
  const MergeReport report = merge();
  EXPECT_EQ(report.processes, 2u);
  EXPECT_TRUE(said(report, "rank1.tmk", "not a tidemark trace"));
  EXPECT_TRUE(said(report, "1 of 3 ranks missing", ": 1"));
  EXPECT_EQ(notes_in_file(), report.notes);
  EXPECT_EQ(notes_in_file(1, true).size(), 1u);  // what it held is lost
}

TEST_F(Merge, UsesTheRowsBeforeACut) {
  write_job(3);
  const std::string cut = folder_ / "rank1.tmk";
  fs::resize_file(cut, fs::file_size(cut) * 2 / 3);
  const uint64_t left = TraceReader::open(cut)->blocks().size();
  ASSERT_GT(left, 0u);
  const MergeReport report = merge();
  EXPECT_EQ(report.processes, 3u);
  EXPECT_TRUE(said(report, "rank1.tmk", "truncated"));
  // The loss belongs to that rank.
  EXPECT_EQ(notes_in_file(2, true), std::vector<std::string>{report.notes.front()});
  EXPECT_TRUE(notes_in_file(1, true).empty());
}

TEST_F(Merge, DamageIsStillCounted) {
  RankTrace made;
  made.collectives = 5000;  // several blocks
  write_job(2, made);
  const std::string path = folder_ / "rank1.tmk";
  const auto before = TraceReader::open(path);
  BlockRef victim;
  for (const BlockRef& ref : before->blocks()) {
    if (ref.kind == BlockKind::kKernels) victim = ref;
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(victim.offset + sizeof(FrameHeader) + 9));
  file.put('X');
  file.close();
  const MergeReport report = merge();
  EXPECT_TRUE(said(report, "rank1.tmk", "1 damaged block"));
  const TraceReader reader = merged();
  BlockDecoder decoder(reader);
  uint64_t kernels = 0;
  for_each_block<Kernel>(reader, decoder, 2,
                         [&](auto rows, const BlockRef&) { kernels += rows.size(); });
  EXPECT_EQ(decoder.damage().blocks, 1u);
  EXPECT_EQ(decoder.damage().rows, victim.rows);
  EXPECT_EQ(kernels + victim.rows, rows_of(*before, BlockKind::kKernels));
}

// A merged trace next to its ranks adds no ranks; merging a merged trace keeps it.
TEST_F(Merge, TakesItsOwnOutput) {
  write_job(4);
  merge();
  fs::copy(out_ / "job.tmk", folder_ / "zz-merged.tmk");
  MergeReport report = merge();
  EXPECT_EQ(report.processes, 4u);
  EXPECT_TRUE(said(report, "zz-merged.tmk", "already"));
  for (int rank = 0; rank < 4; ++rank)
    fs::remove(folder_ / ("rank" + std::to_string(rank) + ".tmk"));
  report = merge();
  EXPECT_EQ(report.processes, 4u);
  EXPECT_EQ(report.files, 1u);
  EXPECT_EQ(rows_of(merged(), BlockKind::kAlignments), 4u);
}

TEST_F(Merge, NothingToMergeIsAnError) {
  MergeOptions options;
  options.output = out_ / "job.tmk";
  options.inputs = {folder_.path()};
  EXPECT_FALSE(merge_traces(options).ok());
  options.inputs = {folder_ / "none.tmk"};
  EXPECT_FALSE(merge_traces(options).ok());
  EXPECT_FALSE(fs::exists(options.output));
}

// Number of processes with rows of the given rank among all files that were opened.
size_t processes_of_rank(const TraceSource& source, int64_t rank) {
  size_t count = 0;
  for (const TraceReader& reader : source.readers) {
    BlockDecoder decoder(reader);
    for_each_block<Process>(reader, decoder, 0, [&](auto rows, const BlockRef&) {
      for (const Process& p : rows) count += p.rank == rank ? 1U : 0U;
    });
  }
  return count;
}

TEST_F(Merge, MergedFileNextToOneOfItsRanksIsReadOnce) {
  write_job(3);
  merge();
  fs::rename(out_ / "job.tmk", folder_ / "job.tmk");
  for (const char* rank : {"rank1.tmk", "rank2.tmk"}) fs::remove(folder_ / rank);
  fs::rename(folder_ / "rank0.tmk", folder_ / "a.tmk");  // read before the merged file
  const Result<TraceSource> source = open_trace(folder_.path());
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->readers.size(), 2u);
  for (int64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(processes_of_rank(*source, rank), 1u);
  const TraceReader& rest = source->readers[1];
  EXPECT_EQ(rest.left_out(), std::set<uint32_t>{1});
  EXPECT_EQ(rows_of(rest, BlockKind::kFrameworkEvents, 1), 0u);
  EXPECT_NE(rows_of(rest, BlockKind::kFrameworkEvents, 2), 0u);
  ASSERT_EQ(source->warnings.size(), 1u);
  EXPECT_NE(source->warnings[0].find("already in a.tmk"), std::string::npos);
}

// Two jobs that have no names: a rank is one process at a time, and those that it starts.
TEST_F(Merge, RefusesOneRankTwiceAtTheSameTime) {
  RankTrace made;
  made.job = "";
  write_job(2, made);
  made.world_size = 2;
  made.host = "elsewhere";
  made.start_ns += 1;
  write(made, "other.tmk");
  MergeOptions options;
  options.inputs = {folder_.path()};
  options.output = out_ / "job.tmk";
  const Result<MergeReport> report = merge_traces(options);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("rank 0 is in "), std::string::npos);
  EXPECT_NE(report.error().message.find("other.tmk"), std::string::npos);
  EXPECT_FALSE(fs::exists(options.output));

  const Result<TraceSource> source = open_trace(folder_.path());
  ASSERT_TRUE(source.ok());
  for (int64_t rank = 0; rank < 2; ++rank) EXPECT_EQ(processes_of_rank(*source, rank), 1u);
  ASSERT_EQ(source->warnings.size(), 1u);
  EXPECT_NE(source->warnings[0].find("rank0.tmk: left out"), std::string::npos);
}

TEST_F(Merge, OtherJobsInTheFolderAreNotRead) {
  write_job(3);
  RankTrace other;
  other.job = "job-2";
  other.host = "elsewhere";
  other.world_size = 3;
  write(other, "other0.tmk");
  other.rank = 1;
  write(other, "other1.tmk");
  const Result<TraceSource> source = open_trace(folder_.path());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->readers.size(), 3u);
  for (int64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(processes_of_rank(*source, rank), 1u);
  EXPECT_EQ(source->warnings.size(), 2u);
}

}  // namespace
}  // namespace tidemark::test
