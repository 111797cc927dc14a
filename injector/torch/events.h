// Turns reports of PyTorch's allocator into rows of the trace.
//
// Two reports describe the same allocation, both under the lock of its device and on the thread
// that allocates: the allocator's trace entry (tier 2: requested size, stream, pool, segments) and,
// right after it, its report to the profiler (tier 1: actual size of the block). With both, one row
// has everything. Until tier 2 reports for a device, tier 1 alone makes the rows.
#pragma once

#include <cstdint>

#include "bridge/torch_bridge_abi.h"

namespace tidemark::injector {

// c10::Device, as it is passed: two signed bytes.
struct TorchDevice {
  int8_t type;  // 1: CUDA
  int8_t index;
};
inline constexpr int8_t kTorchCuda = 1;

// Stacks of allocations are captured in begin_torch_allocation(), before the device lock is taken.
struct TorchEventOptions {
  bool stacks = true;
  bool native_stacks = false;  // also capture native stacks of every allocation
};
// Which reports are used: the benchmark changes it at run time.
enum class TorchListening : uint8_t { kNothing, kTier1, kAll };
void set_torch_listening(TorchListening listening, bool stacks) noexcept;

void start_torch_events(const TorchEventOptions& options) noexcept;

// For a recording that begins while the allocator is in use. No event of a device counts until its
// state was read: reading takes the device lock, and the allocator's own trace entry about it,
// under that lock, marks where the state ends and the events begin. So no event is lost or recorded
// twice.
//
// Call before the recorder starts.
void await_torch_state() noexcept;
// Called on the thread that reads the state, before it and after it. `reason`: why it could not be
// read.
void begin_torch_state() noexcept;
void end_torch_state(const char* reason) noexcept;
bool torch_state_awaited() noexcept;
// Waits at most `timeout_ms`.
void wait_for_torch_state(uint32_t timeout_ms) noexcept;
void reset_torch_events() noexcept;

// The calling thread enters the allocator and holds none of its locks.
void begin_torch_allocation() noexcept;

// Tier 1. `bytes` is negative for a free.
void on_torch_usage(uintptr_t address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                    TorchDevice device) noexcept;
void on_torch_out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved,
                            TorchDevice device) noexcept;

// Tier 2.
void on_torch_event(const TidemarkTorchEvent& event) noexcept;
void on_torch_state(const TidemarkTorchState& state) noexcept;

// Whether any allocation was reported yet.
bool torch_was_seen() noexcept;
// Whether a device had allocations before the first one reported here.
bool torch_began_late() noexcept;

// What the allocator has reported for a device so far. False: nothing yet.
bool latest_torch_numbers(int64_t device, TidemarkTorchNumbers& out) noexcept;

// What the allocator is asked when it is out of memory; either may be null.
struct TorchQuestions {
  TidemarkTorchLargestFree largest_free = nullptr;
  TidemarkTorchFraction fraction = nullptr;
};
void answer_at_errors(const TorchQuestions& questions) noexcept;

}  // namespace tidemark::injector
