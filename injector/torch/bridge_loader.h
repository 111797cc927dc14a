// Finds or builds the bridge, loads it, and attaches it to the allocator.
#pragma once

#include <atomic>
#include <cstdint>

#include "bridge/torch_bridge_abi.h"
#include "injector/process/options.h"

namespace tidemark::injector {

// `libc10_cuda` is the path of that library. A bridge in the cache is loaded at once; otherwise a
// thread builds it, and meanwhile rows come from tier 1.
void start_bridge(const char* libc10_cuda, const Options& options) noexcept;
void reset_bridge() noexcept;

extern std::atomic<bool> bridge_loaded_not_attached;
inline bool bridge_waits() noexcept {
  return bridge_loaded_not_attached.load(std::memory_order_relaxed);
}

// The current statistics of the allocator, whether or not a recording is on. False if no bridge is
// loaded; `may_load` loads one from the cache. Control thread.
bool ask_torch_numbers(int64_t device, bool may_load, TidemarkTorchNumbers& out) noexcept;

// Called at the beginning of an allocation, where no lock of the allocator is held.
void attach_bridge() noexcept;

}  // namespace tidemark::injector
