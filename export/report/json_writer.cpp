#include "export/report/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace tidemark {

namespace {

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and code points past U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!first_) text_ += ',';
  if (depth_ > 0) text_ += '\n' + std::string(static_cast<size_t>(depth_), ' ');
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  --depth_;
  if (!first_) text_ += '\n' + std::string(static_cast<size_t>(depth_), ' ');
  text_ += bracket;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ": ";
  after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
}

void JsonWriter::value(bool b) {
  separate();
  text_ += b ? "true" : "false";
}

void JsonWriter::value(double number) {
  separate();
  text_ += std::isfinite(number) ? fmt::format("{}", number) : "null";
}

void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = utf8_length(text);
    if (length == 0) {
      text_ += "\\ufffd";
      text.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text_ += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  text_ += '"';
}

std::string JsonWriter::take() && {
  text_ += '\n';
  return std::move(text_);
}

}  // namespace tidemark
