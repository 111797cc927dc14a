#include "cli/duration_option.h"

#include <charconv>
#include <string_view>

namespace tidemark::cli {

Result<std::chrono::milliseconds> parse_duration(const std::string& option,
                                                 const std::string& text) {
  constexpr double kLongestMs = 1e12;
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double scale = 0;
  if (unit == "ms") scale = 1;
  if (unit == "s" || unit.empty()) scale = 1000;
  if (unit == "m" || unit == "min") scale = 60'000;
  if (unit == "h") scale = 3'600'000;
  if (error != std::errc() || scale == 0 || amount <= 0 || amount * scale > kLongestMs) {
    return Error{option + " takes a time such as 60s, 5m or 2h, not '" + text + "'"};
  }
  return std::chrono::milliseconds(static_cast<int64_t>(amount * scale));
}

}  // namespace tidemark::cli
