#include "bridge/run_compiler.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

// clone() by its other name, which the thread sanitizer does not take for fork().
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...);

namespace tidemark::bridge {
namespace {

constexpr int kTimeoutSeconds = 180;
constexpr long kPauseNs = 50'000'000;
constexpr size_t kMaxVariables = 4096;
constexpr size_t kMaxArguments = 40;
constexpr size_t kStackBytes = 64 << 10;

constexpr char kScript[] = R"("$@"; echo $? >"$0")";

struct Launch {
  const char* log;
  const char* arguments[kMaxArguments];
  const char* variables[kMaxVariables];
  size_t variable_count;
  char* stack_top;  // for the compiler's process
  pid_t shell;      // 0: it could not be started
};

// The compiler must not be recorded, nor load the libraries that are preloaded into the job.
void add_variable(const char* entry, void* context) {
  static constexpr const char* kLeftOut[] = {
      "CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH=", "LD_PRELOAD=", "TIDEMARK_ARM="};
  auto& launch = *static_cast<Launch*>(context);
  for (const char* name : kLeftOut) {
    if (std::strncmp(entry, name, std::strlen(name)) == 0) return;
  }
  if (launch.variable_count + 1 < kMaxVariables) launch.variables[launch.variable_count++] = entry;
}

// The functions of the new processes use the memory of this one, which waits: they make system
// calls only.

int become_shell(void* context) {
  const auto& launch = *static_cast<const Launch*>(context);
  ::setpgid(0, 0);  // Ctrl-C in the terminal of the job must not reach the compiler
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  const int log = ::open(launch.log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
#ifdef SYS_close_range
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
#endif
  // No signal handler of the program may run here. Compilers wait for their own children, so they
  // need SIGCHLD even if the program ignores it.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN && number != SIGCHLD) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve("/bin/sh", const_cast<char* const*>(launch.arguments),
           const_cast<char* const*>(launch.variables));
  ::_exit(127);
}

int start_shell(void* context) {
  auto& launch = *static_cast<Launch*>(context);
  const int shell =
      __clone(become_shell, launch.stack_top, CLONE_VM | CLONE_VFORK | SIGCHLD, context);
  launch.shell = shell > 0 ? shell : 0;
  return 0;
}

// Starts the shell as a grandchild. The process between has no exit signal and executes no other
// program, so only waitpid(__WCLONE) sees it.
bool start(Launch& launch) {
  void* const stacks = ::mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks == MAP_FAILED) return false;
  launch.stack_top = static_cast<char*>(stacks) + kStackBytes;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int between =
      __clone(start_shell, launch.stack_top + kStackBytes, CLONE_VM | CLONE_VFORK, &launch);
  while (between > 0 && ::waitpid(between, nullptr, static_cast<int>(__WCLONE)) < 0 &&
         errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::munmap(stacks, 2 * kStackBytes);
  return launch.shell > 0;
}

// 0: success, 1: failure, -1: not there yet.
int read_status(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return -1;
  char text[8] = {};
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (size <= 0) return -1;
  return std::strcmp(text, "0\n") == 0 ? 0 : 1;
}

// The shell is a child only of a process that adopts orphans; that one must not keep a zombie.
bool is_running_child(pid_t shell) {
  return ::waitpid(shell, nullptr, WNOHANG) == 0;
}

void pause_briefly() {
  const timespec pause{0, kPauseNs};
  nanosleep(&pause, nullptr);
}

bool wait_for(pid_t shell, const char* status) {
  constexpr long kTurns = kTimeoutSeconds * (1'000'000'000 / kPauseNs);
  constexpr int kLastTurns = 20;
  for (long turn = 0; turn < kTurns; ++turn) {
    const bool ended = !is_running_child(shell) && ::kill(shell, 0) != 0 && errno == ESRCH;
    if (const int value = read_status(status); value >= 0) {
      for (int more = 0; more < kLastTurns && is_running_child(shell); ++more) pause_briefly();
      return value == 0;
    }
    if (ended) return false;  // killed
    pause_briefly();
  }
  ::kill(-shell, SIGKILL);
  return false;
}

}  // namespace

bool run_compiler(const Environment& environment, const char* const* arguments, const char* log,
                  const char* status) noexcept {
  auto* const launch = static_cast<Launch*>(std::calloc(1, sizeof(Launch)));
  if (launch == nullptr) return false;
  launch->log = log;
  size_t count = 0;
  for (const char* word : {"sh", "-c", kScript, status}) launch->arguments[count++] = word;
  for (; *arguments != nullptr && count + 1 < kMaxArguments; ++arguments) {
    launch->arguments[count++] = *arguments;
  }
  environment.each(add_variable, launch);
  ::unlink(status);
  const bool succeeded = start(*launch) && wait_for(launch->shell, status);
  ::unlink(status);
  std::free(launch);
  return succeeded;
}

}  // namespace tidemark::bridge
