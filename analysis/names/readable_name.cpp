#include "analysis/names/readable_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace tidemark {

namespace {

constexpr size_t kLongestArguments = 40;
constexpr size_t kLongestName = 200;
constexpr std::string_view kLeftOut = "\u2026";
constexpr std::string_view kNameless = "(anonymous namespace)::";

// The position after the bracket that closes the one at `at`; the end when none does.
size_t behind_bracket(std::string_view text, size_t at) {
  size_t depth = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    const bool arrow = c == '>' && i > 0 && text[i - 1] == '-';
    if (c == '(' || c == '<' || c == '{' || c == '[') ++depth;
    if ((c == ')' || (c == '>' && !arrow) || c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return text.size();
}

bool letter_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The length of the operator's name at `at`, 0 when there is none: the characters of "operator<<"
// and "operator()" are not brackets.
size_t operator_length(std::string_view text, size_t at) {
  constexpr std::string_view kWord = "operator";
  if (text.substr(at, kWord.size()) != kWord) return 0;
  if (at > 0 && letter_of_name(text[at - 1])) return 0;
  size_t end = at + kWord.size();
  if (end < text.size() && letter_of_name(text[end])) return 0;
  if (text.substr(end, 2) == "()") return end + 2 - at;
  if (end < text.size() && text[end] == ' ') {  // new, delete, a conversion
    const size_t bracket = text.find('(', end);
    return (bracket == std::string_view::npos ? text.size() : bracket) - at;
  }
  while (end < text.size() &&
         std::string_view("+-*/%^&|~!=<>,[]").find(text[end]) != std::string_view::npos) {
    ++end;
  }
  // In "operator< <int>" a space keeps the arguments apart.
  if (end < text.size() && text[end] == ' ') ++end;
  return end - at;
}

// Removes parameters, long template arguments and notes in square brackets.
std::string without_brackets(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at, kNameless.size()) == kNameless) {
      at += kNameless.size();
    } else if (const size_t length = operator_length(text, at); length != 0) {
      out += text.substr(at, length);
      at += length;
    } else if (text[at] == '(' || text[at] == '[') {
      at = behind_bracket(text, at);
    } else if (text[at] == '<') {
      const size_t end = behind_bracket(text, at);
      if (end - at > kLongestArguments) {
        out.append("<").append(kLeftOut).append(">");
      } else {
        out += text.substr(at, end - at);
      }
      at = end;
    } else {
      out += text[at++];
    }
  }
  return out;
}

// The position after the last space that is not inside brackets or an operator's name.
size_t behind_result(std::string_view text) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    if (const size_t length = operator_length(text, at); length != 0) {
      at += length;
    } else if (text[at] == '(' || text[at] == '<' || text[at] == '{') {
      at = behind_bracket(text, at);
    } else {
      if (text[at] == ' ') begin = at + 1;
      ++at;
    }
  }
  return begin;
}

void cut_end(std::string& text, std::string_view end) {
  if (text.ends_with(end)) text.resize(text.size() - end.size());
}

}  // namespace

std::string short_function(std::string_view demangled) {
  std::string text = without_brackets(demangled);
  while (text.ends_with(' ')) text.pop_back();
  for (const std::string_view qualifier : {" &&", " &", " volatile", " const"}) {
    cut_end(text, qualifier);
  }
  while (text.ends_with(' ')) text.pop_back();
  text.erase(0, behind_result(text));
  if (text.size() <= kLongestName) return text;
  // Keep the end, which is the most specific part; whole characters only.
  size_t from = text.size() - kLongestName;
  while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;
  return std::string(kLeftOut) + text.substr(from);
}

std::string readable_name(const std::string& mangled) {
  if (!mangled.starts_with("_Z")) return mangled.substr(0, kLongestName);
  // Parts that the compiler split off ("foo.cold", "foo.isra.0") get the name of the whole
  // function.
  const std::string whole = mangled.substr(0, mangled.find('.'));
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(whole.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || plain == nullptr) return mangled.substr(0, kLongestName);
  std::string text = short_function(plain.get());
  return text.empty() ? mangled.substr(0, kLongestName) : text;
}

}  // namespace tidemark
