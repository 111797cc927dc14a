// The Python frames of the calling thread, read without taking the GIL.
//
// A thread that is inside a C function does not change its own frames, and its frames keep their
// code objects alive, whoever holds the GIL meanwhile. So they may be read as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/python/runtime.h"
#include "injector/recorder/hashed_ids.h"

namespace tidemark::injector {

inline constexpr size_t kMaxPythonFrames = 128;  // deeper stacks lose their outermost frames

struct PythonFrame {
  const uint8_t* code;
  uint32_t unit;  // the instruction's number
};

struct PythonFrames {
  PythonFrame frames[kMaxPythonFrames];  // innermost first
  uint32_t count = 0;
  // Of every code object and position. A code object counts with its name's hash, first line and
  // size beside its address: another one that came to lie at the same address is another one.
  HashKey key;
};

// `thread` is the calling thread's state. Every code object is checked to be one; the walk ends at
// the first thing that is not what it should be.
void walk_python(const PythonRuntime& python, const void* thread, uint64_t seed,
                 PythonFrames& out) noexcept;

// Whether the layout describes the interpreter at hand: walks the thread's frames through reads
// that cannot fault, and looks at everything that is used later. True also says that there was at
// least one frame to look at.
enum class LayoutCheck : uint8_t { kRight, kWrong, kNothingToSee };
LayoutCheck check_python_layout(const PythonRuntime& python, const void* thread) noexcept;

}  // namespace tidemark::injector
