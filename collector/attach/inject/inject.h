// Loads a library into a running process and calls one of its functions, without a debugger.
//
// A thread of the target is borrowed for well under a millisecond, at the entry of a system call in
// which it would only wait (safe_call.h says why there). It gets memory by mmap and calls
// pthread_create; then its registers, vectors and signal mask are put back and it enters its own
// call, with the time limit it had. The new thread, an ordinary one of the target's C library, does
// what takes long and takes locks: dlopen and the function. So the loader's lock may be held by
// anybody, even by the borrowed thread: the new one waits for it like everybody else.
//
// Nothing of the target's code is changed: there are no breakpoints for other threads to run into.
// Signals for the borrowed thread stay pending and arrive afterwards. Should this process be killed
// in between, the thread finds its own way back by rt_sigreturn; what was mapped is unmapped by the
// new thread itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "collector/attach/inject/tracee.h"
#include "proto/base/result.h"

namespace tidemark::inject {

struct Injection {
  std::string library;   // absolute, as the target sees it
  std::string function;  // int function(void)
  Deadline deadline{};
};

// What the function returned. Errors are sentences that name the process.
Result<int> inject_library(pid_t pid, const Injection& injection);

}  // namespace tidemark::inject
