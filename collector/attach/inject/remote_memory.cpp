#include "collector/attach/inject/remote_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace tidemark::inject {

RemoteMemory::RemoteMemory(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/mem";
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

RemoteMemory::~RemoteMemory() {
  if (fd_ >= 0) ::close(fd_);
}

bool RemoteMemory::read(uint64_t address, void* out, size_t size) const {
  auto* to = static_cast<char*>(out);
  while (size != 0) {
    const ssize_t got = ::pread(fd_, to, size, static_cast<off_t>(address));
    if (got <= 0) return false;
    to += got;
    address += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool RemoteMemory::write(uint64_t address, const void* bytes, size_t size) const {
  const auto* from = static_cast<const char*>(bytes);
  while (size != 0) {
    const ssize_t put = ::pwrite(fd_, from, size, static_cast<off_t>(address));
    if (put <= 0) return false;
    from += put;
    address += static_cast<uint64_t>(put);
    size -= static_cast<size_t>(put);
  }
  return true;
}

std::string RemoteMemory::text(uint64_t address, size_t most) const {
  std::string found;
  char piece[64];
  while (found.size() < most) {
    // Not past a boundary of pieces: the next page may not be there.
    const size_t size = std::min(sizeof piece - address % sizeof piece, most - found.size());
    if (!read(address, piece, size)) break;
    const size_t length = ::strnlen(piece, size);
    found.append(piece, length);
    if (length < size) break;
    address += size;
  }
  return found;
}

}  // namespace tidemark::inject
