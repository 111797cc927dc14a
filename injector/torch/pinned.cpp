#include "injector/torch/pinned.h"

#include <atomic>
#include <cstdint>

#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/recorder.h"
#include "injector/torch/exit_gate.h"

namespace tidemark::injector {
namespace {

std::atomic<TidemarkTorchPinned> g_ask{nullptr};
// Of the last sample; task thread.
uint64_t g_held = 0;
uint64_t g_in_use = 0;

}  // namespace

void set_torch_pinned(TidemarkTorchPinned ask) noexcept {
  g_ask.store(ask, std::memory_order_release);
}

bool ask_torch_pinned(uint64_t& held, uint64_t& in_use) noexcept {
  const auto ask = g_ask.load(std::memory_order_acquire);
  const ForeignCall foreign;
  const TorchQuestion question;
  return question && ask != nullptr && ask(&held, &in_use) == 1;
}

void sample_torch_pinned() noexcept {
  uint64_t held = 0;
  uint64_t in_use = 0;
  if (!ask_torch_pinned(held, in_use)) return;
  if (held == g_held && in_use == g_in_use) return;
  g_held = held;
  g_in_use = in_use;
  const int64_t now = now_ns();
  if (in_use != TIDEMARK_TORCH_UNKNOWN) {
    recorder().record(Counter{now, in_use, 0, -1, CounterKind::kTorchPinnedInUse});
  }
  recorder().record(Counter{now, held, 0, -1, CounterKind::kTorchPinned});
}

void reset_torch_pinned() noexcept {
  g_held = 0;
  g_in_use = 0;
}

}  // namespace tidemark::injector
