// Threads of the recorder's own, and the ways they wait for each other.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

// A detached thread with every signal blocked, so that no handler of the host runs on it. False
// with errno when there is none to be had.
bool start_tool_thread(const char* name, size_t stack_bytes, void (*run)(void*) noexcept,
                       void* context) noexcept;

// Blocks every signal for this thread as long as it lives. A SIGXFSZ that our own writing raised
// meanwhile is taken away: its default action would end the host.
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

// Sleeps while `word` is `value`, at most `timeout_ms`. Returns at any time; the caller looks
// again.
void wait_while(const std::atomic<uint32_t>& word, uint32_t value, uint32_t timeout_ms) noexcept;
void wake_all(std::atomic<uint32_t>& word) noexcept;

int64_t monotonic_ms() noexcept;

// A lock that a forked child can tell to be stale: it holds its owner's pid. Contenders yield.
class PidLock {
 public:
  void lock() noexcept;
  void unlock() noexcept { owner_.store(0, std::memory_order_release); }

 private:
  std::atomic<int32_t> owner_{0};
};

}  // namespace tidemark::injector
