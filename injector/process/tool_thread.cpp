#include "injector/process/tool_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <climits>
#include <cstdlib>

namespace tidemark::injector {

namespace {

struct Start {
  void (*run)(void*) noexcept;
  void* context;
  char name[16];
};

void* enter(void* argument) {
  auto* const start = static_cast<Start*>(argument);
  const Start copy = *start;
  std::free(start);
  pthread_setname_np(pthread_self(), copy.name);
  copy.run(copy.context);
  return nullptr;
}

int create(Start* start, size_t stack_bytes) {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) return error;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (stack_bytes != 0) pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, enter, start);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace

bool start_tool_thread(const char* name, size_t stack_bytes, void (*run)(void*) noexcept,
                       void* context) noexcept {
  auto* const start = static_cast<Start*>(std::calloc(1, sizeof(Start)));
  if (start == nullptr) return false;
  start->run = run;
  start->context = context;
  for (size_t i = 0; i + 1 < sizeof start->name && name[i] != '\0'; ++i) start->name[i] = name[i];
  const SignalShield inherited;
  int error = create(start, stack_bytes);
  // A host with a lot of static thread-local storage needs more than a small stack: use the
  // default.
  if (error == EINVAL) error = create(start, 0);
  if (error == 0) return true;
  std::free(start);
  errno = error;
  return false;
}

SignalShield::SignalShield() noexcept {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  sigset_t pending;
  was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

SignalShield::~SignalShield() {
  sigset_t pending;
  if (!was_pending_ && sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1) {
    sigset_t file_size;
    sigemptyset(&file_size);
    sigaddset(&file_size, SIGXFSZ);
    const timespec now{};
    sigtimedwait(&file_size, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void wait_while(const std::atomic<uint32_t>& word, uint32_t value, uint32_t timeout_ms) noexcept {
  const timespec timeout{static_cast<time_t>(timeout_ms / 1000),
                         static_cast<long>(timeout_ms % 1000) * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &timeout, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int64_t monotonic_ms() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

#ifndef NDEBUG
// Locks of kOurCodeOnly that this thread holds.
static thread_local constinit int t_held __attribute__((tls_model("initial-exec"))) = 0;

ForeignCall::ForeignCall() noexcept {
  assert(t_held == 0);
}
#endif

bool PidLock::try_lock() noexcept {
  const int32_t self = static_cast<int32_t>(getpid());
  int32_t owner = 0;
  while (!owner_.compare_exchange_weak(owner, self, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
    // Held by the parent: never released here. 0: the exchange failed for no reason.
    if (owner == self) return false;
  }
#ifndef NDEBUG
  if (use_ == Use::kOurCodeOnly) ++t_held;
#endif
  return true;
}

void PidLock::unlock() noexcept {
#ifndef NDEBUG
  if (use_ == Use::kOurCodeOnly) --t_held;
#endif
  owner_.store(0, std::memory_order_release);
}

bool PidLock::lock_for(uint32_t timeout_ms) noexcept {
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (!try_lock()) {
    if (monotonic_ms() >= deadline) return false;
    sched_yield();
  }
  return true;
}

void PidLock::lock() noexcept {
  assert(use_ == Use::kOurCodeOnly);
  while (!try_lock()) sched_yield();
}

}  // namespace tidemark::injector
