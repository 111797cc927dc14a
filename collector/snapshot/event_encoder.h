// Encodes framework events on a second thread while the first one converts entries.
//
// Encoding and compressing cost about as much as reading a snapshot's entries; in parallel they
// take half the time. Frames are kept in memory until finish() writes them to the trace, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/write/trace_writer.h"

namespace tidemark {

class EventEncoder {
 public:
  EventEncoder();
  ~EventEncoder();
  EventEncoder(const EventEncoder&) = delete;
  EventEncoder& operator=(const EventEncoder&) = delete;

  void append(const FrameworkEvent& event) {
    batch_.push_back(event);
    if (batch_.size() == Table<FrameworkEvent>::block_rows) hand_over();
  }

  // Waits for the worker and appends every frame. False if out of memory.
  bool finish(TraceWriter& writer);

 private:
  using Batch = std::vector<FrameworkEvent>;

  void hand_over();
  void encode(const Batch& batch);
  void work();
  void stop();

  Batch batch_;  // being filled
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> full_;       // guarded by mutex_
  std::vector<Batch> empty_;     // guarded by mutex_; for reuse
  bool stopping_ = false;        // guarded by mutex_
  // Owned by the worker until it is joined:
  BlockEncoder encoder_;
  std::vector<uint8_t> frames_;
  bool failed_ = false;
  std::thread worker_;  // none in a browser
};

}  // namespace tidemark
