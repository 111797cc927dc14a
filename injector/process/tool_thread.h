// Threads created by tidemark, and how they wait for each other.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

// A detached thread with all signals blocked, so that no signal handler of the host runs on it.
// False with errno if the thread cannot be created.
bool start_tool_thread(const char* name, size_t stack_bytes, void (*run)(void*) noexcept,
                       void* context) noexcept;

// Blocks all signals on this thread while it is in scope. A SIGXFSZ raised meanwhile by our own
// writes is discarded: its default action would kill the host.
class SignalShield {
 public:
  SignalShield() noexcept;
  ~SignalShield();
  SignalShield(const SignalShield&) = delete;
  SignalShield& operator=(const SignalShield&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

// Sleeps while `word` is `value`, at most `timeout_ms`. May return early; the caller checks the
// word again.
void wait_while(const std::atomic<uint32_t>& word, uint32_t value, uint32_t timeout_ms) noexcept;
void wake_all(std::atomic<uint32_t>& word) noexcept;

int64_t monotonic_ms() noexcept;

// A lock that stores its owner's pid, so that a forked child can tell that it is stale. Contenders
// yield.
class PidLock {
 public:
  void lock() noexcept;
  bool try_lock() noexcept;
  // False: another thread of this process held it for that long.
  bool lock_for(uint32_t timeout_ms) noexcept;
  void unlock() noexcept { owner_.store(0, std::memory_order_release); }

 private:
  std::atomic<int32_t> owner_{0};
};

}  // namespace tidemark::injector
