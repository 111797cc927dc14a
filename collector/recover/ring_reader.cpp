#include "collector/recover/ring_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "proto/base/file_io.h"

namespace tidemark {

Result<RingReader> RingReader::open(int fd, std::string name) {
  RingReader reader(fd, std::move(name));
  if (Status status = reader.read_header(); !status) return status.error();
  if (reader.live()) {
    if (Status status = reader.read_chunk_table(); !status) return status.error();
  }
  return reader;
}

bool RingReader::read_at(uint64_t offset, void* out, size_t size) const {
  return tidemark::read_at(fd_, offset, out, size);
}

Status RingReader::read_header() {
  if (!read_at(0, &header_, sizeof header_) || header_.magic != ring::kMagic) {
    return Error{name_ + ": not a tidemark ring"};
  }
  if (header_.version != ring::kVersion || header_.layout != ring::kLayout) {
    return Error{name_ + ": written by another version of tidemark; recover it with that version"};
  }
  header_.boot_id[sizeof header_.boot_id - 1] = '\0';
  header_.host[sizeof header_.host - 1] = '\0';
  const uint64_t count = header_.chunk_count;
  const uint64_t bytes = header_.chunk_bytes;
  if (count == 0 || count > ring::kMaxChunks || bytes < ring::kMinChunkBytes ||
      bytes > ring::kMaxChunkBytes || bytes % 8 != 0 ||
      header_.chunks_offset != ring::chunks_offset(count) ||
      header_.total_bytes != header_.chunks_offset + count * bytes || header_.active_slot > 1) {
    return Error{name_ + ": damaged header"};
  }
  struct stat info {};
  if (live() &&
      (::fstat(fd_, &info) != 0 || static_cast<uint64_t>(info.st_size) < header_.total_bytes)) {
    return Error{name_ + ": truncated"};
  }
  return {};
}

Status RingReader::read_chunk_table() {
  const size_t count = header_.chunk_count;
  std::vector<ring::ChunkControl> controls(count);
  std::vector<uint64_t> released(count);
  if (!read_at(ring::controls_offset(), controls.data(), count * sizeof controls[0]) ||
      !read_at(ring::released_offset(count, header_.active_slot), released.data(),
               count * sizeof released[0])) {
    return Error{name_ + ": cannot be read"};
  }
  if (checkpoint().crc != ring::checkpoint_crc(checkpoint(), released.data(), count)) {
    return Error{name_ + ": damaged checkpoint"};
  }
  for (uint32_t chunk = 0; chunk < count; ++chunk) {
    const uint64_t word = controls[chunk].commit;
    const bool known = ring::generation_of(word) == ring::generation_of(released[chunk]);
    const Stretch stretch{controls[chunk].sequence, chunk,
                          known ? ring::bytes_of(released[chunk]) : 0, ring::bytes_of(word)};
    if (stretch.begin > stretch.end || stretch.end > header_.chunk_bytes) {
      ++damaged_chunks_;
    } else if (stretch.begin < stretch.end) {
      stretches_.push_back(stretch);
    }
  }
  std::sort(stretches_.begin(), stretches_.end(),
            [](const Stretch& x, const Stretch& y) { return x.sequence < y.sequence; });
  return {};
}

bool RingReader::load(const Stretch& stretch) {
  bytes_.resize(stretch.end - stretch.begin);
  return read_at(
      header_.chunks_offset + uint64_t{stretch.chunk} * header_.chunk_bytes + stretch.begin,
      bytes_.data(), bytes_.size());
}

uint64_t RingReader::pending_bytes() const {
  uint64_t bytes = 0;
  for (const Stretch& stretch : stretches_) bytes += stretch.end - stretch.begin;
  return bytes;
}

}  // namespace tidemark
