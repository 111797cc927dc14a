// The number that a text begins with: std::from_chars for doubles, which GCC 10 does not have.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace tidemark {

struct LeadingNumber {
  double value;
  std::string_view rest;  // what follows it
};

inline std::optional<LeadingNumber> leading_number(std::string_view text) noexcept {
  char digits[64] = {};  // strtod needs a zero at the end
  const size_t size =
      std::min(text.find_first_not_of("0123456789.eE+-"), std::min(text.size(), sizeof digits - 1));
  if (size == 0 || text.front() == '+') return std::nullopt;
  std::memcpy(digits, text.data(), size);
  char* end = digits;
  const double value = std::strtod(digits, &end);
  if (end == digits) return std::nullopt;
  return LeadingNumber{value, text.substr(static_cast<size_t>(end - digits))};
}

}  // namespace tidemark
