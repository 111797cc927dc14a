// A process to inject into: victim MODE [ARGUMENT].
#include "tests/collector/attach/inject/victim.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace tidemark::test {

namespace {

bool g_ready_said = false;

bool stdin_has_ended(int wait_ms) {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, wait_ms) > 0;
}

int64_t now_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

// Calls that end after 300 ms, or when the test writes to standard input. Each must return what it
// returns to a thread that was not stopped.
bool sleep_in_nanosleep() {
  const timespec time{0, 300'000'000};
  timespec left{7, 7};
  const int64_t begin = now_ns(CLOCK_MONOTONIC);
  const bool good = ::nanosleep(&time, &left) == 0;
  return good && now_ns(CLOCK_MONOTONIC) - begin >= 300'000'000;
}

bool sleep_in_poll() {
  const int64_t begin = now_ns(CLOCK_MONOTONIC);
  return ::poll(nullptr, 0, 300) == 0 && now_ns(CLOCK_MONOTONIC) - begin >= 300'000'000;
}

bool wait_in_read() {
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) == 1 && byte == 'x';
}

bool wait_in_epoll() {
  const int fd = ::epoll_create1(0);
  epoll_event event{EPOLLIN, {}};
  if (::epoll_ctl(fd, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0) return false;
  const int got = ::epoll_wait(fd, &event, 1, -1);
  if (got < 0) std::perror("epoll_wait");
  ::close(fd);
  return got == 1 && wait_in_read();
}

bool wait_in_condition() {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  std::thread other([&] {
    const bool read = wait_in_read();
    const std::lock_guard lock(mutex);
    done = read;
    condition.notify_one();
  });
  std::unique_lock lock(mutex);
  condition.wait(lock, [&] { return done; });
  lock.unlock();
  other.join();
  return done;
}

std::atomic<int> g_taken{0};
std::atomic<int> g_directed{0};

void take_signal(int, siginfo_t*, void*) {
  g_taken.fetch_add(1, std::memory_order_relaxed);
}

bool filter(uint32_t number, uint32_t action) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog all{sizeof program / sizeof program[0], program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

}  // namespace

bool go_on() {
  if (!g_ready_said) say_ready();
  g_ready_said = true;
  return !stdin_has_ended(10);
}

int say_fine(bool fine) {
  std::puts(fine ? "fine" : "broken");
  return fine ? 0 : 1;
}

int wait_in(const char* call) {
  const std::string_view name = call;
  say_ready();
  if (name == "nanosleep") return say_fine(sleep_in_nanosleep());
  if (name == "poll") return say_fine(sleep_in_poll());
  if (name == "read") return say_fine(wait_in_read());
  if (name == "epoll") return say_fine(wait_in_epoll());
  if (name == "condition") return say_fine(wait_in_condition());
  return 2;
}

// Real-time signals queue: every one sent must be received exactly once.
int count_signals() {
  struct sigaction action {};
  action.sa_sigaction = take_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGRTMIN + 2, &action, nullptr);
  std::atomic<bool> stop{false};
  int sent = 0;
  std::thread idle([&] {
    while (!stop) ::poll(nullptr, 0, 5);
  });
  const pthread_t target = idle.native_handle();
  while (go_on()) {
    for (int i = 0; i < 20; ++i) {
      if (::pthread_kill(target, SIGRTMIN + 2) == 0) ++sent;
    }
  }
  for (int i = 0; i < 500 && g_taken != sent; ++i) ::poll(nullptr, 0, 10);
  stop = true;
  idle.join();
  std::printf("%d sent, %d taken\n", sent, g_taken.load());
  return say_fine(sent > 0 && g_taken == sent);
}

// Every result must be one that the call can return, and nothing else may change.
int watch_answers() {
  say_ready();
  std::string_view wrong;
  while (true) {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    errno = 77;
    const int got = ::poll(&in, 1, 1);
    if (errno != 77) wrong = "errno";
    if (got != (in.revents != 0 ? 1 : 0)) wrong = "answer";
    const timespec little{0, 500'000};  // the kernel keeps the remaining time
    if (::clock_nanosleep(CLOCK_MONOTONIC, 0, &little, nullptr) != 0) wrong = "sleep";
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    for (int signal = 1; signal < 32; ++signal) {
      if (::sigismember(&blocked, signal) == 1) wrong = "mask";
    }
    if (in.revents != 0 || !wrong.empty()) break;
  }
  if (!wrong.empty()) std::printf("wrong %s\n", wrong.data());
  return say_fine(wrong.empty());
}

int compute() {
  say_ready();
  volatile uint64_t sum = 0;
  for (;;) sum = sum + 1;
}

int restrict_itself(const char* how) {
  const std::string_view name = how;
  bool good = false;
  if (name == "trap") good = filter(SYS_mmap, SECCOMP_RET_TRAP);
  if (name == "errno") good = filter(SYS_mprotect, SECCOMP_RET_ERRNO | EACCES);
  if (!good) return 2;
  while (go_on()) {
  }
  return say_fine(true);
}

}  // namespace tidemark::test

int main(int argc, char** argv) {
  using namespace tidemark::test;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const char* const argument = argc > 2 ? argv[2] : "";
  if (mode == "hammer") return hammer();
  if (mode == "registers") return hold_registers();
  if (mode == "wait") return wait_in(argument);
  if (mode == "signals") return count_signals();
  if (mode == "compute") return compute();
  if (mode == "answers") return watch_answers();
  if (mode == "seccomp") return restrict_itself(argument);
  if (mode == "undumpable" && ::prctl(PR_SET_DUMPABLE, 0) != 0) return 2;
  if (mode == "idle" || mode == "undumpable") {
    while (go_on()) {
    }
    return say_fine(true);
  }
  return 2;
}
