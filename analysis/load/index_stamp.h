// Whether the files of an index are still those whose checksums were compared.
//
// Comparing all checksums reads the whole index. It is done at the first opening after a boot and
// after any change to a file; the stamp, a small file in the index, remembers the outcome: the boot
// and, of each file, what the file system changes whenever the file is written to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tidemark {

inline constexpr const char* kIndexStamp = "verified";

bool has_valid_stamp(const std::string& directory);
// Call it after all checksums matched. The stamp becomes valid once the files are older than it by
// more than a file system's clock resolves.
void write_stamp(const std::string& directory);

// A checksum over a whole column, at the speed of memory. `release` is called at intervals, with
// the number of bytes read so far.
template <typename Release>
uint64_t checksum_of(const void* data, size_t bytes, Release&& release);
// Continues a checksum. All calls but the last must have a multiple of 32 bytes.
struct ChecksumLanes {
  uint64_t lane[4] = {1, 2, 3, 4};
  void add(const uint8_t* data, size_t bytes);
  uint64_t finish(uint64_t total_bytes) const;
};

template <typename Release>
uint64_t checksum_of(const void* data, size_t bytes, Release&& release) {
  constexpr size_t kPiece = size_t{16} << 20;
  const auto* p = static_cast<const uint8_t*>(data);
  ChecksumLanes lanes;
  for (size_t at = 0; at < bytes; at += kPiece) {
    lanes.add(p + at, bytes - at < kPiece ? bytes - at : kPiece);
    release(at);
  }
  return lanes.finish(bytes);
}

}  // namespace tidemark
