// The bytes of an input file: mapped, or inflated if the file is gzip.
//
// A mapped file must not be truncated while it is in use: reading past its new end raises SIGBUS,
// as with any mapping. Inflated bytes are a private copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/base/result.h"

namespace tidemark {

class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(ByteSource&& other) noexcept;
  ByteSource& operator=(ByteSource&& other) noexcept;
  ~ByteSource();

  // The address stays valid for the lifetime of this source, or of the one it is moved to.
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  bool was_compressed() const { return ownership_ == Ownership::kHeap; }

 private:
  friend Result<ByteSource> open_bytes(const std::string& path, uint64_t max_inflated_bytes);

  enum class Ownership : uint8_t { kNone, kMapping, kHeap };

  ByteSource(const uint8_t* data, size_t size, Ownership ownership)
      : data_(data), size_(size), ownership_(ownership) {}

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  Ownership ownership_ = Ownership::kNone;
};

// Half of the memory that there is: of the machine, of the container, or by `ulimit -v`.
uint64_t default_max_inflated_bytes();

// Opens a regular file that is not empty. A gzip file may have several members; together they may
// inflate to at most `max_inflated_bytes`.
Result<ByteSource> open_bytes(const std::string& path,
                              uint64_t max_inflated_bytes = default_max_inflated_bytes());

}  // namespace tidemark
