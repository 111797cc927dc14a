// Injection into processes that make it hard: checks what was loaded, and that nothing else
// changed.
#include "collector/attach/inject/inject.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "collector/attach/inject/process_status.h"
#include "collector/attach/inject/target.h"
#include "tests/collector/attach/inject/victim_process.h"

namespace tidemark::inject {
namespace {

using test::VictimProcess;

Injection guest(std::chrono::milliseconds time = std::chrono::seconds(20)) {
  return {TIDEMARK_INJECT_GUEST, "guest_arrived", std::chrono::steady_clock::now() + time};
}

int rounds(int few) {
  const char* const wanted = std::getenv("TIDEMARK_INJECT_ROUNDS");
  return wanted != nullptr ? std::atoi(wanted) : few;
}

// The number of mappings of the process.
size_t mapped_lines(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// Injects `times` times: each time the function is called once more.
void enter(const VictimProcess& victim, int times) {
  for (int i = 1; i <= times; ++i) {
    const Result<int> called = inject_library(victim.pid(), guest());
    ASSERT_TRUE(called.ok()) << "round " << i << ": " << called.error().message;
    ASSERT_EQ(*called, i);
  }
}

TEST(Inject, InjectsIntoAnIdleProcess) {
  VictimProcess victim({"idle"});
  enter(victim, 1);
  EXPECT_TRUE(victim.ends_well());
}

TEST(Inject, SurvivesThreadsInMallocAndLoader) {
  VictimProcess victim({"hammer"});
  enter(victim, rounds(20));
  EXPECT_TRUE(victim.ends_well());
}

TEST(Inject, RestoresEveryRegister) {
  VictimProcess victim({"registers"});
  enter(victim, rounds(20));
  EXPECT_TRUE(victim.ends_well());
}

TEST(Inject, LosesNoSignal) {
  VictimProcess victim({"signals"});
  enter(victim, rounds(10));
  EXPECT_TRUE(victim.ends_well());
}

TEST(Inject, LeavesNothingBehind) {
  VictimProcess victim({"idle"});
  enter(victim, 5);  // the library, arenas of further threads, a cached stack
  const auto settled = [&] {
    while (list_threads(victim.pid()).size() > 1) std::this_thread::yield();
    return mapped_lines(victim.pid());
  };
  const size_t before = settled();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(inject_library(victim.pid(), guest()).ok());
  EXPECT_LE(settled(), before + 4);  // arenas, one for each processor

  EXPECT_TRUE(victim.ends_well());
}

// A separate process that injects into the victim, stopped at each of its system calls.
class KilledTracer {
 public:
  explicit KilledTracer(pid_t victim) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    static_cast<void>(inject_library(victim, guest()));
    ::_exit(0);
  }

  // Lets it run for this many entries and exits of system calls, counted from its first ptrace
  // call, and kills it there. False if it finished before.
  bool run(int calls) {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ::ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_TRACESYSGOOD);
    bool begun = false;
    for (int seen = 0; seen < calls; seen += begun ? 1 : 0) {
      ::ptrace(PTRACE_SYSCALL, pid_, nullptr, nullptr);
      if (::waitpid(pid_, &status, 0) != pid_ || !WIFSTOPPED(status)) return false;
      if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
      __ptrace_syscall_info info{};
      ::ptrace(PTRACE_GET_SYSCALL_INFO, pid_, sizeof info, &info);
      begun |= info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_ptrace;
    }
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
    return true;
  }

