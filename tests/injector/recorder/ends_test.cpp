// What is left of a recording after each way a process can end.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "collector/recover/recovery.h"
#include "tests/support/victim.h"

namespace tidemark::test {
namespace {

std::string only_trace(const ScratchDirectory& directory) {
  const auto traces = directory.files(".tmk");
  EXPECT_EQ(traces.size(), 1U);
  return traces.empty() ? "" : traces[0];
}

RecoveryReport recover_only(const ScratchDirectory& directory) {
  const Result<DirectoryRecovery> all = recover_directory(directory.path(), RecoveryBy::kReader);
  if (!all || !all->failures.empty() || all->files.size() != 1) {
    ADD_FAILURE() << (all ? all->failures.empty() ? "no ring" : all->failures[0].message
                          : all.error().message);
    return {};
  }
  return all->files[0];
}

TEST(EndsTest, ExitFinishesTheTrace) {
  const ScratchDirectory directory;
  Victim victim(directory, {"exit"});
  const VictimEnd end = victim.wait();
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.errors + end.output, "");
  EXPECT_TRUE(directory.files(".ring").empty());
  const TraceContents trace = read_trace(only_trace(directory));
  EXPECT_FALSE(trace.damage.unfinished);
  EXPECT_EQ(trace.health_rows(HealthKind::kRecovered), 0U);
  expect_complete(trace, victim.committed());
}

class SuddenEndTest : public testing::TestWithParam<const char*> {};

TEST_P(SuddenEndTest, IsRecoveredWhole) {
  const ScratchDirectory directory;
  Victim victim(directory, {GetParam()});
  const VictimEnd end = victim.wait();
  EXPECT_EQ(end.output, "");
  ASSERT_EQ(directory.files(".ring").size(), 1U);
  const RecoveryReport report = recover_only(directory);
  EXPECT_EQ(report.outcome, RecoveryOutcome::kRecovered);
  EXPECT_TRUE(directory.files(".ring").empty());
  const TraceContents trace = read_trace(only_trace(directory));
  EXPECT_FALSE(trace.damage.any());
  EXPECT_FALSE(trace.damage.unfinished);
  EXPECT_EQ(trace.health_rows(HealthKind::kRecovered), 1U);
  EXPECT_EQ(trace.health_sum(HealthKind::kRecovered), report.rows);
  EXPECT_EQ(trace.framework_events.size(), 5000U);
  expect_complete(trace, victim.committed());
}
INSTANTIATE_TEST_SUITE_P(Ends, SuddenEndTest, testing::Values("_exit", "abort", "exec", "kill"));

TEST(EndsTest, ForkedChildRecordsOnlyForItself) {
  const ScratchDirectory directory;
  Victim victim(directory, {"fork"});
  const VictimEnd end = victim.wait();
  ASSERT_EQ(end.status, 0) << end.errors;
  EXPECT_TRUE(directory.files(".ring").empty());
  const auto traces = directory.files(".tmk");
  ASSERT_EQ(traces.size(), 2U);
  std::vector<size_t> rows;
  for (const std::string& path : traces) {
    const TraceContents trace = read_trace(path);
    EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished);
    rows.push_back(trace.framework_events.size());
    for (const FrameworkEvent& row : trace.framework_events) {
      EXPECT_EQ(row.thread, trace.framework_events[0].thread) << "rows of two processes mixed";
    }
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (std::vector<size_t>{500, 2000}));
}

TEST(EndsTest, ChildOfARawCloneIsOff) {
  const ScratchDirectory directory;
  Victim victim(directory, {"clone"});
  ASSERT_EQ(victim.wait().status, 0);
  expect_complete(read_trace(only_trace(directory)), victim.committed());
}

