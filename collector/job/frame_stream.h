// The frames of many files, one file after another, read ahead by several threads.
//
// Each thread reads whole files in turn (the n-th of j threads reads files n, n + j, …) and stays
// at most a few batches ahead of the consumer: memory is bounded by threads, not files.
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
  std::vector<uint8_t> bytes;       // payloads, concatenated
  std::vector<FrameHeader> frames;  // with the process of their file
  uint64_t damaged = 0;             // frames with a wrong checksum; included in `frames`
  std::string error;                // why the file cannot be read
};

class FrameStream {
 public:
  FrameStream(std::vector<std::string> files, unsigned threads);
  ~FrameStream();
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // The next batch of this file; false at its end. Files must be requested in order.
  bool next(size_t file, FrameBatch& batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidemark
