// Kernels, and copies if enabled, from CUPTI's activity records.
//
// CUPTI requests a buffer and hands it back filled, on its own threads or the host's: those two
// callbacks only move ownership. Records are decoded on the task thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/cupti/subscription.h"
#include "injector/process/options.h"

namespace tidemark::injector {

// Call before the first context exists, so that CUPTI places its buffers as configured. False:
// CUPTI refused, which is recorded in the trace. `subscription` must outlive it.
bool start_kernels(const CuptiSubscription& subscription, const Options& options) noexcept;

// pause_kernels: no new records; what CUPTI holds can still be collected. stop_kernels: frees the
// memory, after everything is collected.
void pause_kernels() noexcept;
void stop_kernels() noexcept;

// Turns kernels alone off and on during a recording. False if CUPTI refused. Task thread.
bool switch_kernels(bool on) noexcept;
// Whether kernels belong to the recording, which has not been paused at its end.
bool kernels_can_be_switched() noexcept;

// Kernels recorded in this recording.
uint64_t kernels_so_far() noexcept;

// Records what CUPTI has completed. Callers take turns (capture/task_rounds.cpp).
void collect_kernels() noexcept;

// Records also what CUPTI still holds: at the end.
void collect_last_kernels() noexcept;

// What CUPTI reserved per context for its timestamps; 0 while kernels are off.
struct TracingFootprint {
  uint64_t bytes_per_context = 0;
  bool on_device = false;
};
TracingFootprint tracing_footprint() noexcept;

}  // namespace tidemark::injector