TEST(EndsTest, ClosingEveryDescriptorDoesNoHarm) {
  const ScratchDirectory directory;
  Victim victim(directory, {"close", "1", "4", "20"});
  const VictimEnd end = victim.wait();
  ASSERT_EQ(end.status, 0) << end.errors;
  for (int i = 0; i < 64; ++i) {
    struct stat info {};
    ASSERT_EQ(::stat((directory / ("host" + std::to_string(i))).c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 0) << "the recorder wrote into a file of its host";
  }
  const TraceContents trace = read_trace(only_trace(directory));
  EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished);
  EXPECT_EQ(trace.framework_events.size(), 3000U);
  expect_complete(trace, victim.committed());
}

TEST(EndsTest, ATruncatedRingEndsTheRecordingAndNotTheHost) {
  const ScratchDirectory directory;
  Victim victim(directory, {"truncate"});
  const VictimEnd end = victim.wait();
  ASSERT_EQ(end.status, 0) << end.errors;
  EXPECT_EQ(end.output, "survived\n");
  EXPECT_EQ(std::count(end.errors.begin(), end.errors.end(), '\n'), 1) << end.errors;
  EXPECT_TRUE(directory.files(".ring").empty());
  const TraceContents trace = read_trace(only_trace(directory));
  EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished);
  EXPECT_TRUE(trace.repeated_strings.empty());
  ASSERT_GE(trace.framework_events.size(), 1000U);
  for (size_t i = 0; i < trace.framework_events.size(); ++i) {
    ASSERT_EQ(trace.framework_events[i].address, i);
  }
}

TEST(EndsTest, OtherBusErrorsHaveTheirUsualEffect) {
  for (const char* kind : {"fault", "bus"}) {
    const ScratchDirectory directory;
    Victim victim(directory, {kind});
    const VictimEnd end = victim.wait();
    EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGBUS) << kind << end.status;
    EXPECT_EQ(recover_only(directory).outcome, RecoveryOutcome::kRecovered);
  }
}

TEST(EndsTest, ARingInAnotherDirectoryIsRecoveredThroughItsLink) {
  const ScratchDirectory directory;
  const ScratchDirectory rings;
  ::setenv("TIDEMARK_RING_DIR", rings.path().c_str(), 1);
  Victim victim(directory, {"kill"});
  victim.wait();
  Victim finished(directory, {"exit"});
  EXPECT_EQ(finished.wait().status, 0);
  ::unsetenv("TIDEMARK_RING_DIR");
  ASSERT_EQ(rings.files(".ring").size(), 1U) << "the finished one is removed";
  ASSERT_EQ(directory.files(".ring").size(), 1U);
  EXPECT_TRUE(std::filesystem::is_symlink(directory.files(".ring")[0]));

  // On another node the link leads nowhere.
  std::filesystem::rename(rings.files(".ring")[0], rings / "away");
  EXPECT_EQ(recover_only(directory).outcome, RecoveryOutcome::kRingElsewhere);
  std::filesystem::rename(rings / "away",
                          std::filesystem::read_symlink(directory.files(".ring")[0]));
  EXPECT_EQ(recover_only(directory).outcome, RecoveryOutcome::kRecovered);
  EXPECT_TRUE(rings.files(".ring").empty());
  EXPECT_TRUE(directory.files(".ring").empty());
}

// A file size limit simulates a full disk: it works without privileges, and as root.
TEST(EndsTest, FullDiskIsSaidOnceAndLosesOnlyWhatFindsNoRoom) {
  const ScratchDirectory directory;
  Victim victim(directory, {"full", "1", "4", "20"});
  const VictimEnd end = victim.wait();
  ASSERT_EQ(end.status, 0) << "the host must survive";
  EXPECT_EQ(std::count(end.errors.begin(), end.errors.end(), '\n'), 1) << end.errors;
  EXPECT_TRUE(end.errors.starts_with("tidemark: cannot write ")) << end.errors;
  EXPECT_EQ(end.output, "");
  const std::string path = only_trace(directory);
  EXPECT_FALSE(read_trace(path).damage.any()) << "readable as it is";

  const RecoveryReport report = recover_only(directory);
  EXPECT_EQ(report.outcome, RecoveryOutcome::kRecovered);
  const TraceContents trace = read_trace(path);
  EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished);
  EXPECT_EQ(trace.health_rows(HealthKind::kBytesUnwritten), 1U);
  // 200,000 rows were recorded; every 64th also needs a string and a stack, whose losses count,
  // too.
  const uint64_t lost = trace.health_sum(HealthKind::kEventsDropped);
  EXPECT_GT(lost, 0U);
  EXPECT_GE(trace.framework_events.size() + lost, 200'000U);
  uint64_t last = 0;
  for (const FrameworkEvent& row : trace.framework_events) {
    ASSERT_GE(row.address, last);
    last = row.address + 1;
  }
}

