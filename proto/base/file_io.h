// Reads and writes that either move all of the bytes or fail. They continue after short transfers
// and EINTR, and leave the reason for a failure in errno.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tidemark {

// Also false, with errno 0, when the file is too short.
inline bool read_at(int fd, uint64_t offset, void* out, size_t size) noexcept {
  auto* to = static_cast<char*>(out);
  while (size != 0) {
    const ssize_t n = ::pread(fd, to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = 0;
    if (n <= 0) return false;
    to += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return true;
}

inline bool write_at(int fd, uint64_t offset, const void* bytes, size_t size) noexcept {
  const auto* from = static_cast<const char*>(bytes);
  while (size != 0) {
    const ssize_t n = ::pwrite(fd, from, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    from += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return true;
}

// At the descriptor's position.
inline bool write_all(int fd, const void* bytes, size_t size) noexcept {
  const auto* from = static_cast<const char*>(bytes);
  while (size != 0) {
    const ssize_t n = ::write(fd, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    from += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace tidemark
