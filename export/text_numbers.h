// Numbers of texts, found by a view of the text without allocating. (The standard library of GCC 10 can
// look up a std::string only by another one.)
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tidemark {

class TextNumbers {
 public:
  // Null if the text has no number.
  const uint32_t* find(std::string_view text) const {
    const auto known = numbers_.find(text);
    return known == numbers_.end() ? nullptr : &known->second;
  }
  void add(std::string_view text, uint32_t number) {
    numbers_.emplace(texts_.emplace_back(text), number);
  }
  size_t size() const { return numbers_.size(); }

 private:
  std::deque<std::string> texts_;  // never moves a text
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

}  // namespace tidemark
