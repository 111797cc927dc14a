#include "export/snapshot/snapshot_pickle.h"

#include <bit>
#include <cerrno>
#include <cstring>

#include "export/utf8.h"
#include "proto/base/bits_as.h"

namespace tidemark {

namespace {

constexpr size_t kLongestSharedText = 4096;

}  // namespace

PickleWriter::PickleWriter(ByteSink& sink) : sink_(sink) {
  buffer_.reserve(kBufferBytes + (1 << 16));
  byte(pickle_op::kProto);
  byte(4);
}

void PickleWriter::flush_when_full() {
  if (buffer_.size() < kBufferBytes) return;
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(buffer_.data()),
                                       buffer_.size());
  if (errno_ == 0 && !sink_.write(bytes)) errno_ = errno;
  flushed_ += buffer_.size();
  buffer_.clear();
}

void PickleWriter::begin(uint8_t opener) {
  byte(opener);
  if (remember_) {
    byte(pickle_op::kMemoize);
    ++memo_size_;
    remember_ = false;
  }
  open_.push_back({opener == pickle_op::kEmptyList ? pickle_op::kAppends : pickle_op::kSetItems});
}

void PickleWriter::end() {
  if (open_.back().items != 0) byte(open_.back().closer);
  open_.pop_back();
  flush_when_full();
}

void PickleWriter::item() {
  Open& open = open_.back();
  if (open.items == kBatch) {
    byte(open.closer);
    open.items = 0;
  }
  if (open.items++ == 0) byte(pickle_op::kMark);
}

void PickleWriter::little_endian(uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) byte(static_cast<uint8_t>(value >> (8 * i)));
}

void PickleWriter::text(std::string_view value) {
  const bool shared = value.size() <= kLongestSharedText;
  if (shared) {
    if (const uint32_t* known = texts_.find(value); known != nullptr) return refer(*known);
    texts_.add(value, memo_size_);
  }
  const std::string valid = utf8_text(value);
  if (valid.size() < 256) {
    byte(pickle_op::kShortBinUnicode);
    byte(static_cast<uint8_t>(valid.size()));
  } else {
    byte(pickle_op::kBinUnicode);
    little_endian(valid.size(), 4);
  }
  buffer_ += valid;
  if (shared) {
    byte(pickle_op::kMemoize);
    ++memo_size_;
  }
}

void PickleWriter::number(int64_t value) {
  if (value >= 0) {
    unsigned_number(static_cast<uint64_t>(value));
  } else if (value >= INT32_MIN) {
    byte(pickle_op::kBinInt);
    little_endian(static_cast<uint64_t>(value), 4);
  } else {
    long_number(static_cast<uint64_t>(value), true);
  }
}

void PickleWriter::unsigned_number(uint64_t value) {
  if (value < 0x100) {
    byte(pickle_op::kBinInt1);
    little_endian(value, 1);
  } else if (value < 0x10000) {
    byte(pickle_op::kBinInt2);
    little_endian(value, 2);
  } else if (value <= INT32_MAX) {
    byte(pickle_op::kBinInt);
    little_endian(value, 4);
  } else {
    long_number(value, false);
  }
}

// LONG1: two's complement in as few bytes as keep the sign.
void PickleWriter::long_number(uint64_t low, bool negative) {
  const uint64_t magnitude = negative ? ~low : low;
  const auto bits = static_cast<size_t>(std::bit_width(magnitude)) + 1;
  const size_t bytes = (bits + 7) / 8;
  byte(pickle_op::kLong1);
  byte(static_cast<uint8_t>(bytes));
  little_endian(low, std::min<size_t>(bytes, 8));
  if (bytes == 9) byte(negative ? 0xff : 0);
}

void PickleWriter::real(double value) {
  byte(pickle_op::kBinFloat);
  const auto bits = bits_as<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) byte(static_cast<uint8_t>(bits >> shift));
}

void PickleWriter::pair(uint64_t first, uint64_t second) {
  unsigned_number(first);
  unsigned_number(second);
  byte(pickle_op::kTuple2);
}

uint32_t PickleWriter::remember_next() {
  remember_ = true;
  return memo_size_;
}

void PickleWriter::refer(uint32_t remembered) {
  byte(remembered < 0x100 ? pickle_op::kBinGet : pickle_op::kLongBinGet);
  little_endian(remembered, remembered < 0x100 ? 1 : 4);
}

Status PickleWriter::finish() {
  byte(pickle_op::kStop);
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(buffer_.data()),
                                       buffer_.size());
  if (errno_ == 0 && !sink_.write(bytes)) errno_ = errno;
  flushed_ += buffer_.size();
  buffer_.clear();
  if (errno_ != 0) return Error{std::string("cannot write: ") + std::strerror(errno_)};
  return {};
}

}  // namespace tidemark
