#include "export/report/html_writer.h"

#include <fmt/format.h>

#include "export/utf8.h"

namespace tidemark {

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : utf8_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // HTML does not allow control characters, but names in a trace may have them.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

void HtmlWriter::element(std::string_view tag, std::string_view content, std::string_view kind) {
  text_ += kind.empty() ? fmt::format("<{}>", tag) : fmt::format("<{} class=\"{}\">", tag, kind);
  text(content);
  text_ += fmt::format("</{}>", tag);
}

}  // namespace tidemark
