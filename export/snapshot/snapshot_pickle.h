// Streams a pickle of protocol 4: dictionaries, lists, texts, numbers.
//
// It uses only opcodes that CPython's pickler uses for plain data, so that every reader of PyTorch
// snapshots accepts the file. Texts are written once and referred to afterwards, as are containers
// that the caller marks with remember_next(). Memory: the texts seen so far and a buffer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "export/text_numbers.h"
#include "proto/base/byte_sink.h"
#include "proto/base/result.h"
#include "proto/pickle_opcodes.h"

namespace tidemark {

class PickleWriter {
 public:
  explicit PickleWriter(ByteSink& sink);

  // Lists and dictionaries: begin, items (in a dictionary: key and value in turn), end.
  void begin_list() { begin(pickle_op::kEmptyList); }
  void end_list() { end(); }
  void begin_dict() { begin(pickle_op::kEmptyDict); }
  void end_dict() { end(); }
  // Call before each item of a list or each key of a dictionary: long containers are filled in
  // batches, so that a reader's stack does not grow with the length of the list.
  void item();

  void key(std::string_view name) {
    item();
    text(name);
  }
  void text(std::string_view value);
  void number(int64_t value);
  void unsigned_number(uint64_t value);
  void real(double value);
  void boolean(bool value) { byte(value ? pickle_op::kNewTrue : pickle_op::kNewFalse); }
  void pair(uint64_t first, uint64_t second);

  // Returns a number by which refer() can refer to the container that begins next.
  uint32_t remember_next();
  void refer(uint32_t remembered);

  Status finish();
  uint64_t bytes() const { return flushed_ + buffer_.size(); }

 private:
  struct Open {
    uint8_t closer;
    uint32_t items = 0;
  };

  void byte(uint8_t b) { buffer_.push_back(static_cast<char>(b)); }
  void begin(uint8_t opener);
  void end();
  void little_endian(uint64_t value, size_t bytes);
  void long_number(uint64_t low, bool negative);
  void flush_when_full();

  static constexpr uint32_t kBatch = 1000;
  static constexpr size_t kBufferBytes = 1 << 20;

  ByteSink& sink_;
  std::string buffer_;
  std::vector<Open> open_;
  TextNumbers texts_;
  uint64_t flushed_ = 0;
  uint32_t memo_size_ = 0;
  bool remember_ = false;
  int errno_ = 0;
};

}  // namespace tidemark
