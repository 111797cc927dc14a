// What the processes of a job did, written by themselves so that it outlives a SIGKILL.
//
// One file per process, mapped shared: one page of it per thread holds the thread's id and how far
// it came, the rest are its calls. A call is entered before it is made and completed when it has
// returned, so at any moment each thread has at most one call of which nobody can say whether it
// happened.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidemark::test {

inline constexpr size_t kJobThreads = 4;
inline constexpr size_t kJobCalls = 1 << 16;  // per thread; then it pauses

struct LoggedCall {
  uint64_t address;
  uint64_t size_bytes;  // 0: a free
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
