// Provides the bridge for an installed torch: from the cache, or by compiling it.
//
// Runs inside other people's processes (on a thread of the injector) as well as in `tidemark run`:
// no exceptions, no output, no unbounded waiting. A bridge is compiled once per version of torch
// and tidemark and per kind of machine, in the user's cache directory. If many processes need it at
// once, one compiles and the others wait; on file systems without locks each of them compiles.
#pragma once

#include <limits.h>

#include "bridge/environment.h"

namespace tidemark::bridge {

struct Outcome {
  bool ready = false;
  bool compiled = false;        // by this call
  char path[PATH_MAX] = {};     // of the bridge, when ready
  char reason[512] = {};        // one line, when not
  char torch_version[64] = {};  // "2.11.0+cu130", as far as it is known
};

// `libc10_cuda` is the path of that library in the torch that the process uses. A bridge in
// $TIDEMARK_BRIDGE_DIR is preferred to one in the cache.
void find_bridge(const Environment& environment, const char* libc10_cuda,
                 Outcome& outcome) noexcept;  // never compiles
void build_bridge(const Environment& environment, const char* libc10_cuda,
                  Outcome& outcome) noexcept;  // takes seconds, once

// For a bridge that was found but does not load (`outcome` as it was): provides one for this
// machine only. The file that does not load stays: it may load on other machines, and on a network
// file system their processes would crash if it was replaced. Within an hour of the last rebuild
// its result is returned again.
void rebuild_bridge(const Environment& environment, const char* libc10_cuda,
                    Outcome& outcome) noexcept;

// Compiles into a directory that is meant for $TIDEMARK_BRIDGE_DIR, unless it is there already: a
// file that other machines may have mapped is never replaced.
void build_bridge_in(const Environment& environment, const char* libc10_cuda, const char* directory,
                     Outcome& outcome) noexcept;

}  // namespace tidemark::bridge
