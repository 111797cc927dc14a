// Sizes and durations as people write them: a number directly followed by its unit.
//
// CLI11's AsSizeValue does not fit: it takes no fractions ("1.5g").
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tidemark {

// "40GiB", "40GB", "512M", "1.5g", "1073741824", in any case: KiB, MiB, GiB, TiB and K, M, G, T are
// powers of 1024, kB, MB, GB and TB powers of 1000. At most 10^18 bytes.
std::optional<uint64_t> parse_bytes(std::string_view text) noexcept;

// "300us", "20ms", "1.5s", "1.5", "5m", "5min", "2h": a number alone is seconds. Nanoseconds, at
// most 2 * 10^18 (63 years), so that a start time since the epoch can be added.
std::optional<int64_t> parse_duration_ns(std::string_view text) noexcept;

// How much a recording keeps: "10m", "512MiB", or both, "10m,512MiB". 0: no limit of that kind. A
// number alone is ambiguous and not accepted.
struct KeepLimits {
  uint64_t bytes = 0;
  int64_t ns = 0;
};
std::optional<KeepLimits> parse_keep(std::string_view text) noexcept;

// Less would be little more than the state that a window begins with, written again and again.
inline constexpr uint64_t kLeastKeepBytes = 1 << 20;
inline constexpr int64_t kLeastKeepNs = 1'000'000'000;
inline constexpr char kLeastKeepText[] = "1s or 1MiB";
inline bool keeps_enough(const KeepLimits& limits) noexcept {
  return (limits.bytes == 0 || limits.bytes >= kLeastKeepBytes) &&
         (limits.ns == 0 || limits.ns >= kLeastKeepNs);
}

// A share of the time that recording may cost, in millionths: "2%", "0.5%", more than nothing and
// at most 100 %; "off" is 0: no limit. A number alone is ambiguous and not accepted.
std::optional<uint32_t> parse_overhead(std::string_view text) noexcept;

}  // namespace tidemark
