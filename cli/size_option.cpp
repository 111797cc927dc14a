#include "cli/size_option.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

namespace tidemark::cli {

Result<uint64_t> parse_size(const std::string& option, const std::string& text) {
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  std::string unit(end, static_cast<size_t>(text.data() + text.size() - end));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kPrefixes = "kmgt";
  double scale = unit.empty() || unit == "b" ? 1 : 0;
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    const std::string prefix(1, kPrefixes[i]);
    if (unit == prefix || unit == prefix + "b" || unit == prefix + "ib") {
      scale = static_cast<double>(uint64_t{1} << (10 * (i + 1)));
    }
  }
  if (error != std::errc() || scale == 0 || amount < 0 || amount * scale > 1e18) {
    return Error{option + " takes a size such as 40GiB or 512M, not '" + text + "'"};
  }
  return static_cast<uint64_t>(amount * scale);
}

}  // namespace tidemark::cli
