// The input of the fuzzer as a file.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>

#include "proto/base/byte_sink.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

inline int nameless_file(std::span<const uint8_t> bytes) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  FdSink sink(fd);
  (void)sink.write(bytes);
  return fd;
}

inline Result<TraceReader> reader_of(std::span<const uint8_t> bytes) {
  return TraceReader::from_fd(nameless_file(bytes), "fuzz");
}

}  // namespace tidemark
