// Loads a library into a running process and calls one of its functions, without a debugger.
//
// A thread of the target is borrowed for well under a millisecond, at the entry of a system call in
// which it would only wait (safe_call.h explains why there). It gets memory by mmap and calls
// pthread_create; then its registers, vectors and signal mask are restored and it enters its own
// call, with its original time limit. The new thread, an ordinary thread of the target's C library,
// does what takes long and needs locks: dlopen and the function. So any thread may hold the
// loader's lock, even the borrowed one: the new thread waits for it like any other.
//
// The target's code is not changed: there are no breakpoints that other threads could hit. Signals
// for the borrowed thread stay pending and arrive afterwards. If this process is killed meanwhile,
// the thread restores itself by rt_sigreturn; the new thread unmaps the memory itself.
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

// The result of the function. Errors are sentences that name the process.
Result<int> inject_library(pid_t pid, const Injection& injection);

}  // namespace tidemark::inject
