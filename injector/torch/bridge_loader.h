// Finds or builds the bridge, loads it, and attaches it to the allocator.
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/process/options.h"

namespace tidemark::injector {

// `libc10_cuda` is that library's path. A bridge in the cache is loaded at once; otherwise a thread
// builds it, and rows are those of tier 1 meanwhile.
void start_bridge(const char* libc10_cuda, const Options& options) noexcept;
void reset_bridge() noexcept;

extern std::atomic<bool> bridge_loaded_not_attached;
inline bool bridge_waits() noexcept {
  return bridge_loaded_not_attached.load(std::memory_order_relaxed);
}

// The allocator's totals now, whether anything is recorded or not. False where no bridge is loaded;
// `may_load` loads one that lies in the cache. Control thread.
bool ask_torch_totals(int64_t device, bool may_load, uint64_t& allocated,
                      uint64_t& reserved) noexcept;

// At the beginning of an allocation, where no lock of the allocator is held.
void attach_bridge() noexcept;

}  // namespace tidemark::injector
