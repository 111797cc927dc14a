// The framework events of a recorded process, in the order in which they happened.
//
// Every thread of a process records for itself, so rows of several threads lie in the file as the
// writer found them. Each device's rows carry strictly growing times (the recorder sees to it), and
// a row is never behind another by more than a round of the writer. So a short stretch is held back
// and sorted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

class CaptureOrder {
 public:
  using Sink = std::function<void(const FrameworkEvent&)>;

  // `segments` are events from another source, in order of time, to be put between the rows; at the
  // same time they come first.
  CaptureOrder(std::vector<FrameworkEvent> segments, Sink sink);

  void add(std::span<const FrameworkEvent> rows);
  void finish();

  // Rows that came after later ones had been passed on. They are passed on late.
  uint64_t too_late() const { return too_late_; }

 private:
  void pass_on(const FrameworkEvent& event);
  void pass_on_until(int64_t time_ns);

  std::vector<FrameworkEvent> segments_;
  size_t next_segment_ = 0;
  Sink sink_;
  std::vector<FrameworkEvent> held_;  // sorted from first_ on; before it they are passed on
  size_t first_ = 0;
  int64_t passed_ns_ = INT64_MIN;
  uint64_t too_late_ = 0;
};

}  // namespace tidemark
