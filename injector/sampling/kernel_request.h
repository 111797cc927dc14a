// Kernels that must be recorded whatever they cost: around a new peak and an out-of-memory error.
//
// Hooks and callbacks only leave a request, and wake the task thread if kernels are off at the
// moment; it switches them on (cupti/kernel_rounds.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// `task` answers requests.
void answer_kernel_requests(Recorder::Task task) noexcept;
// Whether kernels are recorded at the moment. Task thread.
void note_kernels_recorded(bool on) noexcept;

void request_kernels() noexcept;
// Since the last call. Task thread.
bool take_kernel_request() noexcept;

// A level that counts as a new peak when it exceeds the last one that did by a 64th: a program that
// grows by a little in each step has few of them.
class HighMark {
 public:
  void see(uint64_t bytes) noexcept {
    if (bytes > next_.load(std::memory_order_relaxed)) [[unlikely]]
      raise(bytes);
  }
  void clear() noexcept { next_.store(0, std::memory_order_relaxed); }

 private:
  void raise(uint64_t bytes) noexcept;
  std::atomic<uint64_t> next_{0};
};

}  // namespace tidemark::injector
