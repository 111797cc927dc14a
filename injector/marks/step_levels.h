// The steps of the program so far, and the least memory that PyTorch or, in a program without it,
// the driver had allocated within each of the last ones: what shows growth while the program runs.
//
// see() runs on any thread that allocates, end_step() on the thread that makes a step, and readers
// may come at any time. A reading that races with a step may be off by one of them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/rows.h"

namespace tidemark::injector {

class StepLevels {
 public:
  static constexpr size_t kDevices = 64;
  static constexpr size_t kKept = 64;  // steps

  void see(int64_t device, uint64_t allocated) noexcept {
    std::atomic<uint64_t>& lowest = devices_[static_cast<size_t>(device)].lowest;
    uint64_t least = lowest.load(std::memory_order_relaxed);
    while (allocated < least &&
           !lowest.compare_exchange_weak(least, allocated, std::memory_order_relaxed)) {
    }
  }

  // A step of this kind has ended: kOptimizerStep, or kIteration, which counts alone where the
  // program marks its steps itself.
  void end_step(MarkKind kind) noexcept;
  uint64_t steps() const noexcept { return steps_.load(std::memory_order_relaxed); }
  // How long the last step took; 0: not known yet.
  int64_t last_step_ns() const noexcept { return step_ns_.load(std::memory_order_relaxed); }

  // Of the last steps in which the device was used, oldest first. Returns their number.
  size_t lows(int64_t device, std::array<uint64_t, kKept>& out) const noexcept;

  void clear() noexcept;

 private:
  struct Device {
    std::atomic<uint64_t> lowest{UINT64_MAX};  // of the current step
    std::atomic<uint64_t> ended{0};            // steps
    std::array<std::atomic<uint64_t>, kKept> lows{};
  };
  std::array<Device, kDevices> devices_{};
  std::atomic<uint64_t> steps_{0};
  std::atomic<int64_t> step_ended_ns_{0};
  std::atomic<int64_t> step_ns_{0};
  std::atomic<MarkKind> kind_{MarkKind::kNone};
};
extern StepLevels the_step_levels;
inline StepLevels& step_levels() noexcept {
  return the_step_levels;
}

}  // namespace tidemark::injector
