// Work beside the drawing: on a thread of its own, or, in a browser, where a page has only one
// thread, between two frames.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace tidemark {

using WorkParts = std::vector<std::function<void()>>;

#ifndef __EMSCRIPTEN__

inline constexpr bool kInBrowser = false;

// Runs its parts one after the other. Joined before it is destroyed or replaced.
class Work {
 public:
  Work() = default;
  explicit Work(WorkParts parts)
      : thread_([parts = std::move(parts)] {
          for (const std::function<void()>& part : parts) part();
        }) {}

  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }

 private:
  std::jthread thread_;
};

#else

inline constexpr bool kInBrowser = true;

// The same in turns: every run_waiting_work() runs one part. Parts that did not get their turn
// before join() are dropped.
class Work {
 public:
  Work() = default;
  explicit Work(WorkParts parts);
  Work(Work&& other) noexcept : turns_(std::exchange(other.turns_, 0)) {}
  Work& operator=(Work&& other) noexcept;
  ~Work() { join(); }

  bool joinable() const { return turns_ != 0; }
  void join();

 private:
  uint64_t turns_ = 0;  // 0: none
};

bool work_is_waiting();
void run_waiting_work();

#endif

}  // namespace tidemark
