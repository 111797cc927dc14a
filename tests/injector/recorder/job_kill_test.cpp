// A whole job on simulated cards, killed at a random moment: every file can be recovered, and every
// call that had returned to the program is in it. Once with the rings next to the traces, once with
// the rings in a directory of the node. TIDEMARK_KILLS sets how often each is tried.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "collector/recover/recovery.h"
#include "tests/support/job_log.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {
namespace {

constexpr int kProcesses = 3;

int kills() {
  const char* const text = std::getenv("TIDEMARK_KILLS");
  return text == nullptr ? 20 : std::atoi(text);
}

struct Totals {
  uint64_t traces = 0;
  uint64_t calls = 0;      // that had returned
  uint64_t in_flight = 0;  // recorded, although the call had not returned yet
  uint64_t from_rings = 0;
};

// Started in its own process group; its children become ours when it dies.
pid_t start_job(const std::string& logs, const std::string& traces, const std::string& rings) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::setpgid(0, 0);
  ::setenv("LD_LIBRARY_PATH", TIDEMARK_SIMGPU_LIBRARIES, 1);
  ::setenv("CUDA_INJECTION64_PATH", TIDEMARK_INJECTOR, 1);
  ::setenv("TIDEMARK_OUT", traces.c_str(), 1);
  if (!rings.empty()) ::setenv("TIDEMARK_RING_DIR", rings.c_str(), 1);
  // Room for every call that the log has room for: nothing is dropped, however late the writer
  // runs.
  ::setenv("TIDEMARK_BUFFER_MB", "64", 1);
  const int errors = ::open((logs + "/stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(errors, STDERR_FILENO);
  ::execl(TIDEMARK_JOB_PROGRAM, TIDEMARK_JOB_PROGRAM, logs.c_str(),
          std::to_string(kProcesses).c_str(), nullptr);
  ::_exit(127);
}

void kill_job(pid_t job) {
  ::kill(job, SIGKILL);  // it may not have its own group yet
  ::kill(-job, SIGKILL);
  int status = 0;
  while (::wait(&status) > 0) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  EXPECT_EQ(errno, ECHILD);
}

class LogFile {
 public:
  explicit LogFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void* const memory = ::lseek(fd, 0, SEEK_END) == sizeof(JobLog)
                             ? ::mmap(nullptr, sizeof(JobLog), PROT_READ, MAP_SHARED, fd, 0)
                             : MAP_FAILED;
    if (memory != MAP_FAILED) log_ = static_cast<const JobLog*>(memory);
    ::close(fd);
  }
  ~LogFile() {
    if (log_ != nullptr) ::munmap(const_cast<JobLog*>(log_), sizeof(JobLog));
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  const JobLog* get() const { return log_; }

 private:
  const JobLog* log_ = nullptr;
};

std::vector<DriverEvent> calls_of(const TraceContents& trace, uint32_t tid) {
  std::vector<DriverEvent> calls;
  for (const DriverEvent& event : trace.driver_events) {
    const bool memory =
        event.operation == DriverOperation::kAllocate || event.operation == DriverOperation::kFree;
    if (memory && event.thread == tid) calls.push_back(event);
  }
  return calls;
}

void compare(const ThreadLog& log, const TraceContents& trace, Totals& totals) {
  const uint32_t done = log.done.load();
  const uint32_t begun = log.begun.load();
  const std::vector<DriverEvent> calls = calls_of(trace, log.tid.load());
  ASSERT_GE(calls.size(), done) << "calls are missing";
  ASSERT_LE(calls.size(), begun) << "calls that were never made";
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const LoggedCall& logged = log.calls[i];
    const bool took = calls[i].operation == DriverOperation::kAllocate;
    ASSERT_EQ(took, logged.size_bytes != 0) << "call " << i;
    if (took) {
      ASSERT_EQ(calls[i].size_bytes, logged.size_bytes) << "call " << i;
    }
    if (i < done || !took) {
      ASSERT_EQ(calls[i].address, logged.address) << "call " << i;
    }
  }
  totals.calls += done;
  totals.in_flight += calls.size() - done;
}

void compare_rank(const std::string& log_path, const std::vector<std::string>& traces, int rank,
                  Totals& totals) {
  const LogFile file(log_path);
  const std::string name = "/rank" + std::to_string(rank) + "-";
  const auto path = std::find_if(traces.begin(), traces.end(), [&](const std::string& trace) {
    return trace.find(name) != std::string::npos;
  });
  uint64_t done = 0;
  if (file.get() != nullptr) {
    for (const ThreadLog& thread : file.get()->threads) done += thread.done.load();
  }
  if (path == traces.end()) {
    EXPECT_EQ(done, 0U) << "calls were made, but there is no trace";
    return;
  }
  const TraceContents trace = read_trace(*path);
  EXPECT_FALSE(trace.damage.any());
  EXPECT_FALSE(trace.damage.unfinished);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 0U);
  ++totals.traces;
  if (file.get() == nullptr) return;
  for (const ThreadLog& thread : file.get()->threads) {
    if (thread.tid.load() != 0) compare(thread, trace, totals);
  }
}

