#include "viewer/model/kernel_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tidemark::view {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string demangled(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && plain != nullptr ? std::string(plain.get()) : std::string(name);
}

// Of an operator() in which a lambda is.
constexpr std::string_view kConst = " const";

// Reads a demangled name once, from left to right.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '(' || c == '[' || c == '{') {
        read_bracket();
      } else if (c == '\'') {
        read_quoted();
      } else if (c == '<' && !out_.ends_with("operator")) {
        ++depth_;
        put(c);
      } else if (c == '>' && depth_ > 0) {
        while (out_.ends_with(' ')) out_.pop_back();
        --depth_;
        put(c);
      } else if (c == ' ' && depth_ == 0) {
        // Before the name is its result; after it are qualifiers.
        if (out_.find('<') == std::string::npos) out_.clear();
        ++at_;
      } else if (c == ':' && depth_ > 0 && text_.substr(at_, 2) == "::") {
        read_scope();
      } else if (at_ > 0 && text_[at_ - 1] == ')' && text_.substr(at_).starts_with(kConst)) {
        at_ += kConst.size();
      } else {
        put(c);
      }
    }
    return out_;
  }

 private:
  void put(char c) {
    // "1ul" is a 1.
    const bool suffix = (c == 'u' || c == 'l') && depth_ > 0 && !out_.empty() &&
                        out_.back() >= '0' && out_.back() <= '9' && !in_word();
    if (!suffix) out_ += c;
    ++at_;
  }
  // Whether the digits at the end belong to an identifier.
  bool in_word() const {
    size_t i = out_.size();
    while (i > 0 && out_[i - 1] >= '0' && out_[i - 1] <= '9') --i;
    return i > 0 && is_letter(out_[i - 1]);
  }
  // Namespaces are dropped. What a lambda is in tells it from others: the function, or the class
  // whose operator() it is.
  void read_scope() {
    constexpr std::string_view kCall = "::operator()";
    if (text_.substr(at_).starts_with(kCall)) {
      at_ += kCall.size();
    } else if (text_.substr(at_).starts_with("::{lambda") ||
               text_.substr(at_).starts_with("::'lambda")) {
      at_ += 2;
      if (after_lambda()) return;
      drop_result();
      out_ += "::";
    } else {
      drop_qualifier();
    }
  }
  // "<4, void g<int>": libc++ writes the result of a function that a lambda is in, libstdc++ does not.
  void drop_result() {
    size_t name = std::string::npos;
    size_t i = out_.size();
    for (int open = 0; i > 0; --i) {
      const char c = out_[i - 1];
      if (c == '>') ++open;
      if (c == '<' && --open < 0) break;
      if (c == ',' && open == 0) break;
      if (c == ' ' && open == 0 && name == std::string::npos) name = i;
    }
    if (name == std::string::npos) return;
    if (i > 0 && out_[i - 1] == ',') ++i;  // and its space
    out_.erase(i, name - i);
  }
  // "lambda#3".
  bool after_lambda() const {
    const size_t end = out_.find_last_not_of("0123456789");
    return end != std::string::npos && end + 1 < out_.size() && out_[end] == '#';
  }
  // "std::array": the word before the colons goes, with its own arguments.
  void drop_qualifier() {
    at_ += 2;
    if (out_.ends_with('>')) {
      for (int open = 0; !out_.empty();) {
        if (out_.back() == '>') ++open;
        const bool last = out_.back() == '<' && --open == 0;
        out_.pop_back();
        if (last) break;
      }
    }
    while (!out_.empty() && is_letter(out_.back())) out_.pop_back();
  }
  // Parameters and notes are dropped. Lambdas of one function differ in their numbers: "lambda#3#7"
  // is the seventh in its third.
  void read_bracket() {
    const size_t begin = at_;
    int open = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '(' || c == '[' || c == '{') ++open;
      if ((c == ')' || c == ']' || c == '}') && --open == 0) break;
    }
    if (at_ < text_.size()) ++at_;
    const std::string_view inside = text_.substr(begin, at_ - begin);
    if (inside.starts_with("(anonymous namespace)")) {
      if (text_.substr(at_, 2) == "::") at_ += 2;
    } else if (inside.starts_with("{lambda")) {
      const size_t number = inside.rfind('#');
      if (!after_lambda()) out_ += "lambda";
      if (number != std::string_view::npos)
        out_ += inside.substr(number, inside.size() - number - 1);
    }
  }
  // libc++ writes {lambda()#1}, {lambda()#2}, {lambda()#3} as 'lambda'(), 'lambda0'(), 'lambda1'().
  void read_quoted() {
    constexpr std::string_view kLambda = "'lambda";
    const size_t begin = at_;
    at_ = std::min(text_.find('\'', begin + 1), text_.size() - 1) + 1;
    const std::string_view inside = text_.substr(begin, at_ - begin);
    if (!inside.starts_with(kLambda)) return;
    uint32_t number = 0;
    const char* const digits = inside.data() + kLambda.size();
    const bool first = std::from_chars(digits, inside.data() + inside.size(), number).ec != std::errc();
    if (!after_lambda()) out_ += "lambda";
    out_ += '#' + std::to_string(first ? uint64_t{1} : uint64_t{number} + 2);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

std::string kernel_name(std::string_view name) {
  if (name.empty()) return "(no name)";
  const std::string whole = demangled(name);
  std::string text = Reader(whole).run();
  return text.empty() ? std::string(name) : text;
}

}  // namespace tidemark::view
