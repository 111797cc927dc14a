// The framework events of a recorded process, in the order in which they happened.
//
// Every thread of a process records separately, so the file has the rows of several threads in the
// order in which the writer collected them. The recorder ensures that each device's rows have
// strictly increasing times, and a row is late by at most one round of the writer. So rows that
// later ones may precede are held back, for a short time, and sorted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

class CaptureOrder {
 public:
  using Sink = std::function<void(std::span<const FrameworkEvent>)>;

  // `segments` are events from another source, in order of time, that are merged with the rows; at
  // equal times they come first.
  CaptureOrder(std::vector<FrameworkEvent> segments, Sink sink);

  // None of the rows that will be added later is earlier than `next_ns`, as far as is known.
  void add(std::span<const FrameworkEvent> rows, int64_t next_ns = INT64_MIN);
  void finish();

  // Rows that arrived after later ones had been passed on; they are passed on out of order.
  uint64_t too_late() const { return too_late_; }

 private:
  // They are sorted.
  void pass_on(std::span<const FrameworkEvent> rows);
  void pass_on_until(int64_t time_ns);

  std::vector<FrameworkEvent> segments_;
  size_t next_segment_ = 0;
  Sink sink_;
  std::vector<FrameworkEvent> held_;  // sorted from first_ on; those before are passed on
  size_t first_ = 0;
  int64_t passed_ns_ = INT64_MIN;
  uint64_t too_late_ = 0;
};

}  // namespace tidemark
