#include "injector/process/hook_time.h"

#include <algorithm>

namespace tidemark::injector {

namespace {

// A thread that loses its processor inside a hook has not used that time. No hook takes longer
// than this, 20 µs at 3 GHz, often enough to matter.
constexpr uint64_t kLongestTicks = 60'000;

std::atomic<uint64_t> g_ticks{0};

}  // namespace

thread_local constinit HookThread hook_thread{};

bool HookTime::choose_next() noexcept {
  HookThread& thread = hook_thread;
  const bool first = thread.random == 0;
  if (first) thread.random = static_cast<uint32_t>(processor_ticks()) | 1;
  thread.random ^= thread.random << 13;  // xorshift
  thread.random ^= thread.random >> 17;
  thread.random ^= thread.random << 5;
  // kEvery calls on average, this one included.
  thread.until_measured = kEvery / 2 + thread.random % kEvery - 1;
  return !first;
}

void HookTime::add(uint64_t ticks) noexcept {
  g_ticks.fetch_add(std::min(ticks, kLongestTicks) * kEvery, std::memory_order_relaxed);
}

uint64_t take_hook_ticks() noexcept {
  return g_ticks.exchange(0, std::memory_order_relaxed);
}

}  // namespace tidemark::injector
