// Finds or builds the bridge, loads it, and attaches it to the allocator.
#pragma once

#include <atomic>

#include "injector/options.h"

namespace tidemark::injector {

// `libc10_cuda` is that library's path. A bridge in the cache is loaded at once; otherwise a thread
// builds it, and rows are those of tier 1 meanwhile.
void start_bridge(const char* libc10_cuda, const Options& options) noexcept;
void reset_bridge() noexcept;

extern std::atomic<bool> bridge_loaded_not_attached;
inline bool bridge_waits() noexcept {
  return bridge_loaded_not_attached.load(std::memory_order_relaxed);
}

// At the beginning of an allocation, where no lock of the allocator is held.
void attach_bridge() noexcept;

}  // namespace tidemark::injector
