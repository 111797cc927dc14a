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
  // good() says whether it can be read; writing needs a traced process, or one of equal rights.
  explicit RemoteMemory(pid_t pid);
  RemoteMemory(RemoteMemory&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RemoteMemory& operator=(RemoteMemory&&) = delete;
  ~RemoteMemory();

  bool good() const { return fd_ >= 0; }
  // Reads all of it, or returns false.
  bool read(uint64_t address, void* out, size_t size) const;
  // Also to pages that the process itself may only execute.
  bool write(uint64_t address, const void* bytes, size_t size) const;

  template <typename T>
  bool read(uint64_t address, T& out) const {
    return read(address, &out, sizeof out);
  }
  // Reads up to the terminating zero, at most `most` bytes.
  std::string text(uint64_t address, size_t most) const;

 private:
  int fd_;
};

}  // namespace tidemark::inject
