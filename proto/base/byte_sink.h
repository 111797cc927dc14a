// Where a writer's bytes go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemark {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // All of the bytes, or false with errno set.
  virtual bool write(std::span<const uint8_t> bytes) noexcept = 0;
};

// Writes to a file descriptor that somebody else owns; goes on after short writes and EINTR.
class FdSink final : public ByteSink {
 public:
  explicit FdSink(int fd) noexcept : fd_(fd) {}
  bool write(std::span<const uint8_t> bytes) noexcept override;

 private:
  int fd_;
};

}  // namespace tidemark
