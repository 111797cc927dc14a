// Starts a compiler without the program noticing.
#pragma once

#include "bridge/environment.h"

namespace tidemark::bridge {

// Runs arguments[0], a path, and waits for it. Its output goes to `log`. `status` is the name of a
// file for its exit status. True if it ended with 0.
//
// The program never gets SIGCHLD for it, and its wait() does not return it: the compiler is a child
// of a process that has ended. (A direct child would be visible even if it was created without an
// exit signal: execve() sets that to SIGCHLD.) Only a program that adopts orphans, such as pid 1 of
// a container, may see it end, as it does with any orphan.
bool run_compiler(const Environment& environment, const char* const* arguments, const char* log,
                  const char* status) noexcept;

}  // namespace tidemark::bridge
