// The trace file as the writer sees it: appended to, and never mistaken for a file of the host.
//
// A host may close every descriptor it finds, ours included, and get the same number again for a
// file of its own. Before each write the descriptor is therefore compared with the file it was made
// for, and the file is opened again by its path when it is not the one. (Between that look and the
// write lie some hundred nanoseconds in which another thread could still swap it.)
#pragma once

#include <cstdint>

#include "proto/base/byte_sink.h"

namespace tidemark::injector {

class TraceFile final : public ByteSink {
 public:
  // Makes the file, which must not exist. `path` is absolute and outlives this.
  bool create(const char* path) noexcept;

  bool write(std::span<const uint8_t> bytes) noexcept override;

  // Drops what lies behind the first `size` bytes.
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
