// How long the host's threads spend in our frequent hooks: the allocator's reports, NVTX, NCCL.
//
// Reading the clock twice would cost as much as some of them, so about one call in kEvery is
// measured, by the counter of the processor, and stands for all. The distance between two of them
// varies, so that no pattern of the program falls in step with it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tidemark::injector {

// Ticks of a counter that runs at a constant rate.
inline uint64_t processor_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
#error "no counter is known for this processor"
#endif
}

// The rate of the counter, from two readings of it and of the clock.
class TickRate {
 public:
  void begin(int64_t monotonic_ns) noexcept {
    ticks_ = processor_ticks();
    ns_ = monotonic_ns;
  }
  // The longer after begin(), the more exact. 1 right after it.
  double ns_per_tick(int64_t monotonic_ns) const noexcept {
    const uint64_t ticks = processor_ticks() - ticks_;
    if (ticks == 0 || monotonic_ns <= ns_) return 1;
    return static_cast<double>(monotonic_ns - ns_) / static_cast<double>(ticks);
  }

 private:
  uint64_t ticks_ = 0;
  int64_t ns_ = 0;
};

// Small, and initial-exec for the reason given in recorder/thread_writer.h.
struct HookThread {
  uint32_t until_measured;
  uint32_t random;
};
extern thread_local constinit HookThread hook_thread __attribute__((tls_model("initial-exec")));

// The time that a hook takes, from here to the end of the scope.
class HookTime {
 public:
  static constexpr uint32_t kEvery = 64;

  HookTime() noexcept {
    if (hook_thread.until_measured-- == 0) [[unlikely]]
      begun_ = choose_next() ? processor_ticks() : 0;
  }
  ~HookTime() {
    if (begun_ != 0) [[unlikely]]
      add(processor_ticks() - begun_);
  }
  HookTime(const HookTime&) = delete;
  HookTime& operator=(const HookTime&) = delete;

 private:
  // False at the first call of a thread, which also sets up what belongs to the thread.
  static bool choose_next() noexcept;
  static void add(uint64_t ticks) noexcept;

  uint64_t begun_ = 0;
};

// The estimated ticks in all hooks since the last call. One caller at a time.
uint64_t take_hook_ticks() noexcept;

}  // namespace tidemark::injector
