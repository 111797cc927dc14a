// The trace file as the writer sees it: append-only, and never confused with a file of the host.
//
// A host may close every descriptor it finds, ours included. The descriptor has a high number,
// which the host does not get again for a file of its own (move_descriptor_up). Should it ask for
// exactly that number (dup2), the descriptor is compared, before each write, with the file it was
// opened for, and the file is reopened by its path if they differ.
#pragma once

#include <cstdint>

#include "proto/base/byte_sink.h"

namespace tidemark::injector {

class TraceFile final : public ByteSink {
 public:
  // Creates the file, which must not exist. `path` is absolute and outlives this object.
  bool create(const char* path) noexcept;

  bool write(std::span<const uint8_t> bytes) noexcept override;

  // True if all of the bytes were read.
  bool read(uint64_t offset, std::span<uint8_t> out) noexcept;

  // Gives the file this name, which replaces what had it. `path` outlives this object.
  bool rename_to(const char* path) noexcept;
  void swap(TraceFile& other) noexcept;

  // Truncates the file to `size` bytes.
  bool cut(uint64_t size) noexcept;

  void close() noexcept;
  bool exists() const noexcept { return path_ != nullptr; }

 private:
  bool is_ours() const noexcept;
  bool make_sure() noexcept;

  const char* path_ = nullptr;
  int fd_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

}  // namespace tidemark::injector
