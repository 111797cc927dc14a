// Writes HTML text: elements with escaped contents. Bytes that are not UTF-8 become U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

std::string html_escaped(std::string_view text);

class HtmlWriter {
 public:
  void raw(std::string_view markup) { text_ += markup; }
  void text(std::string_view content) { text_ += html_escaped(content); }
  // <tag class="kind">content</tag>
  void element(std::string_view tag, std::string_view content, std::string_view kind = {});
  // Begins a table with the titles of its columns.
  template <typename... Titles>
  void table(const Titles&... titles) {
    raw("<table>\n<tr>");
    (element("th", titles), ...);
    raw("</tr>\n");
  }
  // A row of a table; cells are text.
  template <typename... Cells>
  void row(const Cells&... cells) {
    raw("<tr>");
    (element("td", cells), ...);
    raw("</tr>\n");
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace tidemark
