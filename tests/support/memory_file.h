// A trace in an anonymous file, which tests can truncate and corrupt.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <vector>

#include "proto/base/byte_sink.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

class MemorySink final : public ByteSink {
 public:
  bool write(std::span<const uint8_t> data) noexcept override {
    bytes.insert(bytes.end(), data.begin(), data.end());
    return true;
  }
  std::vector<uint8_t> bytes;
};

inline Result<TraceReader> open_bytes_as_trace(std::span<const uint8_t> bytes) {
  const int fd = ::memfd_create("trace", MFD_CLOEXEC);
  FdSink sink(fd);
  if (!sink.write(bytes)) return Error{"memfd"};
  return TraceReader::from_fd(fd, "test");
}

}  // namespace tidemark
