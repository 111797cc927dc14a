#include "proto/base/units.h"

#include <cmath>
#include <span>

#include "proto/base/leading_number.h"

namespace tidemark {

namespace {

struct Unit {
  std::string_view name;  // in lower case
  double scale;
};

constexpr double kKib = 1024;
constexpr double kMib = 1024 * kKib;
constexpr double kGib = 1024 * kMib;
constexpr double kTib = 1024 * kGib;
constexpr Unit kByteUnits[] = {{"", 1},       {"b", 1},     {"k", kKib},   {"kb", 1e3},
                               {"kib", kKib}, {"m", kMib},  {"mb", 1e6},   {"mib", kMib},
                               {"g", kGib},   {"gb", 1e9},  {"gib", kGib}, {"t", kTib},
                               {"tb", 1e12},  {"tib", kTib}};
constexpr double kMostBytes = 1e18;

constexpr Unit kTimeUnits[] = {{"ns", 1},  {"us", 1e3}, {"ms", 1e6},   {"", 1e9},
                               {"s", 1e9}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
constexpr double kMostNs = 2e18;
constexpr Unit kShareUnits[] = {{"%", 1e4}, {" %", 1e4}};
constexpr double kMostMillionths = 1e6;

bool same_but_for_case(std::string_view text, std::string_view lower) noexcept {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
  }
  return true;
}

std::optional<double> parse(std::string_view text, std::span<const Unit> units, bool any_case,
                            double most) noexcept {
  const std::optional<LeadingNumber> amount = leading_number(text);
  if (!amount) return std::nullopt;
  const std::string_view name = amount->rest;
  for (const Unit& unit : units) {
    if (!(any_case ? same_but_for_case(name, unit.name) : name == unit.name)) continue;
    const double value = amount->value * unit.scale;
    if (value >= 0 && value <= most) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) noexcept {
  const std::optional<double> bytes = parse(text, kByteUnits, true, kMostBytes);
  if (!bytes) return std::nullopt;
  return static_cast<uint64_t>(std::llround(*bytes));
}

std::optional<int64_t> parse_duration_ns(std::string_view text) noexcept {
  const std::optional<double> ns = parse(text, kTimeUnits, false, kMostNs);
  if (!ns) return std::nullopt;
  return static_cast<int64_t>(*ns);
}

std::optional<KeepLimits> parse_keep(std::string_view text) noexcept {
  KeepLimits limits;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const bool has_unit = !part.empty() && (part.back() < '0' || part.back() > '9');
    const std::optional<int64_t> ns = has_unit ? parse_duration_ns(part) : std::nullopt;
    const std::optional<uint64_t> bytes = has_unit && !ns ? parse_bytes(part) : std::nullopt;
    if (ns && *ns > 0 && limits.ns == 0) {
      limits.ns = *ns;
    } else if (bytes && *bytes > 0 && limits.bytes == 0) {
      limits.bytes = *bytes;
    } else {
      return std::nullopt;
    }
  }
  return limits.bytes != 0 || limits.ns != 0 ? std::optional(limits) : std::nullopt;
}

std::optional<uint32_t> parse_overhead(std::string_view text) noexcept {
  if (text == "off") return 0;
  const std::optional<double> millionths = parse(text, kShareUnits, false, kMostMillionths);
  if (!millionths || *millionths < 1) return std::nullopt;
  return static_cast<uint32_t>(std::lround(*millionths));
}

}  // namespace tidemark
