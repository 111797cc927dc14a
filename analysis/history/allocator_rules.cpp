#include "analysis/history/allocator_rules.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

namespace tidemark {

namespace {

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

size_t interval_of(uint64_t bytes) {
  const uint64_t mib = bytes >> 20;
  return mib == 0 ? 0 : std::min<size_t>(15, static_cast<size_t>(std::bit_width(mib)) - 1);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Calls use(key, value) for each item of "key:value,key:[a:b,c:d]".
template <typename Use>
void for_each_option(std::string_view conf, Use&& use) {
  while (!conf.empty()) {
    const size_t colon = conf.find(':');
    if (colon == std::string_view::npos) return;
    const std::string_view key = trimmed(conf.substr(0, colon));
    std::string_view rest = trimmed(conf.substr(colon + 1));
    const bool list = rest.starts_with('[');
    const size_t end = std::min(rest.size(), rest.find(list ? ']' : ','));
    use(key, trimmed(rest.substr(list ? 1 : 0, end - (list ? 1 : 0))), list);
    rest.remove_prefix(end);
    const size_t comma = rest.find(',');
    conf = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
}

// The list form "1:4,64:2,>:8": an interval keeps its value up to the next one listed; the first
// value fills the smaller intervals too, ">" the rest (torch: parseRoundUpPower2Divisions).
void apply_division_list(std::string_view list, std::array<uint32_t, 16>& divisions) {
  size_t from = 0;
  bool first = true;
  for_each_option(list, [&](std::string_view key, std::string_view value, bool) {
    const auto amount = static_cast<uint32_t>(std::max<int64_t>(0, number(value).value_or(0)));
    if (key == ">") {
      std::fill(divisions.begin() + static_cast<int64_t>(from), divisions.end(), amount);
      return;
    }
    const size_t at =
        interval_of(static_cast<uint64_t>(std::max<int64_t>(0, number(key).value_or(0))) << 20);
    if (first) std::fill(divisions.begin(), divisions.begin() + static_cast<int64_t>(at), amount);
    first = false;
    divisions[at] = amount;
    from = at + 1;
  });
}

}  // namespace

void AllocatorRules::apply_setting(std::string_view key, std::string_view value) {
  constexpr std::string_view kDivisions = "roundup_power2_divisions.";
  if (key == "max_split_size") {
    const int64_t bytes = number(value).value_or(-1);
    max_split_bytes = bytes < 0 ? UINT64_MAX : static_cast<uint64_t>(bytes);
  } else if (key == "expandable_segments") {
    expandable_segments = value == "True";
  } else if (key.starts_with(kDivisions)) {
    const int64_t mib = number(key.substr(kDivisions.size())).value_or(0);
    if (mib <= 0) return;
    roundup_divisions[interval_of(static_cast<uint64_t>(mib) << 20)] =
        static_cast<uint32_t>(std::max<int64_t>(0, number(value).value_or(0)));
  } else if (key == "PYTORCH_CUDA_ALLOC_CONF" || key == "PYTORCH_ALLOC_CONF") {
    apply_conf(value);
  }
}

void AllocatorRules::apply_conf(std::string_view conf) {
  for_each_option(conf, [this](std::string_view key, std::string_view value, bool list) {
    if (key == "max_split_size_mb") {
      const int64_t mib = number(value).value_or(-1);
      if (mib > 0) max_split_bytes = static_cast<uint64_t>(mib) << 20;
    } else if (key == "expandable_segments") {
      expandable_segments = value == "True";
    } else if (key == "roundup_power2_divisions") {
      if (list) {
        apply_division_list(value, roundup_divisions);
      } else {
        roundup_divisions.fill(
            static_cast<uint32_t>(std::max<int64_t>(0, number(value).value_or(0))));
      }
    }
  });
}

uint64_t AllocatorRules::round(uint64_t requested) const {
  if (requested < kMinBlockBytes) return kMinBlockBytes;
  if (requested > (UINT64_MAX >> 1)) return requested;  // not a real request; avoids overflow
  const uint64_t divisions = roundup_divisions[interval_of(requested)];
  if (divisions > (one_division_rounds ? 0 : 1) && requested > kMinBlockBytes * divisions) {
    if (std::has_single_bit(requested)) return requested;
    const uint64_t step = std::bit_floor(requested) >> (std::bit_width(divisions) - 1);
    if (step == 0) return std::bit_ceil(requested);
    return (requested + step - 1) / step * step;
  }
  return (requested + kMinBlockBytes - 1) / kMinBlockBytes * kMinBlockBytes;
}

bool AllocatorRules::splits(uint64_t size, uint64_t available) const {
  const uint64_t remaining = available - size;
  if (size <= kSmallBytes || expandable_segments) return remaining >= kMinBlockBytes;
  return size < max_split_bytes && remaining > kSmallBytes;
}

}  // namespace tidemark
