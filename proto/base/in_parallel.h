// Independent pieces of work on all cores; one after the other in a browser, whose page has one
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/work.h"

namespace tidemark {

// Cores that are worth using: more would only need more memory.
inline size_t worker_count() {
  constexpr size_t kMost = 16;
  return kInBrowser ? 1 : std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMost);
}

// Calls use(i) for every i below `count`, in any order, and waits. If one throws, the others still
// running are finished, no new ones are begun, and the exception is passed on.
template <typename Use>
void in_parallel(size_t count, Use&& use, size_t workers = worker_count()) {
  std::atomic<size_t> next{0};
  std::mutex lock;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) use(i);
    } catch (...) {
      const std::lock_guard guard(lock);
      failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<Work> others;  // joined at the end of this scope
    for (size_t i = 1; i < std::min(workers, count); ++i) others.push_back(Work({work}));
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tidemark