// Where programs start slowly, a kill at a random moment would often come before the first call.
void wait_for_first_call(const std::string& log_path) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < end) {
    const LogFile file(log_path);
    if (file.get() != nullptr && file.get()->threads[0].done.load() > 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

enum class RingPlace { kNextToTrace, kOnTheNode };

void kill_and_compare(RingPlace place, bool wait, std::mt19937& random, Totals& totals) {
  const ScratchDirectory logs;
  const ScratchDirectory out;
  const ScratchDirectory node;
  const pid_t job =
      start_job(logs.path(), out.path(), place == RingPlace::kOnTheNode ? node.path() : "");
  if (wait) wait_for_first_call(logs / "rank0.log");
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::uniform_int_distribution<int>(1'000, 250'000)(random)));
  kill_job(job);
  std::ifstream errors(logs / "stderr");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(errors), {}), "");

  for (const std::string& ring : out.files(".ring")) {
    EXPECT_EQ(std::filesystem::is_symlink(ring), place == RingPlace::kOnTheNode);
  }
  const Result<DirectoryRecovery> recovered = recover_directory(out.path(), RecoveryBy::kReader);
  ASSERT_TRUE(recovered) << recovered.error().message;
  ASSERT_TRUE(recovered->failures.empty()) << recovered->failures[0].message;
  for (const RecoveryReport& report : recovered->files) {
    EXPECT_EQ(report.outcome, RecoveryOutcome::kRecovered);
    totals.from_rings += report.rows;
  }
  EXPECT_TRUE(out.files(".ring").empty());
  const std::vector<std::string> traces = out.files(".tmk");
  for (int rank = 0; rank < kProcesses; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    compare_rank(logs / ("rank" + std::to_string(rank) + ".log"), traces, rank, totals);
  }
}

void kill_often(RingPlace place) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::mt19937 random(20240612);
  Totals totals;
  for (int i = 0; i < kills(); ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    kill_and_compare(place, i % 4 == 0, random, totals);
    if (testing::Test::HasFailure()) return;
  }
  testing::Test::RecordProperty("traces", std::to_string(totals.traces));
  testing::Test::RecordProperty("calls", std::to_string(totals.calls));
  std::printf(
      "%d kills: %llu traces, %llu calls all recorded, %llu in flight, %llu rows from rings\n",
      kills(), static_cast<unsigned long long>(totals.traces),
      static_cast<unsigned long long>(totals.calls),
      static_cast<unsigned long long>(totals.in_flight),
      static_cast<unsigned long long>(totals.from_rings));
  EXPECT_GT(totals.calls, 0U);
  EXPECT_GT(totals.from_rings, 0U) << "no kill left a ring with rows in it";
}

TEST(JobKillTest, EveryCallThatReturnedIsInTheTrace) {
  kill_often(RingPlace::kNextToTrace);
}

TEST(JobKillTest, EveryCallThatReturnedIsInTheTraceWithRingsOnTheNode) {
  kill_often(RingPlace::kOnTheNode);
}

}  // namespace
}  // namespace tidemark::test
