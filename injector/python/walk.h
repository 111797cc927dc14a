// Walks the Python frames of the calling thread without taking the GIL.
//
// A thread inside a C function does not change its own frames, and its frames keep their code
// objects alive, no matter which thread holds the GIL. So they can be read directly from memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/python/runtime.h"
#include "injector/recorder/hashed_ids.h"

namespace tidemark::injector {

inline constexpr size_t kMaxPythonFrames = 128;  // deeper stacks lose their outermost frames

struct PythonFrame {
  const uint8_t* code;
  uint32_t unit;  // index of the instruction
};

struct PythonFrames {
  PythonFrame frames[kMaxPythonFrames];  // innermost first
  uint32_t count = 0;
  // The nn.Module of the innermost frame that runs one; null: none. The frame keeps it alive.
  const uint8_t* nn_module = nullptr;
  // Hash of all code objects and positions. A code object is identified by its address, the hash of
  // its name, its first line and its size, so another one that is later created at the same address
  // differs.
  HashKey key;
};

// `thread` is the calling thread's state. Frames whose code is not a code object are skipped.
void walk_python(const PythonRuntime& python, const void* thread, uint64_t seed,
                 PythonFrames& out) noexcept;

// Methods of torch.nn.Module whose frames tell which one runs, by their first argument: __call__
// (since 2.1 _wrapped_call_impl, before _call_impl) and _apply, which moves its parameters. Looks
// for them in the thread's frames, with reads that cannot fault. True if one was found that was not
// known before.
bool find_nn_module_methods(const PythonRuntime& python, const void* thread) noexcept;
void forget_nn_module_methods() noexcept;

// All nn.Modules that run on the thread, innermost first; returns their number.
size_t running_nn_modules(const PythonRuntime& python, const void* thread, const uint8_t** out,
                          size_t capacity) noexcept;

// Checks the layout against the interpreter: walks the thread's frames with reads that cannot
// fault, and checks everything that is used later. kRight requires at least one frame.
enum class LayoutCheck : uint8_t { kRight, kWrong, kNothingToSee };
LayoutCheck check_python_layout(const PythonRuntime& python, const void* thread) noexcept;

}  // namespace tidemark::injector
