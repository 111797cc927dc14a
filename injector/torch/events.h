// What PyTorch's allocator says becomes rows of the trace.
//
// Two voices tell of the same allocation, both under the lock of its device and on the thread that
// allocates: the allocator's trace (tier 2: what was asked for, stream, pool, segments) and, right
// behind it, its report to the profiler (tier 1: what the block really takes). With both, one row
// has it all. Until the first tier speaks for a device, the second one alone makes the rows.
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

// Stacks of allocations are taken before the device's lock is, at begin_torch_allocation().
struct TorchEventOptions {
  bool stacks = true;
  bool native_stacks = false;  // of every allocation, too
};
// How much is listened to: the benchmark changes it while it runs.
enum class TorchListening : uint8_t { kNothing, kTier1, kAll };
void set_torch_listening(TorchListening listening, bool stacks) noexcept;

void start_torch_events(const TorchEventOptions& options) noexcept;

// A recording that begins when the allocator is at work already. Nothing is told of a device until
// its state was read: reading takes the device's lock, and the allocator's own entry about it,
// under that lock, is where the state ends and the events begin. No event is lost or told twice.
//
// Call before the recorder starts.
void await_torch_state() noexcept;
// On the thread that is about to have the state read, and when it was (or could not be: `reason`).
void begin_torch_state() noexcept;
void end_torch_state(const char* reason) noexcept;
bool torch_state_awaited() noexcept;
// At most so long.
void wait_for_torch_state(uint32_t timeout_ms) noexcept;
void reset_torch_events() noexcept;

// The calling thread enters the allocator; it holds no lock of it.
void begin_torch_allocation() noexcept;

// Tier 1. `bytes` is negative for a free.
void on_torch_usage(uintptr_t address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                    TorchDevice device) noexcept;
void on_torch_out_of_memory(int64_t bytes, uint64_t allocated, uint64_t reserved,
                            TorchDevice device) noexcept;

// Tier 2.
void on_torch_event(const TidemarkTorchEvent& event) noexcept;
void on_torch_state(const TidemarkTorchState& state) noexcept;

// Whether anything was told of an allocation yet.
bool torch_was_seen() noexcept;
// Whether a device had allocations before the first one that was reported here.
bool torch_began_late() noexcept;

// What the allocator said last of a device. False: nothing yet.
bool latest_torch_totals(int64_t device, uint64_t& allocated, uint64_t& reserved) noexcept;

// How to ask for the largest free block of a device, once somebody can tell.
void set_largest_free(TidemarkTorchLargestFree ask) noexcept;

}  // namespace tidemark::injector
