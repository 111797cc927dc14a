// Watches a trace, or a directory of traces, that is still being written.
//
// Looks at names, sizes and times of change only, so that the writer is never disturbed, and not
// more often than asked: reading a large trace again takes its time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tidemark::view {

class Follower {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{1000};

  // From now on. It may have grown since somebody read it, so the first look finds a change.
  void watch(const std::string& path);
  void stop() { path_.clear(); }
  bool active() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // Whether it changed since it was last seen. Looks at most once per period.
  bool changed(Clock::time_point now);
  // It was read up to here, which took so long: the next look comes no sooner than three times
  // that.
  void was_read(Clock::time_point now, Clock::duration took);

 private:
  static uint64_t fingerprint(const std::string& path);

  std::string path_;
  uint64_t seen_ = 0;
  Clock::time_point next_look_;
};

}  // namespace tidemark::view
