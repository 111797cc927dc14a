#include "proto/base/byte_sink.h"

#include "proto/base/file_io.h"

namespace tidemark {

bool FdSink::write(std::span<const uint8_t> bytes) noexcept {
  return write_all(fd_, bytes.data(), bytes.size());
}

}  // namespace tidemark
