// The stack of an allocation in a Python program: Python's frames, or what stands for them on
// threads that have none.
//
// A stack that was seen before costs a walk and a look into a table. Names and lines are read once
// per new stack, and only while its frames are active.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/process/options.h"

namespace tidemark::injector {

struct FrameKey;

// Looks for the interpreter; again later if there was none. Any thread.
void find_python_stacks(const Options& options) noexcept;
void reset_python_stacks() noexcept;
// A new recording has other ids: what is known of the last one only takes room.
void clear_python_stacks() noexcept;  // a new recording: ids are its own

// Of the calling thread; 0 when there is nothing to tell. `may_take_gil`: no lock is held.
uint32_t capture_python_stack(bool may_take_gil) noexcept;

// The same frames behind native ones that were taken already, for driver allocations. Appends to
// `frames` (FrameKey, innermost first) and returns the new count. Never takes the GIL.
size_t append_python_frames(FrameKey* frames, size_t count, size_t capacity) noexcept;

}  // namespace tidemark::injector
