#include "injector/cupti/launch_cost.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "abi/driver_callback_ids.h"
#include "injector/process/hook_time.h"
#include "injector/process/own_scope.h"

namespace tidemark::injector {

namespace {

using namespace cupti;

constexpr uint32_t kLaunchCalls[] = {
    CBID_cuLaunchKernel,   CBID_cuLaunchKernel_ptsz,   CBID_cuLaunchCooperativeKernel,
    CBID_cuLaunchKernelEx, CBID_cuLaunchKernelEx_ptsz, CBID_cuLaunchCooperativeKernel_ptsz};

// After kernels were switched, the first launches also set up or give back buffers.
constexpr uint32_t kSkipped = 8;

struct Turn {
  std::atomic<uint32_t> launches{0};
  std::array<std::atomic<uint64_t>, kLaunchesPerTurn> ticks{};
};
std::array<Turn, kTurns> g_turns;
std::atomic<uint32_t> g_turn{kTurns};
std::atomic<Recorder::Task> g_enough{nullptr};

// The scratch of a call holds its turn in the lowest bits, and above them when it was entered.
constexpr uint32_t kTurnBits = 4;
static_assert(kTurns < 1U << kTurnBits);

bool enable(const CuptiSubscription& cupti, uint32_t on) {
  bool all = true;
  for (const uint32_t id : kLaunchCalls) {
    all &= cupti.functions().enable_callback(on, cupti.handle(), CUPTI_CB_DOMAIN_DRIVER_API, id) ==
           CUPTI_SUCCESS;
  }
  return all;
}

uint64_t lower_quartile(const Turn& turn) {
  std::array<uint64_t, kLaunchesPerTurn> ticks{};
  for (size_t i = 0; i < ticks.size(); ++i) ticks[i] = turn.ticks[i].load();
  auto* const quartile = ticks.begin() + ticks.size() / 4;
  std::nth_element(ticks.begin(), quartile, ticks.end());
  return *quartile;
}

}  // namespace

bool is_timed_launch(uint32_t id) noexcept {
  return std::find(std::begin(kLaunchCalls), std::end(kLaunchCalls), id) != std::end(kLaunchCalls);
}

void time_launch(const CUpti_CallbackData& call) noexcept {
  if (call.correlationData == nullptr) return;
  const uint32_t turn = g_turn.load(std::memory_order_acquire);
  if (call.callbackSite == CUPTI_API_ENTER) {
    *call.correlationData = processor_ticks() << kTurnBits | turn;
    return;
  }
  const uint64_t left = processor_ticks() << kTurnBits;
  const uint64_t entered = *call.correlationData;
  // Kernels were switched meanwhile, or the callbacks were enabled.
  if (turn >= kTurns || entered == 0 || (entered & ((1U << kTurnBits) - 1)) != turn) return;
  Turn& samples = g_turns[turn];
  const uint32_t number = samples.launches.fetch_add(1, std::memory_order_relaxed);
  if (number < kSkipped || number >= kSkipped + kLaunchesPerTurn) return;
  samples.ticks[number - kSkipped].store((left - entered) >> kTurnBits, std::memory_order_release);
  if (number != kSkipped + kLaunchesPerTurn - 1) return;
  if (const Recorder::Task enough = g_enough.load()) recorder().run_task_soon(enough);
}

bool begin_launch_timing(const CuptiSubscription& cupti, Recorder::Task enough) noexcept {
  for (Turn& turn : g_turns) {
    turn.launches.store(0);
    for (auto& ticks : turn.ticks) ticks.store(0);
  }
  g_turn.store(kTurns);
  g_enough.store(enough);
  if (enable(cupti, 1)) return true;
  enable(cupti, 0);
  return false;
}

void end_launch_timing(const CuptiSubscription& cupti) noexcept {
  g_turn.store(kTurns, std::memory_order_release);
  enable(cupti, 0);
}

void begin_turn(uint32_t turn) noexcept {
  g_turn.store(turn, std::memory_order_release);
}

// Another thread may still be storing its last number: the slot is 0 until then.
bool turn_is_full(uint32_t turn) noexcept {
  const Turn& samples = g_turns[turn];
  return std::all_of(samples.ticks.begin(), samples.ticks.end(),
                     [](const auto& ticks) { return ticks.load(std::memory_order_acquire) != 0; });
}

std::optional<uint64_t> launch_cost_ticks(uint64_t longest_ticks) noexcept {
  std::array<int64_t, kTurns / 2> costs{};
  for (uint32_t pair = 0; pair < costs.size(); ++pair) {
    const uint64_t on = lower_quartile(g_turns[2 * pair]);
    const uint64_t off = lower_quartile(g_turns[2 * pair + 1]);
    if (off > longest_ticks) return std::nullopt;
    costs[pair] = static_cast<int64_t>(on) - static_cast<int64_t>(off);
  }
  std::sort(costs.begin(), costs.end());
  // Between the two in the middle.
  const int64_t cost = (costs[costs.size() / 2 - 1] + costs[costs.size() / 2]) / 2;
  return static_cast<uint64_t>(std::max<int64_t>(cost, 0));
}

}  // namespace tidemark::injector
