// The stack of an allocation in a Python program: Python frames, or a substitute on threads that
// have none.
//
// A stack seen before costs a walk and a table lookup. Names and lines are read once per new stack,
// and only while its frames are active.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/process/options.h"

namespace tidemark::injector {

struct FrameKey;

// Looks for the interpreter; call again later if there was none. Any thread.
void find_python_stacks(const Options& options) noexcept;
void reset_python_stacks() noexcept;
// A new recording has other ids: entries of the last one only take space.
void clear_python_stacks() noexcept;

// Whether stacks name the nn.Module that runs: the benchmark changes it at run time.
void set_nn_modules(bool on) noexcept;

// The stack of the calling thread; 0 if there is nothing to report. `may_take_gil`: no lock is
// held.
uint32_t capture_python_stack(bool may_take_gil) noexcept;

// Appends the same frames after native ones. `frames` are innermost first; returns the new count,
// and in `nn_module`, if given, the nn.Module that runs or whose backward pass does; 0: none. Never
// takes the GIL.
size_t append_python_frames(FrameKey* frames, size_t count, size_t capacity,
                            uint32_t* nn_module = nullptr) noexcept;

}  // namespace tidemark::injector
