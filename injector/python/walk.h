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
  // Hash of all code objects and positions. A code object is identified by its address, the hash of
  // its name, its first line and its size, so another one that is later created at the same address
  // differs.
  HashKey key;
};

// `thread` is the calling thread's state. Frames whose code is not a code object are skipped.
void walk_python(const PythonRuntime& python, const void* thread, uint64_t seed,
                 PythonFrames& out) noexcept;

// Checks the layout against the interpreter: walks the thread's frames with reads that cannot
// fault, and checks everything that is used later. kRight requires at least one frame.
enum class LayoutCheck : uint8_t { kRight, kWrong, kNothingToSee };
LayoutCheck check_python_layout(const PythonRuntime& python, const void* thread) noexcept;

}  // namespace tidemark::injector
