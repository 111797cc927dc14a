#include "injector/marks/step_levels.h"

#include <algorithm>

#include "injector/process/now.h"

namespace tidemark::injector {

constinit StepLevels the_step_levels;

void StepLevels::end_step(MarkKind kind) noexcept {
  const MarkKind before = kind_.load(std::memory_order_relaxed);
  if (before == MarkKind::kIteration && kind != MarkKind::kIteration) return;
  if (before != kind) {
    if (before != MarkKind::kNone) clear();
    kind_.store(kind, std::memory_order_relaxed);
  }
  steps_.fetch_add(1, std::memory_order_relaxed);
  const int64_t now = monotonic_ns();
  const int64_t last = step_ended_ns_.exchange(now, std::memory_order_relaxed);
  if (last != 0) step_ns_.store(now - last, std::memory_order_relaxed);
  for (Device& device : devices_) {
    const uint64_t low = device.lowest.exchange(UINT64_MAX, std::memory_order_relaxed);
    if (low == UINT64_MAX) continue;
    const uint64_t place = device.ended.load(std::memory_order_relaxed);
    device.lows[place % kKept].store(low, std::memory_order_relaxed);
    device.ended.store(place + 1, std::memory_order_release);
  }
}

size_t StepLevels::lows(int64_t device, std::array<uint64_t, kKept>& out) const noexcept {
  const Device& from = devices_[static_cast<size_t>(device)];
  const uint64_t ended = from.ended.load(std::memory_order_acquire);
  const uint64_t count = std::min<uint64_t>(ended, kKept);
  for (uint64_t i = 0; i < count; ++i) {
    out[i] = from.lows[(ended - count + i) % kKept].load(std::memory_order_relaxed);
  }
  return count;
}

void StepLevels::clear() noexcept {
  for (Device& device : devices_) {
    device.lowest.store(UINT64_MAX, std::memory_order_relaxed);
    device.ended.store(0, std::memory_order_relaxed);
  }
  steps_.store(0, std::memory_order_relaxed);
  step_ended_ns_.store(0, std::memory_order_relaxed);
  step_ns_.store(0, std::memory_order_relaxed);
  kind_.store(MarkKind::kNone, std::memory_order_relaxed);
}

}  // namespace tidemark::injector
