// Writes a trace: buffers rows per table, closes a block when it is full, and ends with an index.
//
// Owned by one thread. It throws nothing and allocates only when a table is used for the first time
// and when a block is closed for the first time. After the first failure (memory, disk) `failed()`
// is true, `error_number()` has its errno, and rows are only counted in `rows_lost()`.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "proto/base/byte_sink.h"
#include "proto/write/block_encoder.h"

namespace tidemark {

class TraceWriter {
 public:
  explicit TraceWriter(ByteSink& sink, int zstd_level = BlockEncoder::kDefaultLevel,
                       uint32_t generation = 0) noexcept;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  ~TraceWriter();

  // Rows appended from now on belong to this process of the file (from 1). Closes open blocks.
  // `sequence` is the number of its next frame, for a process that already has frames.
  void begin_process(uint32_t process, uint64_t sequence = 0) noexcept;

  template <typename Row>
  void append(const Row& row) noexcept {
    auto& buffer = std::get<Buffer<Row>>(buffers_);
    if (buffer.size == buffer.rows.capacity()) [[unlikely]] {
      if (!make_room(buffer)) return;
    }
    buffer.rows[buffer.size++] = row;
  }

  // Text longer than kMaxStringBytes is truncated.
  void append_string(uint32_t id, std::string_view text) noexcept;

  // Closes every open block, so that what was appended is in the sink.
  void flush() noexcept;

  // Copies a frame encoded elsewhere (from another file, say) unchanged except for its process.
  void copy_frame(const FrameHeader& header, std::span<const uint8_t> payload,
                  uint32_t process) noexcept;

  // Goes on behind what `other` has written: from now on this writer's sink has that content. Both
  // must be flushed; `other` is not used any more.
  void continue_after(TraceWriter& other) noexcept;

  // The frames written so far.
  std::span<const IndexEntry> index() const noexcept { return {index_.get(), index_size_}; }
  bool index_complete() const noexcept { return index_complete_; }

  // Flushes, writes index and trailer. True if everything ever appended reached the sink.
  bool finish() noexcept;

  bool failed() const noexcept { return errno_ != 0; }
  int error_number() const noexcept { return errno_; }
  uint64_t rows_written() const noexcept { return rows_written_; }
  uint64_t rows_lost() const noexcept { return rows_lost_; }
  uint64_t bytes_written() const noexcept { return offset_; }
  uint64_t next_sequence() const noexcept { return sequence_; }

 private:
  template <typename Row>
  struct Buffer {
    static constexpr uint32_t kCapacity = Table<Row>::block_rows;
    PageArray<Row> rows;
    uint32_t size = 0;
  };
  template <typename List>
  struct BuffersOf;
  template <typename... Rows>
  struct BuffersOf<RowList<Rows...>> {
    using type = std::tuple<Buffer<Rows>...>;
  };

  template <typename Row>
  bool make_room(Buffer<Row>& buffer) noexcept {
    if (buffer.rows.empty()) {
      if (!buffer.rows.reserve(Buffer<Row>::kCapacity)) fail(ENOMEM);
    } else {
      flush_buffer(buffer);
    }
    if (failed()) ++rows_lost_;
    return !failed();
  }

  template <typename Row>
  void flush_buffer(Buffer<Row>& buffer) noexcept {
    if (buffer.size == 0) return;
    const std::span<const Row> rows(buffer.rows.get(), buffer.size);
    const uint32_t buffer_rows = std::exchange(buffer.size, 0);
    put_frame(encoder_.encode(rows, process_, sequence_), buffer_rows);
  }

  void flush_strings() noexcept;
  void put_frame(std::span<const uint8_t> frame, uint32_t rows) noexcept;
  void put(std::span<const uint8_t> bytes) noexcept;
  void note_in_index(const FrameHeader& header) noexcept;
  void fail(int error_number) noexcept;

  ByteSink& sink_;
  BlockEncoder encoder_;
  BuffersOf<RecordedRows>::type buffers_;

  static constexpr uint32_t kStringRows = 4096;
  static constexpr size_t kStringBytes = 1 << 20;
  PageArray<StringRow> strings_;
  PageArray<char> string_bytes_;
  uint32_t string_count_ = 0;
  size_t string_size_ = 0;

  PageArray<IndexEntry> index_;
  uint32_t index_size_ = 0;
  bool index_complete_ = true;

  uint32_t process_ = 1;
  uint64_t sequence_ = 0;
  uint64_t offset_ = 0;
  uint64_t rows_written_ = 0;
  uint64_t rows_lost_ = 0;
  int errno_ = 0;
};

}  // namespace tidemark