 private:
  pid_t pid_ = -1;
};

void kill_at_each_call(VictimProcess& victim) {
  const int stride = rounds(0) > 0 ? 1 : 3;  // odd, so that it hits entries and exits
  int calls = 1;
  while (KilledTracer(victim.pid()).run(calls)) calls += stride;
  EXPECT_GT(calls, 60);
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectKilled, AnswersAreRightWhereverTheTracerDies) {
  VictimProcess victim({"answers"});
  kill_at_each_call(victim);
}

TEST(InjectKilled, RegistersAreRightWhereverTheTracerDies) {
  VictimProcess victim({"registers"});
  kill_at_each_call(victim);
}

class InjectWaiting : public testing::TestWithParam<const char*> {};

TEST_P(InjectWaiting, CallGoesOn) {
  VictimProcess victim({"wait", GetParam()});
  const Result<int> called = inject_library(victim.pid(), guest());
  ASSERT_TRUE(called.ok()) << called.error().message;
  const std::string name = GetParam();
  if (name != "nanosleep" && name != "poll") victim.write("x");
  EXPECT_TRUE(victim.ends_well());
}

INSTANTIATE_TEST_SUITE_P(Calls, InjectWaiting,
                         testing::Values("nanosleep", "poll", "read", "epoll", "condition"),
                         [](const auto& call) { return std::string(call.param); });

void refuses(pid_t pid, const std::string& reason,
             std::chrono::milliseconds time = std::chrono::seconds(20)) {
  const Result<int> called = inject_library(pid, guest(time));
  ASSERT_FALSE(called.ok());
  EXPECT_NE(called.error().message.find(reason), std::string::npos) << called.error().message;
}

TEST(InjectRefuses, ThreadThatOnlyComputes) {
  const VictimProcess victim({"compute"});
  refuses(victim.pid(), "no thread reached a safe system call", std::chrono::milliseconds(300));
  const auto status = read_status(victim.pid());
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->tracer, 0);
  EXPECT_EQ(status->state, 'R');
}

TEST(InjectRefuses, SeccompThatTraps) {
  VictimProcess victim({"seccomp", "trap"});
  refuses(victim.pid(), "seccomp");
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, NoMemoryToExecute) {
  VictimProcess victim({"seccomp", "errno"});
  refuses(victim.pid(), "executable memory");
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, FileThatIsNoLibrary) {
  VictimProcess victim({"idle"});
  Injection injection = guest();
  injection.library = "/proc/self/status";
  Result<int> called = inject_library(victim.pid(), injection);
  ASSERT_FALSE(called.ok());
  EXPECT_NE(called.error().message.find("cannot load"), std::string::npos)
      << called.error().message;
  injection = guest();
  injection.function = "not_there";
  called = inject_library(victim.pid(), injection);
  ASSERT_FALSE(called.ok());
  EXPECT_NE(called.error().message.find("not_there"), std::string::npos) << called.error().message;
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, MissingLibrary) {
  VictimProcess victim({"idle"});
  Injection injection = guest();
  injection.library = "/no/such/library.so";
  const Result<int> called = inject_library(victim.pid(), injection);
  ASSERT_FALSE(called.ok());
  EXPECT_NE(called.error().message.find("does not see"), std::string::npos);
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, ProcessThatIsGone) {
  pid_t pid = 0;
  {
    const VictimProcess victim({"idle"});
    pid = victim.pid();
  }
  refuses(pid, "there is no process");
}

TEST(InjectRefuses, TracedProcess) {
  VictimProcess victim({"idle"});
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, victim.pid(), nullptr, nullptr), 0);
  refuses(victim.pid(), "already traced by process " + std::to_string(::getpid()));
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, victim.pid(), nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(victim.pid(), nullptr, __WALL), victim.pid());
  ASSERT_EQ(::ptrace(PTRACE_DETACH, victim.pid(), nullptr, nullptr), 0);
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, StoppedProcess) {
  VictimProcess victim({"idle"});
  ASSERT_EQ(::kill(victim.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(victim.pid(), &status, WUNTRACED), victim.pid());
  refuses(victim.pid(), "kill -CONT " + std::to_string(victim.pid()));
  ASSERT_EQ(::kill(victim.pid(), SIGCONT), 0);
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, StaticProgram) {
  VictimProcess victim({}, TIDEMARK_INJECT_STATIC);
  refuses(victim.pid(), "statically linked");
  EXPECT_TRUE(victim.ends_well());
}

TEST(InjectRefuses, KernelThread) {
  // In a container no kernel thread may be visible.
  const auto status = read_status(2);
  if (!status || !status->kernel_thread) GTEST_SKIP() << "process 2 is not a kernel thread";
  refuses(2, "kernel thread");
}

TEST(InjectRefuses, OtherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can change to another user";
  VictimProcess victim({"idle"});
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    const Result<int> called = inject_library(victim.pid(), guest());
    const bool good =
        !called.ok() && called.error().message.find("belongs to user root") != std::string::npos;
    if (!called.ok() && !good) std::fprintf(stderr, "%s\n", called.error().message.c_str());
    ::_exit(good ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(victim.ends_well());
}

}  // namespace
}  // namespace tidemark::inject
