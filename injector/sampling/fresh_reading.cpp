#include "injector/sampling/fresh_reading.h"

#include <algorithm>
#include <atomic>

#include "injector/process/tool_thread.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

// A failed allocation costs the host more than a reading, which takes a fraction of a millisecond.
// But on a busy machine the reading takes longer, and some programs fail often.
constexpr uint32_t kPatienceMs = 10;
constexpr int64_t kWaitsPerSecondNs = 50'000'000;

constexpr int64_t kPauseMs = 4;  // between readings on request

using Task = void (*)(void*) noexcept;
std::atomic<Task> g_task{nullptr};

// How long host threads have waited for readings in the current second.
class WaitingTime {
 public:
  bool is_left() noexcept {
    const int64_t now = monotonic_ms();
    if (now - since_ms_.load(std::memory_order_relaxed) >= 1000) {
      since_ms_.store(now, std::memory_order_relaxed);
      spent_ns_.store(0, std::memory_order_relaxed);
    }
    return spent_ns_.load(std::memory_order_relaxed) < kWaitsPerSecondNs;
  }
  void spend(int64_t ns) noexcept { spent_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> since_ms_{0};
  std::atomic<int64_t> spent_ns_{0};
};
WaitingTime g_waiting_time;

std::atomic<bool> g_asked{false};
int64_t g_answered_ms = 0;  // task thread

}  // namespace

void read_on_request(Task task) noexcept {
  g_task.store(task, std::memory_order_release);
}

void ask_for_reading() noexcept {
  const Task task = g_task.load(std::memory_order_acquire);
  if (task == nullptr || !readings_expected()) return;
  if (g_asked.exchange(true)) return;
  recorder().run_task_soon(task);
}

void answer_request() noexcept {
  if (!g_asked.load()) return;
  static const std::atomic<uint32_t> nobody{0};
  const int64_t left = g_answered_ms + kPauseMs - monotonic_ms();
  if (left > 0) wait_while(nobody, 0, static_cast<uint32_t>(std::min(left, kPauseMs)));
  g_answered_ms = monotonic_ms();
  g_asked.store(false);  // what is allocated from here on asks again
}

bool may_wait() noexcept {
  return g_waiting_time.is_left();
}

void waited(int64_t ns) noexcept {
  g_waiting_time.spend(std::max<int64_t>(ns, 0));
}

DeviceMemory fresh_device_memory(int64_t device) noexcept {
  const Task task = g_task.load(std::memory_order_acquire);
  if (task != nullptr && readings_expected() && may_wait()) {
    const int64_t start_ns = now_ns();
    const uint32_t seen = readings_so_far();
    recorder().run_task_soon(task);
    wait_for_reading(seen, kPatienceMs);
    waited(now_ns() - start_ns);
  }
  return latest_device_memory(device);
}

}  // namespace tidemark::injector
