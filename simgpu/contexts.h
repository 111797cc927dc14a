// Contexts, their streams, and the current context of a thread.
#pragma once

#include "simgpu/driver.h"

namespace tidemark::simgpu {

// The stream of a handle: 0 and the two special handles are default streams, and `per_thread` (the
// _ptsz functions) says which of them 0 is. nullptr: no such stream.
Stream* stream_of(Driver& driver, Context& context, CUstream handle, bool per_thread);

// The context that this thread made current, even if it was destroyed since.
CUcontext current_handle();

// Enqueues work on a stream and returns its start and end times.
struct Span {
  int64_t start_ns;
  int64_t end_ns;
};
Span schedule(Stream& stream, int64_t duration_ns);

}  // namespace tidemark::simgpu
