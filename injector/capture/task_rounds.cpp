#include "injector/capture/task_rounds.h"

#include <array>

#include "injector/cupti/kernel_rounds.h"
#include "injector/cupti/kernels.h"
#include "injector/driver/objects.h"
#include "injector/process/hook_time.h"
#include "injector/process/now.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "injector/recorder/task_thread.h"
#include "injector/sampling/driver_queries.h"
#include "injector/sampling/fresh_reading.h"
#include "injector/sampling/nvml_sampler.h"
#include "injector/stacks/modules.h"
#include "injector/torch/hooks.h"

namespace tidemark::injector {
namespace {

constexpr uint32_t kDriverPeriodMs = 100;
constexpr uint32_t kKernelPeriodMs = 250;  // unless a round says otherwise
constexpr uint32_t kProcessPeriodMs = 1000;
constexpr uint32_t kEarlyRounds = 4;  // per process period
// Without callbacks nothing tells us when cuInit is over; calling the driver earlier would be too
// early.
constexpr int64_t kInitGraceMs = 2000;

struct Sampling {
  bool callbacks_on = false;
  bool nvml = false;
  bool modules_known = false;
  bool nvml_tried = false;
  int64_t started_ms = 0;
  int64_t looked_ms = 0;
  uint32_t process_rounds = 0;
  TickRate ticks;
  std::array<uint32_t, kMaxDevices> contexts_reported{};
};
Sampling g_sampling;

// Whether cuInit has finished, as far as we can tell.
bool driver_ready() {
  if (driver_objects().driver_ready.load(std::memory_order_acquire)) return true;
  return monotonic_ms() - g_sampling.started_ms > kInitGraceMs;
}

void open_nvml() {
  if (!g_sampling.nvml || g_sampling.nvml_tried) return;
  g_sampling.nvml_tried = true;
  start_nvml();
}

// What CUPTI reserved per context: part of the ledger, not of its unexplained rest.
void record_own_footprint() {
  const TracingFootprint footprint = tracing_footprint();
  if (footprint.bytes_per_context == 0) return;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    const uint32_t contexts = driver_objects().contexts.live(device);
    uint32_t& reported = g_sampling.contexts_reported[static_cast<size_t>(device)];
    if (contexts == reported) continue;
    const int64_t change = static_cast<int64_t>(contexts) - static_cast<int64_t>(reported);
    reported = contexts;
    if (footprint.on_device) {
      recorder().record(Counter{now_ns(), contexts * footprint.bytes_per_context, 0, device,
                                CounterKind::kOwnDevice});
    } else {
      recorder().add_own_host_bytes(change * static_cast<int64_t>(footprint.bytes_per_context));
    }
  }
}

void driver_round() {
  // Reading the symbols of a large library takes milliseconds: better here than in a callback.
  if (!g_sampling.modules_known) {
    const ModuleView modules;
    g_sampling.modules_known = true;
  }
  look_for_torch();
  if (!driver_ready()) return;
  open_nvml();
  const int64_t now = monotonic_ms();
  if (!g_sampling.callbacks_on && now - g_sampling.looked_ms >= kProcessPeriodMs) {
    g_sampling.looked_ms = now;
    look_for_used_devices();
  }
  if (query_driver()) {
    sample_device_memory();
    sample_process_memory();
  }
  sample_pools();
  record_own_footprint();
}

// Time in the hooks that measure only some of their calls.
void note_hook_time() {
  const double ns_per_tick = g_sampling.ticks.ns_per_tick(monotonic_ns());
  recorder().add_overhead_ns(
      static_cast<uint64_t>(static_cast<double>(take_hook_ticks()) * ns_per_tick));
}

void driver_task(void*) noexcept {
  note_hook_time();
  driver_round();
  look_for_torch_phases();
}

void kernel_task(void*) noexcept {
  run_task_in(kernel_task, run_kernel_round());
}

void device_task(void*) noexcept {
  answer_request();
  sample_pools();
  // A failed allocation may ask for a reading before the first regular round.
  if (!sample_device_memory() && readings_expected()) driver_round();
}

// Listing processes is expensive, so it is done once per second. But a program that runs only that
// long needs a few samples too, and while the use of the card changes the reader must know which
// process causes it.
void process_task(void*) noexcept {
  const uint32_t round = g_sampling.process_rounds++;
  if (round < kEarlyRounds || round % kEarlyRounds == 0 || device_memory_moved()) {
    sample_process_memory();
  }
}

// A process may end before the first round: then everything that is queried once is queried here.
void last_round(void*) noexcept {
  note_hook_time();
  driver_round();
  sample_device_memory();
  sample_process_memory();
  collect_last_kernels();
  end_kernel_rounds();
}

}  // namespace

void start_task_rounds(const Options& options, bool callbacks_on, bool late) noexcept {
  g_sampling = Sampling();
  g_sampling.callbacks_on = callbacks_on;
  g_sampling.nvml = options.nvml_hz > 0;
  g_sampling.started_ms = monotonic_ms();
  g_sampling.ticks.begin(monotonic_ns());
  take_hook_ticks();  // of an earlier recording
  expect_readings(g_sampling.nvml);
  read_on_request(device_task);
  start_kernel_rounds(options, late, kernel_task);
  Recorder& out = recorder();
  out.add_background_task(driver_task, nullptr, kDriverPeriodMs);
  // CUPTI may have been too slow to start in time.
  if (options.cupti && (options.kernels || options.copies)) {
    out.add_background_task(kernel_task, nullptr, kKernelPeriodMs);
  }
  if (options.nvml_hz > 0) {
    out.add_background_task(device_task, nullptr, 1000 / options.nvml_hz);
    out.add_background_task(process_task, nullptr, kProcessPeriodMs / kEarlyRounds);
  }
  out.add_finish_hook(last_round, nullptr);
}

}  // namespace tidemark::injector
