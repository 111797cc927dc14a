// Watches a trace, or a directory of traces, that is still being written.
//
// It checks only names, sizes and modification times, so that the writer is never disturbed. It
// does so at a limited rate, since to read a large trace again takes time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tidemark::view {

class Follower {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{1000};

  // From now on. The trace may have grown since it was read, so the first check reports a change.
  void watch(const std::string& path);
  void stop() { path_.clear(); }
  bool active() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // Whether it changed since the last check. Checks at most once per period.
  bool changed(Clock::time_point now);
  // It was read, which took this long: the next check comes after three times as long.
  void was_read(Clock::time_point now, Clock::duration took);

 private:
  static uint64_t fingerprint(const std::string& path);

  std::string path_;
  uint64_t seen_ = 0;
  Clock::time_point next_look_;
};

}  // namespace tidemark::view
