#include "injector/torch/exit_gate.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {
namespace {

constexpr uint32_t kClosed = 1U << 31;
constexpr uint32_t kPatienceMs = 1000;
std::atomic<uint32_t> g_questions{0};  // under way, and kClosed
std::atomic_flag g_watched;
std::atomic<int> g_watched_in{0};  // pid

// In a forked child there is nobody to wait for: the thread that asked is the parent's.
void close_gate() {
  uint32_t under_way = g_questions.fetch_or(kClosed) | kClosed;
  if (::getpid() != g_watched_in.load()) return;
  const int64_t deadline = monotonic_ms() + kPatienceMs;
  for (int64_t left = kPatienceMs; under_way != kClosed && left > 0;
       left = deadline - monotonic_ms()) {
    wait_while(g_questions, under_way, static_cast<uint32_t>(left));
    under_way = g_questions.load();
  }
}

}  // namespace

void watch_torch_exit() noexcept {
  g_watched_in.store(::getpid());
  if (!g_watched.test_and_set()) std::atexit(close_gate);
}

TorchQuestion::TorchQuestion() noexcept : allowed_((g_questions.fetch_add(1) & kClosed) == 0) {}

TorchQuestion::~TorchQuestion() {
  if ((g_questions.fetch_sub(1) & kClosed) != 0) wake_all(g_questions);
}

}  // namespace tidemark::injector
