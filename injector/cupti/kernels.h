// Kernels (and, when asked for, copies) from CUPTI's activity records.
//
// CUPTI asks for a buffer and hands it back filled, on threads of its own or the host's: those two
// callbacks only move ownership. Decoding happens on the task thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/cupti/loader.h"
#include "injector/process/options.h"

namespace tidemark::injector {

// Before the first context exists, so that CUPTI's own buffers go where they are told. False: CUPTI
// refused, recorded in the trace.
bool start_kernels(const CuptiFunctions& functions, const Options& options) noexcept;

// No new records; what CUPTI holds can still be collected. Then, when all is collected: the memory
// is given back.
void pause_kernels() noexcept;
void stop_kernels() noexcept;

// Takes what CUPTI has completed and records it. Callers take turns (see sampling.h).
void collect_kernels() noexcept;

// Also what CUPTI still holds: at the end.
void collect_last_kernels() noexcept;

// Rows of the records in one buffer. For collect_kernels and for tests.
void decode_activity(const CuptiFunctions& functions, uint8_t* buffer, size_t bytes) noexcept;

// What CUPTI set aside per context for its timestamps, 0 while kernels are off.
struct TracingFootprint {
  uint64_t bytes_per_context = 0;
  bool on_device = false;
};
TracingFootprint tracing_footprint() noexcept;

}  // namespace tidemark::injector
