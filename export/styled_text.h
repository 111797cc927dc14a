// Lines of text with colours, safe for a terminal: text from a file reaches the output only through
// safe_text(), and only our own colours are added to it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "export/safe_text.h"

namespace tidemark {

class StyledText {
 public:
  StyledText(std::string_view text) : text_(safe_text(text)) {}
  StyledText(const std::string& text) : StyledText(std::string_view(text)) {}
  StyledText(const char* text) : StyledText(std::string_view(text)) {}

  // With an SGR code such as "1;31"; an empty code leaves it as it is.
  static StyledText painted(std::string_view text, std::string_view code) {
    StyledText styled(text);
    if (!code.empty()) styled.text_ = fmt::format("\x1b[{}m{}\x1b[0m", code, styled.text_);
    return styled;
  }

  const std::string& text() const { return text_; }
  StyledText& operator+=(const StyledText& more) {
    text_ += more.text_;
    return *this;
  }
  friend StyledText operator+(StyledText a, const StyledText& b) { return a += b; }

 private:
  template <typename... Args>
  friend StyledText styled(std::string_view format, const Args&... args);

  std::string text_;
};

template <typename T>
auto safe_argument(const T& value) {
  if constexpr (std::is_same_v<T, StyledText>) {
    return value.text();
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return safe_text(value);
  } else {
    return value;
  }
}

// fmt::format() in which texts are made safe and styled texts keep their colours.
template <typename... Args>
StyledText styled(std::string_view format, const Args&... args) {
  StyledText text("");
  // fmt 7 has no fmt::runtime(), and later versions take only lvalues.
  const auto formatted = [&](const auto&... safe) {
    return fmt::vformat(format, fmt::make_format_args(safe...));
  };
  text.text_ = formatted(safe_argument(args)...);
  return text;
}

// The base of an output that is written line by line, with colours or without.
class StyledLines {
 protected:
  explicit StyledLines(bool colour) : colour_(colour) {}
  ~StyledLines() = default;

  StyledText paint(std::string_view text, std::string_view code) const {
    return StyledText::painted(text, colour_ ? code : "");
  }
  StyledText bold(std::string_view text) const { return paint(text, "1"); }
  StyledText dim(std::string_view text) const { return paint(text, "2"); }
  StyledText red(std::string_view text) const { return paint(text, "1;31"); }
  StyledText yellow(std::string_view text) const { return paint(text, "33"); }

  void line(const StyledText& text = "") {
    out_ += text.text();
    out_ += '\n';
  }
  void device_title(std::string_view process, int64_t device, std::string_view card) {
    std::string title = fmt::format("cuda:{}", device);
    if (!card.empty()) title += fmt::format("  {}", card);
    if (!process.empty()) title = fmt::format("{}  {}", process, title);
    line();
    line(bold(title));
  }

  std::string out_;

 private:
  bool colour_;
};

}  // namespace tidemark
