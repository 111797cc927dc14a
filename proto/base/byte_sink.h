// Destinations for the bytes of a writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemark {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // Writes all of the bytes, or returns false with errno set.
  virtual bool write(std::span<const uint8_t> bytes) noexcept = 0;
};

// Writes to a file descriptor that it does not own; continues after short writes and EINTR.
class FdSink final : public ByteSink {
 public:
  explicit FdSink(int fd) noexcept : fd_(fd) {}
  bool write(std::span<const uint8_t> bytes) noexcept override;

 private:
  int fd_;
};

}  // namespace tidemark
