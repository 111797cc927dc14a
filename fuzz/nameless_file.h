// The fuzzer's bytes as a file that a TraceReader can open.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <span>

#include "proto/byte_sink.h"
#include "proto/trace_reader.h"

namespace tidemark {

inline Result<TraceReader> reader_of(std::span<const uint8_t> bytes) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  FdSink sink(fd);
  if (!sink.write(bytes)) return Error{"memfd"};
  return TraceReader::from_fd(fd, "fuzz");
}

}  // namespace tidemark
