// The memory of another process, through /proc/PID/mem.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tidemark::inject {

class RemoteMemory {
 public:
  // good() says whether it may be read; to write, the process must also be traced or of our rights.
  explicit RemoteMemory(pid_t pid);
  RemoteMemory(RemoteMemory&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RemoteMemory& operator=(RemoteMemory&&) = delete;
  ~RemoteMemory();

  bool good() const { return fd_ >= 0; }
  // All of it, or false.
  bool read(uint64_t address, void* out, size_t size) const;
  // Also into pages that the process itself may only execute.
  bool write(uint64_t address, const void* bytes, size_t size) const;

  template <typename T>
  bool read(uint64_t address, T& out) const {
    return read(address, &out, sizeof out);
  }
  // Up to its zero, not more than `most` bytes.
  std::string text(uint64_t address, size_t most) const;

 private:
  int fd_;
};

}  // namespace tidemark::inject
