// Encodes rows or strings into complete frames: header and compressed payload.
//
// Owned by one thread. All memory is in separate pages (pages.h), allocated when a table is used
// for the first time (its size is fixed by the table's block_rows); nothing is allocated per event
// or per block after that. No exceptions: a failure is permanent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/base/pages.h"
#include "proto/column_codec.h"
#include "proto/frame.h"

struct ZSTD_CCtx_s;

namespace tidemark {

// One text and its id, input of a Strings message.
struct StringRow {
  uint32_t id = 0;
  uint32_t size = 0;
  const char* text = nullptr;
};

inline constexpr size_t kMaxStringBytes = 64 << 10;  // recorders truncate longer ones

class BlockEncoder {
 public:
  static constexpr int kDefaultLevel = 1;

  explicit BlockEncoder(int zstd_level = kDefaultLevel) noexcept;
  ~BlockEncoder();
  BlockEncoder(const BlockEncoder&) = delete;
  BlockEncoder& operator=(const BlockEncoder&) = delete;

  // The frame for these rows, valid until the next call; empty if out of memory.
  template <typename Row>
  std::span<const uint8_t> encode(std::span<const Row> rows, uint32_t process,
                                  uint64_t sequence) noexcept {
    const size_t bound = max_encoded_bytes<Row>(rows.size());
    if (!scratch_.reserve(bound) || !raw_.reserve(bound)) return {};
    FrameHeader header;
    header.kind = static_cast<uint16_t>(Table<Row>::kind);
    header.rows = static_cast<uint32_t>(rows.size());
    header.process = process;
    header.sequence = sequence;
    set_time_range(header, rows);
    return seal(header, encode_rows(rows, scratch_.get(), raw_.get()));
  }

  std::span<const uint8_t> encode_strings(std::span<const StringRow> strings, uint32_t process,
                                          uint64_t sequence) noexcept;

 private:
  template <typename Row>
  static void set_time_range(FrameHeader& header, std::span<const Row> rows) noexcept {
    if (rows.empty()) return;
    header.first_ns = header.last_ns = Table<Row>::time(rows.front());
    for (const Row& row : rows) {
      header.first_ns = std::min(header.first_ns, Table<Row>::time(row));
      header.last_ns = std::max(header.last_ns, Table<Row>::time(row));
    }
  }
  // The size of the compressed message; 0: it does not become smaller.
  size_t compress(std::span<const uint8_t> message, std::span<uint8_t> out) noexcept;
  // Completes the header and compresses the first `raw_size` bytes of raw_ after it.
  std::span<const uint8_t> seal(FrameHeader& header, size_t raw_size) noexcept;

  int level_;
  ZSTD_CCtx_s* zstd_ = nullptr;
  PageArray<uint8_t> scratch_;
  PageArray<uint8_t> raw_;
  PageArray<uint8_t> frame_;
};

}  // namespace tidemark