TEST(EndsTest, NoSpaceForTheSmallestRingTurnsTheRecorderOff) {
  const ScratchDirectory directory;
  Victim victim(directory, {"small-limit", "1", "64"});
  const VictimEnd end = victim.wait();
  EXPECT_EQ(end.status, 0) << "no SIGXFSZ for the host";
  EXPECT_EQ(end.output, "off\n") << "even the smallest ring does not fit";
  EXPECT_EQ(std::count(end.errors.begin(), end.errors.end(), '\n'), 1) << end.errors;
  EXPECT_TRUE(directory.files(".ring").empty() && directory.files(".tmk").empty());
}

TEST(EndsTest, LittleSpaceMakesTheRingSmaller) {
  const ScratchDirectory directory;
  Victim victim(directory, {"some-limit", "1", "64"});
  const VictimEnd end = victim.wait();
  EXPECT_EQ(end.status, 0);
  EXPECT_NE(end.errors.find("recording with 8 MB"), std::string::npos) << end.errors;
  EXPECT_EQ(std::count(end.errors.begin(), end.errors.end(), '\n'), 1) << end.errors;
  expect_complete(read_trace(only_trace(directory)), victim.committed());
}

// In a child: a disk of one megabyte, too small for a ring. 0: success.
int record_on_a_tiny_disk(const ScratchDirectory& directory, const ScratchDirectory& work) {
  if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", directory.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    return 77;
  }
  const std::string command = std::string(TIDEMARK_VICTIM) + " " + directory.path() + " " +
                              (work / "counters") + " kill 2>/dev/null";
  if (std::system(command.c_str()) == -1) return 1;
  const auto rings = directory.files(".ring");
  if (rings.size() != 1 || !std::filesystem::is_symlink(rings[0])) return 1;
  const std::string target = std::filesystem::read_symlink(rings[0]);
  const Result<DirectoryRecovery> recovered =
      recover_directory(directory.path(), RecoveryBy::kReader);
  if (!recovered || !recovered->failures.empty()) return 2;
  if (!directory.files(".ring").empty() || std::filesystem::exists(target)) return 3;
  return read_trace(only_trace(directory)).framework_events.size() == 5000 ? 0 : 4;
}

TEST(EndsTest, RingMovesToMemoryWhenItDoesNotFitOnTheDisk) {
  const ScratchDirectory directory;
  const ScratchDirectory work;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(record_on_a_tiny_disk(directory, work));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (status == 77 << 8) GTEST_SKIP() << "not allowed to mount a disk here";
  EXPECT_EQ(status, 0);
}

TEST(EndsTest, UnusableDirectoryTurnsTheRecorderOff) {
  const ScratchDirectory directory;
  std::ofstream(directory / "file") << "not a directory";
  // Even root cannot create a directory inside a file.
  const ScratchDirectory work;
  const std::string command = std::string(TIDEMARK_VICTIM) + " " + (directory / "file/sub") + " " +
                              (work / "counters") + " exit 2>" + (work / "err") + " >" +
                              (work / "out");
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream errors(work / "err");
  std::string line;
  std::getline(errors, line);
  EXPECT_TRUE(line.starts_with("tidemark: cannot create the directory ")) << line;
  EXPECT_FALSE(std::getline(errors, line)) << "one line only";
}

}  // namespace
}  // namespace tidemark::test
