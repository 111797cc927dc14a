// Contexts, their streams, and which context a thread uses.
#pragma once

#include "simgpu/driver.h"

namespace tidemark::simgpu {

// The stream behind a handle: 0 and the two special handles mean the default streams, and
// `per_thread` (the _ptsz functions) which of them 0 is. nullptr: no such stream.
Stream* stream_of(Driver& driver, Context& context, CUstream handle, bool per_thread);

// What this thread made current, be it destroyed since or not.
CUcontext current_handle();

// Puts work at the end of a stream and returns when it starts and ends.
struct Span {
  int64_t start_ns;
  int64_t end_ns;
};
Span schedule(Stream& stream, int64_t duration_ns);

}  // namespace tidemark::simgpu
