// Writes JSON text: objects, arrays, numbers, strings. The caller gives names and values in order;
// the writer adds commas, escapes and indentation. Bytes that are not UTF-8 become U+FFFD, so that
// the output is always valid.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark {

class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  void key(std::string_view name);

  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool b);
  void value(double number);
  void null();
  template <std::integral T>
  requires(!std::same_as<T, bool>) void value(T number) {
    separate();
    text_ += std::to_string(number);
  }

  template <typename T>
  void field(std::string_view name, const T& v) {
    key(name);
    value(v);
  }

  // The text so far, with a newline at its end.
  std::string take() &&;

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  int depth_ = 0;
  bool first_ = true;
  bool after_key_ = false;
};

}  // namespace tidemark
