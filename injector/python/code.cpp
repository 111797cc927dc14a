#include "injector/python/code.h"

#include <algorithm>
#include <cstring>

#include "injector/process/utf8.h"
#include "injector/python/memory.h"

namespace tidemark::injector {
namespace {

constexpr size_t kSizeOffset = 16;  // of a bytes object; length of a string
constexpr size_t kBytesData = 32;
constexpr size_t kTextState = 32;
// Bits of the state of a string, the same from 3.9 to 3.14.
constexpr uint32_t kKindShift = 2;
constexpr uint32_t kKindMask = 7;
constexpr uint32_t kCompact = 1u << 5;
constexpr uint32_t kAscii = 1u << 6;

uint32_t character_at(const void* text, size_t data, uint32_t kind, size_t i) {
  switch (kind) {
    case 1:
      return read_at<uint8_t>(text, data + i);
    case 2:
      return read_at<uint16_t>(text, data + 2 * i);
    default:
      return read_at<uint32_t>(text, data + 4 * i);
  }
}

}  // namespace

std::string_view read_python_text(const PythonRuntime& python, const void* text, char* buffer,
                                  size_t capacity) noexcept {
  if (text == nullptr || read_at<const void*>(text, kPythonTypeOffset) != python.text_type)
    return {};
  const auto length = read_at<uint64_t>(text, kSizeOffset);
  const auto state = read_at<uint32_t>(text, kTextState);
  if ((state & kCompact) == 0) return {};  // old-style strings, which the compiler never creates
  if ((state & kAscii) != 0) {
    const size_t size = std::min<size_t>(length, capacity);
    std::memcpy(buffer, static_cast<const uint8_t*>(text) + python.layout.text_data, size);
    return {buffer, size};
  }
  const uint32_t kind = (state >> kKindShift) & kKindMask;
  if (kind != 1 && kind != 2 && kind != 4) return {};
  size_t size = 0;
  for (size_t i = 0; i < length; ++i) {
    const uint32_t c = character_at(text, python.layout.wide_text_data, kind, i);
    const size_t written = put_utf8(c, buffer + size, capacity - size);
    if (written == 0) break;
    size += written;
  }
  return {buffer, size};
}

// Pairs of (bytes of code, signed lines): the line changes after the bytes.
int64_t line_from_lnotab(const uint8_t* table, size_t size, int64_t first_line,
                         uint32_t unit) noexcept {
  int64_t line = first_line;
  uint64_t address = 0;
  for (size_t i = 0; i + 1 < size; i += 2) {
    address += table[i];
    if (address > unit * uint64_t{2}) break;
    line += static_cast<int8_t>(table[i + 1]);
  }
  return line;
}

// Pairs of (bytes of code, signed lines): the line changes before the bytes; -128 has no line.
int64_t line_from_ranges(const uint8_t* table, size_t size, int64_t first_line,
                         uint32_t unit) noexcept {
  int64_t line = first_line;
  uint64_t end = 0;
  for (size_t i = 0; i + 1 < size; i += 2) {
    const auto change = static_cast<int8_t>(table[i + 1]);
    if (change != -128) line += change;
    end += table[i];
    if (unit * uint64_t{2} < end) return change == -128 ? 0 : line;
  }
  return line;
}

// Entries begin with a byte 1cccclll (form, code units - 1); the bytes after it have no high bit.
int64_t line_from_locations(const uint8_t* table, size_t size, int64_t first_line,
                            uint32_t unit) noexcept {
  constexpr uint32_t kOneLine0 = 10;
  constexpr uint32_t kNoColumns = 13;
  constexpr uint32_t kLong = 14;
  constexpr uint32_t kNone = 15;
  int64_t line = first_line;
  uint64_t end = 0;
  for (size_t i = 0; i < size;) {
    const uint32_t form = (table[i] >> 3) & 15;
    end += (table[i] & 7u) + 1;
    size_t at = ++i;
    while (i < size && (table[i] & 0x80) == 0) ++i;
    if (form >= kOneLine0 && form < kNoColumns) {
      line += form - kOneLine0;
    } else if (form == kNoColumns || form == kLong) {
      uint64_t value = 0;  // six bits at a time, lowest first; the lowest bit is the sign
      for (uint32_t shift = 0; at < i && shift < 64; shift += 6) {
        const uint8_t byte = table[at++];
        value |= static_cast<uint64_t>(byte & 0x3f) << shift;
        if ((byte & 0x40) == 0) break;
      }
      const auto magnitude = static_cast<int64_t>(value >> 1);
      line += (value & 1) != 0 ? -magnitude : magnitude;
    }
    if (unit < end) return form == kNone ? 0 : line;
  }
  return line;
}

int64_t python_line(const PythonRuntime& python, const void* code, uint32_t unit) noexcept {
  const PythonLayout& layout = python.layout;
  const auto first_line = read_at<int32_t>(code, layout.code_first_line);
  const auto* const lines = read_at<const uint8_t*>(code, layout.code_lines);
  if (lines == nullptr || read_at<const void*>(lines, kPythonTypeOffset) != python.bytes_type)
    return 0;
  const auto size = read_at<uint64_t>(lines, kSizeOffset);
  switch (layout.lines) {
    case LineTable::kLnotab:
      return line_from_lnotab(lines + kBytesData, size, first_line, unit);
    case LineTable::kRanges:
      return line_from_ranges(lines + kBytesData, size, first_line, unit);
    case LineTable::kLocations:
      return line_from_locations(lines + kBytesData, size, first_line, unit);
  }
  return 0;
}

}  // namespace tidemark::injector
