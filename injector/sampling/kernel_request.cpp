#include "injector/sampling/kernel_request.h"

namespace tidemark::injector {

namespace {

std::atomic<Recorder::Task> g_task{nullptr};
std::atomic<bool> g_recorded{true};
std::atomic<bool> g_requested{false};

}  // namespace

void answer_kernel_requests(Recorder::Task task) noexcept {
  g_task.store(task, std::memory_order_release);
  g_requested.store(false);
  g_recorded.store(true);
}

void note_kernels_recorded(bool on) noexcept {
  g_recorded.store(on);
}

void request_kernels() noexcept {
  const Recorder::Task task = g_task.load(std::memory_order_acquire);
  if (task == nullptr || g_requested.exchange(true)) return;
  if (!g_recorded.load()) recorder().run_task_soon(task);
}

bool take_kernel_request() noexcept {
  return g_requested.exchange(false);
}

void HighMark::raise(uint64_t bytes) noexcept {
  next_.store(bytes + bytes / 64, std::memory_order_relaxed);
  request_kernels();
}

}  // namespace tidemark::injector
