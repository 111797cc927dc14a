#include "collector/attach/inject/remote_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "proto/base/file_io.h"

namespace tidemark::inject {

RemoteMemory::RemoteMemory(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/mem";
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

RemoteMemory::~RemoteMemory() {
  if (fd_ >= 0) ::close(fd_);
}

bool RemoteMemory::read(uint64_t address, void* out, size_t size) const {
  return read_at(fd_, address, out, size);
}

bool RemoteMemory::write(uint64_t address, const void* bytes, size_t size) const {
  return write_at(fd_, address, bytes, size);
}

std::string RemoteMemory::text(uint64_t address, size_t most) const {
  std::string found;
  char piece[64];
  while (found.size() < most) {
    // Not past a multiple of the piece size: the next page may not be mapped.
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
