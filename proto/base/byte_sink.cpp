#include "proto/base/byte_sink.h"

#include <unistd.h>

#include <cerrno>

namespace tidemark {

bool FdSink::write(std::span<const uint8_t> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace tidemark
