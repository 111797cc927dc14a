// Captures the native stack of the calling thread: module and offset per frame, no names.
//
// Safe on any thread and any stack, while other threads load and unload libraries: it allocates
// nothing, does not use the process's own unwinder, reads the stack only where it is readable, and
// stops where the tables end. The module and rules of each return address are kept in a table
// shared by all threads, so a stack seen before does not need the tables again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/recorder/recorder.h"
#include "injector/stacks/owner.h"

namespace tidemark::injector {

inline constexpr size_t kMaxNativeFrames = 64;

struct NativeStack {
  // Innermost first, without the frames of tidemark, CUPTI and the driver at the top. The offset is
  // that of the call (return address - 1) in the file's address space.
  FrameKey frames[kMaxNativeFrames];
  uint32_t count = 0;
  Owner owner = Owner::kUnknown;
  bool torch_allocator = false;  // the owner is torch, through its caching allocator
};

void capture_native_stack(NativeStack& out) noexcept;

// Program counters of the calling thread, beginning with the caller. The first is exact, the others
// are return addresses. For tests.
size_t unwind_here(uintptr_t* pcs, size_t capacity) noexcept;

// Clears the cached rules: together with reset_modules().
void reset_unwinder() noexcept;

}  // namespace tidemark::injector
