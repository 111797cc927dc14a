// Walks the Python frames of the calling thread without taking the GIL.
//
// A thread inside a C function does not change its own frames, and its frames keep their code
// objects alive, no matter which thread holds the GIL. So they can be read directly from memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/python/runtime.h"
#include "injector/recorder/hashed_ids.h"
#include "injector/recorder/thread_writer.h"

namespace tidemark::injector {

inline constexpr size_t kMaxPythonFrames = 128;  // deeper stacks lose their outermost frames

struct PythonFrame {
  const uint8_t* code;
  uintptr_t position;   // as the frame has it
  uint64_t identity;    // of the code object (walk.cpp); 0: an internal frame, which is skipped
  Hasher hash;          // of this frame and all those outward of it
  uint32_t unit;        // index of the instruction
  uint32_t depth;       // frames with code, from this one outward
  int32_t module_call;  // index of the next frame outward, or this one, of an nn.Module; -1
  bool makes;           // that frame is of its constructor; else the nn.Module runs
};

// The frames of a thread. They are kept for its next walk, in which most of them are the same:
// those are compared, not read and hashed again. Large: made by frames_of only.
struct PythonFrames {
  static constexpr size_t kCapacity = kMaxPythonFrames + 64;  // with internal frames

  const uint8_t* addresses[kCapacity];  // outermost first
  PythonFrame frames[kCapacity];
  const uint8_t* changed[kCapacity];  // while walking: those to be read, innermost first
  uint32_t count;
  uint32_t methods;  // which of nn.Module's methods were known
  // The nn.Module of the innermost frame that runs or makes one; null: none. The frame keeps it
  // alive.
  const uint8_t* nn_module;
  bool makes;  // it is being made
  // Hash of all code objects and positions, and of the seed.
  HashKey key;
};

// Of the calling thread, which is in a PythonWalk; kept with its writer. Null: no memory.
PythonFrames* frames_of(ThreadWriter& writer) noexcept;

// `thread` is the calling thread's state. False if it has no frames.
bool walk_python(const PythonRuntime& python, const void* thread, uint64_t seed,
                 PythonFrames& frames) noexcept;

// Calls use(frame) for at most kMaxPythonFrames frames, innermost first, until it returns false.
template <typename Use>
void each_python_frame(const PythonFrames& walked, Use&& use) {
  size_t used = 0;
  for (uint32_t i = walked.count; i-- > 0 && used < kMaxPythonFrames;) {
    if (walked.frames[i].identity == 0) continue;
    if (!use(walked.frames[i])) return;
    ++used;
  }
}

// Methods whose frames tell an nn.Module by their first argument: __call__ (since 2.1
// _wrapped_call_impl, before _call_impl) and _apply, which moves its parameters; and the
// constructors of all classes of nn.Modules. Looks for them in the thread's frames, with reads that
// cannot fault. True if one was found that was not known before.
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
