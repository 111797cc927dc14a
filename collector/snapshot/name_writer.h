// Assigns ids to strings, frames, stacks and pools, and writes each of them once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "proto/base/address_table.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

class NameWriter {
 public:
  explicit NameWriter(TraceWriter& writer) : writer_(writer) {}

  // 0 for an empty text.
  uint32_t string(std::string_view text);
  // Ignores the id of the row.
  uint32_t frame(Frame frame);
  // The stack `parent` with one more innermost frame; parent 0 begins a stack.
  uint32_t stack(uint32_t parent, uint32_t frame);
  // 0 for the default pool (0, 0).
  uint32_t pool(uint64_t first, uint64_t second);

 private:
  TraceWriter& writer_;
  std::deque<std::string> texts_;  // what the keys of strings_ point to
  std::unordered_map<std::string_view, uint32_t> strings_;
  std::unordered_map<std::string, uint32_t> frames_;  // by the bytes of the row
  AddressTable stacks_;  // by parent << 32 | frame
  std::unordered_map<std::string, uint32_t> pools_;
};

}  // namespace tidemark
