// The CPython of this process, found by its symbols. Nothing of it is linked.
#pragma once

#include <cstdint>

#include "injector/python/layout.h"

namespace tidemark::injector {

struct PythonRuntime {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // may be null
  void* (*this_thread_state)() = nullptr;
  const void* code_type = nullptr;
  const void* text_type = nullptr;
  const void* bytes_type = nullptr;
  const void* cell_type = nullptr;
  int minor = 0;
  bool layout_known = false;
  PythonLayout layout{};
};

// Looks it up; false if there is no interpreter, or one that is too old.
bool find_python(PythonRuntime& python) noexcept;

// The calling thread's state; null for threads that Python does not know, and once the interpreter
// shuts down. To be read only inside a PythonWalk (exit_watch.h).
inline void* python_thread(const PythonRuntime& python) noexcept {
  if (python.this_thread_state == nullptr || python.is_initialized() == 0) return nullptr;
  // A thread that outlives the interpreter still gets its state here for a while, but it is freed.
  if (python.is_finalizing != nullptr && python.is_finalizing() != 0) return nullptr;
  return python.this_thread_state();
}

}  // namespace tidemark::injector
