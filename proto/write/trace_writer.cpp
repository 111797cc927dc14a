#include "proto/write/trace_writer.h"

#include <algorithm>
#include <cstring>

namespace tidemark {

namespace {
template <typename T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}
}  // namespace

TraceWriter::TraceWriter(ByteSink& sink, int zstd_level, uint32_t generation) noexcept
    : sink_(sink), encoder_(zstd_level) {
  FileHeader header;
  header.generation = generation;
  put(bytes_of(header));
}

void TraceWriter::continue_after(TraceWriter& other) noexcept {
  index_.swap(other.index_);
  index_size_ = other.index_size_;
  index_complete_ = other.index_complete_;
  sequence_ = other.sequence_;
  offset_ = other.offset_;
  rows_written_ = other.rows_written_;
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::begin_process(uint32_t process, uint64_t sequence) noexcept {
  flush();
  process_ = process;
  sequence_ = sequence;
}

void TraceWriter::append_string(uint32_t id, std::string_view text) noexcept {
  text = text.substr(0, kMaxStringBytes);
  if (!strings_.reserve(kStringRows) || !string_bytes_.reserve(kStringBytes)) fail(ENOMEM);
  if (string_count_ == kStringRows || string_size_ + text.size() > kStringBytes) flush_strings();
  if (failed()) {
    ++rows_lost_;
    return;
  }
  char* at = string_bytes_.get() + string_size_;
  std::copy(text.begin(), text.end(), at);
  strings_[string_count_++] = {id, static_cast<uint32_t>(text.size()), at};
  string_size_ += text.size();
}

void TraceWriter::flush_strings() noexcept {
  if (string_count_ == 0) return;
  const std::span<const StringRow> strings(strings_.get(), string_count_);
  const uint32_t rows = std::exchange(string_count_, 0);
  string_size_ = 0;
  put_frame(encoder_.encode_strings(strings, process_, sequence_), rows);
}

void TraceWriter::flush() noexcept {
  flush_strings();
  std::apply([this](auto&... buffer) { (flush_buffer(buffer), ...); }, buffers_);
}

void TraceWriter::copy_frame(const FrameHeader& header, std::span<const uint8_t> payload,
                             uint32_t process) noexcept {
  FrameHeader copy = header;
  copy.process = process;
  copy.header_crc = header_crc(copy);
  sequence_ = std::max(sequence_, copy.sequence + 1);
  note_in_index(copy);
  put(bytes_of(copy));
  put(payload);
  (failed() ? rows_lost_ : rows_written_) += copy.rows;
}

void TraceWriter::put_frame(std::span<const uint8_t> frame, uint32_t rows) noexcept {
  if (frame.empty()) {
    fail(ENOMEM);
  } else {
    FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof header);
    note_in_index(header);
    put(frame);
    ++sequence_;
  }
  (failed() ? rows_lost_ : rows_written_) += rows;
}

void TraceWriter::put(std::span<const uint8_t> bytes) noexcept {
  if (failed()) return;
  if (!sink_.write(bytes)) return fail(errno != 0 ? errno : EIO);
  offset_ += bytes.size();
}

void TraceWriter::note_in_index(const FrameHeader& header) noexcept {
  if (index_size_ == index_.capacity()) {
    const size_t capacity = std::max<size_t>(256, index_.capacity() * 2);
    if (capacity > kMaxFrameRows || !index_.reserve(capacity)) {
      index_complete_ = false;  // readers will scan the file
      return;
    }
  }
  index_[index_size_++] = {offset_,     header.stored_bytes, header.first_ns, header.last_ns,
                           header.rows, header.process,      header.kind};
}

bool TraceWriter::finish() noexcept {
  flush();
  if (index_complete_) {
    const Trailer trailer{offset_, crc32(&offset_, sizeof offset_)};
    const auto frame =
        encoder_.encode(std::span<const IndexEntry>(index_.get(), index_size_), 0, 0);
    if (frame.empty()) fail(ENOMEM);
    put(frame);
    put(bytes_of(trailer));
  }
  return !failed() && rows_lost_ == 0;
}

void TraceWriter::fail(int error_number) noexcept {
  if (errno_ == 0) errno_ = error_number;
}

}  // namespace tidemark
