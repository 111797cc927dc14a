#include "export/safe_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "export/utf8.h"
#include "proto/base/leading_number.h"

namespace tidemark {

namespace {

// Of a valid character.
uint32_t code_point(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xffU >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3fU);
  return code;
}

bool is_unsafe(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) ||  // C0, DEL, C1
         code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) ||  // line separators, embeddings, overrides
         (code >= 0x2066 && code <= 0x2069);    // isolates
}

bool is_plain(char c) {
  return c >= 0x20 && c < 0x7f;
}

std::string visible(uint32_t code) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
  }
}

}  // namespace

std::string safe_text(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (const uint32_t code = code_point(character); is_unsafe(code)) {
      out += visible(code);
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

size_t text_columns(std::string_view text) {
  size_t columns = 0;
  for (; !text.empty(); ++columns) text.remove_prefix(std::max<size_t>(utf8_length(text), 1));
  return columns;
}

std::string shortened(std::string_view text, size_t columns) {
  constexpr size_t kDots = 3;
  if (text_columns(text) <= columns) return std::string(text);
  if (columns <= kDots) return std::string(columns, '.');
  std::string_view rest = text;
  for (size_t i = kDots; i < columns; ++i) {
    rest.remove_prefix(std::max<size_t>(utf8_length(rest), 1));
  }
  return std::string(text.substr(0, text.size() - rest.size())) + "...";
}

bool looks_like_formula(std::string_view cell) {
  const bool is_signed = cell.starts_with('-') || cell.starts_with('+');
  const std::optional<LeadingNumber> number =
      leading_number(cell.substr(cell.starts_with('+') ? 1 : 0));
  if (is_signed && number && number->rest.empty()) return false;
  return !cell.empty() && std::string_view("=+-@\t\r").find(cell.front()) != std::string_view::npos;
}

}  // namespace tidemark
