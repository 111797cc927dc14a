// The system calls at which a thread may be borrowed.
//
// The borrowed thread calls pthread_create, which calls malloc. So it must not already be inside
// malloc, the loader or thread creation. Those enter the kernel too, but only by calls such as
// mmap, brk, madvise, openat, clone, and FUTEX_WAIT for their locks. A thread that waits for
// something else, in poll or at a condition variable (FUTEX_WAIT_BITSET), holds none of those
// locks, unless it waits in a signal handler that interrupted malloc. So a thread with the frame of
// a signal handler on its stack is not borrowed either.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "collector/attach/inject/arch.h"
#include "collector/attach/inject/process_maps.h"
#include "collector/attach/inject/remote_memory.h"

namespace tidemark::inject {

class SafeCalls {
 public:
  SafeCalls(pid_t process, const RemoteMemory& memory, const std::vector<MappedFile>& files);

  bool is_safe(const SystemCall& call) const;
  bool in_signal_handler(uint64_t stack_pointer) const;
  // Without a frame. Addresses are 0 if the process has no such code.
  const ReturnPath& return_path() const { return return_path_; }
  const RemoteMemory& memory() const { return memory_; }

  // At the entry of a safe call, by the known instruction, not in a signal handler.
  bool is_safe_entry(const Registers& registers) const;

 private:
  bool is_stream(uint64_t descriptor) const;

  pid_t process_;
  const RemoteMemory& memory_;
  std::vector<uint64_t> signal_returns_;  // addresses
  ReturnPath return_path_;
};

// The system call in which a thread sleeps (/proc/PID/task/TID/syscall). number -1: it is running,
// or this cannot be determined.
SystemCall waiting_call(pid_t process, pid_t thread);

}  // namespace tidemark::inject
