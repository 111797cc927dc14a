// Reads the ring of a dead process: the records that it had committed and its trace lacks.
//
// The file is read in pieces (never mapped: a file that shrinks meanwhile must be an error, not a
// signal), and nothing in it is trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/result.h"
#include "proto/ring_layout.h"

namespace tidemark {

class RingReader {
 public:
  // Checks header and checkpoint. The caller keeps ownership of `fd`; `name` is for messages.
  static Result<RingReader> open(int fd, std::string name);

  const ring::RingHeader& header() const { return header_; }
  // The active slot. Only for a ring that is live.
  const ring::Checkpoint& checkpoint() const { return header_.slots[header_.active_slot & 1]; }
  bool live() const { return header_.state == static_cast<uint32_t>(ring::RingState::kLive); }

  // Calls on_row(row) or on_string(id, text) for each record that the trace lacks; records of one
  // thread come in order.
  template <typename OnRow, typename OnString>
  void for_each(OnRow&& on_row, OnString&& on_string) {
    for (const Stretch& stretch : stretches_) {
      if (!load(stretch)) {
        ++damaged_chunks_;
        continue;
      }
      size_t at = 0;
      while (at < bytes_.size()) {
        const uint32_t n =
            ring::visit_record(bytes_.data() + at, bytes_.size() - at, on_row, on_string);
        if (n == 0) {
          ++damaged_chunks_;
          break;
        }
        at += n;
      }
    }
  }

  // Chunks that could not be read completely.
  uint64_t damaged_chunks() const { return damaged_chunks_; }
  // Bytes of records that the trace lacks.
  uint64_t pending_bytes() const;

 private:
  // Part of a chunk that is committed but not in the trace.
  struct Stretch {
    uint64_t sequence = 0;
    uint32_t chunk = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  RingReader(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  Status read_header();
  Status read_chunk_table();
  bool read_at(uint64_t offset, void* out, size_t size) const;
  bool load(const Stretch& stretch);

  int fd_;
  std::string name_;
  ring::RingHeader header_{};
  std::vector<Stretch> stretches_;
  std::vector<uint8_t> bytes_;
  uint64_t damaged_chunks_ = 0;
};

}  // namespace tidemark
