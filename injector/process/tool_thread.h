// Threads created by tidemark, and how they wait for each other.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

// A detached thread with all signals but SIGBUS (mapping_guard.h) blocked, so that no signal
// handler of the host runs on it. False with errno if the thread cannot be created.
bool start_tool_thread(const char* name, size_t stack_bytes, void (*run)(void*) noexcept,
                       void* context) noexcept;

// Blocks all signals but SIGBUS on this thread while it is in scope. A SIGXFSZ raised meanwhile by
// our own writes is discarded: its default action would kill the host.
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
//
// Foreign code (the loader, the driver, CUPTI, NVML) takes locks of its own, and calls us while it
// holds them. So a lock is either released before foreign code is called, or nobody waits for it
// without a limit. Debug builds check both: see ForeignCall.
class PidLock {
 public:
  enum class Use : uint8_t { kOurCodeOnly, kForeignCalls };

  constexpr PidLock() noexcept = default;
  constexpr explicit PidLock(Use use) noexcept : use_(use) {}

  void lock() noexcept;  // not with kForeignCalls
  bool try_lock() noexcept;
  // False: another thread of this process held it for that long.
  bool lock_for(uint32_t timeout_ms) noexcept;
  void unlock() noexcept;

 private:
  std::atomic<int32_t> owner_{0};
  Use use_ = Use::kOurCodeOnly;
};

// Marks a scope in which foreign code is called. Debug builds end the process if the thread holds a
// lock that others may be waiting for without a limit.
class ForeignCall {
 public:
#ifdef NDEBUG
  ForeignCall() noexcept = default;
#else
  ForeignCall() noexcept;
#endif
  ~ForeignCall() {}
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
};

}  // namespace tidemark::injector
