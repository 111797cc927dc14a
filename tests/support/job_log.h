// A log of what the processes of a job did, which they write themselves and which survives a
// SIGKILL.
//
// One file per process, mapped shared. Each thread has one page with its id and progress; the rest
// are its calls. A call is entered before it is made and completed when it has returned, so at any
// moment each thread has at most one call that may or may not have happened.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidemark::test {

inline constexpr size_t kJobThreads = 4;
inline constexpr size_t kJobCalls = 1 << 16;  // per thread; the thread pauses when it has made them

struct LoggedCall {
  uint64_t address;
  uint64_t size_bytes;  // 0: this is a free
};

struct ThreadLog {
  std::atomic<uint32_t> tid;
  std::atomic<uint32_t> begun;
  std::atomic<uint32_t> done;
  LoggedCall calls[kJobCalls];
};

struct JobLog {
  ThreadLog threads[kJobThreads];
};

}  // namespace tidemark::test
