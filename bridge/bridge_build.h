// Provides the bridge for an installed torch: from the cache, or by compiling it.
//
// Runs inside other people's processes (on a thread of the injector) as well as in `tidemark run`:
// no exceptions, no output, no unbounded waiting. A bridge is compiled once per version of torch
// and tidemark, in the user's cache directory. If many processes need it at once, one compiles and
// the others wait.
#pragma once

#include <limits.h>

namespace tidemark::bridge {

struct Outcome {
  bool ready = false;
  char path[PATH_MAX] = {};     // of the bridge, when ready
  char reason[512] = {};        // one line, when not
  char torch_version[64] = {};  // "2.11.0+cu130", as far as it is known
};

// `libc10_cuda` is the path of that library in the torch that the process uses.
void find_bridge(const char* libc10_cuda, Outcome& outcome) noexcept;   // never compiles
void build_bridge(const char* libc10_cuda, Outcome& outcome) noexcept;  // takes seconds, once

}  // namespace tidemark::bridge
