// The other way to Python's frames: through its public functions, which need the GIL.
//
// For interpreters whose insides are not known here (debug and free-threaded builds, versions to
// come). Slower by far, and only where no lock is held that the holder of the GIL might wait for.
#pragma once

#include <cstddef>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

bool find_python_api() noexcept;

// Innermost first; the number of frames. Only on a thread that Python knows.
size_t python_frames_with_gil(FrameKey* frames, size_t capacity) noexcept;

}  // namespace tidemark::injector
