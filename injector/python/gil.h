// Reads Python frames through the public API, which needs the GIL.
//
// For interpreters whose internal layout is not known here (debug and free-threaded builds, future
// versions). Much slower, and only allowed where we hold no lock that the holder of the GIL might
// wait for.
#pragma once

#include <cstddef>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

bool find_python_api() noexcept;

// Innermost first; returns the number of frames. Only on a thread that Python knows.
size_t python_frames_with_gil(FrameKey* frames, size_t capacity) noexcept;

}  // namespace tidemark::injector
