// The frames of many files, one file after the other, read ahead by several threads.
//
// Each thread reads whole files in turn (the n-th of j threads takes files n, n + j, …) and stays a
// few batches ahead of the one who takes them, never more: memory is bounded by threads, not files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/base/result.h"
#include "proto/frame.h"

namespace tidemark {

struct FrameBatch {
  std::vector<uint8_t> bytes;       // payloads, one behind the other
  std::vector<FrameHeader> frames;  // with the process of their file
  uint64_t damaged = 0;             // frames that do not match their checksum; they are in here
  std::string error;                // why the file cannot be read (any more)
};

class FrameStream {
 public:
  FrameStream(std::vector<std::string> files, unsigned threads);
  ~FrameStream();
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // The next batch of this file; false at its end. Files are to be asked for in order.
  bool next(size_t file, FrameBatch& batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidemark
