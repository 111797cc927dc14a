#include "viewer/model/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/wording.h"

namespace tidemark::view {

namespace {

// From here on duration_text() counts minutes.
constexpr double kLongNs = 120e9;

struct Unit {
  const char* name;
  double ns;
};

// The unit that keeps the number before the point short.
Unit unit_for(double ns) {
  const double magnitude = std::fabs(ns);
  if (magnitude >= 1e9) return {"s", 1e9};
  if (magnitude >= 1e6) return {"ms", 1e6};
  if (magnitude >= 1e3) return {"us", 1e3};
  return {"ns", 1};
}

int digits_for(double step, double unit) {
  const double digits = std::ceil(-std::log10(step / unit) - 1e-9);
  return static_cast<int>(std::clamp(digits, 0.0, 9.0));
}

double round_step(double least) {
  if (least > 30e9) {
    static constexpr std::array<double, 11> kSeconds = {60,   120,  300,   600,   1200, 1800,
                                                        3600, 7200, 21600, 43200, 86400};
    for (const double s : kSeconds) {
      if (s * 1e9 >= least) return s * 1e9;
    }
    return std::ceil(least / 86400e9) * 86400e9;
  }
  const double power = std::pow(10, std::floor(std::log10(std::max(least, 1.0))));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string clock_label(double ns) {
  const auto seconds = static_cast<int64_t>(std::llround(ns / 1e9));
  if (seconds < 3600) return fmt::format("{}:{:02} min", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02} h", seconds / 3600, seconds / 60 % 60);
}

// "1.25 GiB", "768 MiB": not rounded, in the largest unit in which the number stays short.
std::string exact_size_text(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"TiB", "GiB", "MiB", "KiB", "B"};
  if (bytes == 0) return "0";
  int shift = 40;
  for (const char* unit : kUnits) {
    const uint64_t one = uint64_t{1} << shift;
    const uint64_t least = bytes / one < 100 ? one / 8 : bytes / one < 1000 ? one / 4 : one;
    if (bytes >= one && bytes % std::max<uint64_t>(least, 1) == 0) {
      if (bytes % one == 0) return fmt::format("{} {}", grouped(bytes / one), unit);
      return fmt::format("{:.6g} {}", static_cast<double>(bytes) / static_cast<double>(one), unit);
    }
    shift -= 10;
  }
  return fmt::format("{} B", grouped(bytes));
}

double round_down(double step) {
  return std::pow(10, std::floor(std::log10(step)));
}

// duration_text() of a long time, with as many seconds as the step needs.
std::string long_text(double ns, double step) {
  if (step >= 60e9) return duration_text(static_cast<int64_t>(ns));
  const double least = std::min(round_down(step) / 1e9, 1.0);
  const double all = std::floor(ns / 1e9 / least) * least;
  const auto minutes = static_cast<int64_t>(all / 60);
  const std::string seconds =
      fmt::format("{:.{}f} s", all - 60.0 * static_cast<double>(minutes), digits_for(least, 1));
  if (minutes < 120) return fmt::format("{} min {}", minutes, seconds);
  return fmt::format("{} h {} min {}", minutes / 60, minutes % 60, seconds);
}

}  // namespace

std::vector<Tick> time_ticks(double begin, double end, int count) {
  std::vector<Tick> ticks;
  if (!(end > begin) || count < 1) return ticks;
  const double step = round_step((end - begin) / count);
  // Times before the start do not exist.
  const double first = std::max(0.0, std::ceil(begin / step) * step);
  for (int i = 0; i < 1000; ++i) {
    const double at = first + i * step;
    if (at > end) break;
    std::string label;
    if (at == 0) {
      label = "0";
    } else if (step >= 60e9) {
      label = clock_label(at);
    } else {
      const Unit unit = unit_for(std::max(end, step));
      label = fmt::format("{:.{}f} {}", at / unit.ns, digits_for(step, unit.ns), unit.name);
    }
    ticks.push_back({at, std::move(label)});
  }
  return ticks;
}

std::vector<Tick> byte_ticks(double end, int count) {
  std::vector<Tick> ticks;
  if (!(end > 0) || count < 1) return ticks;
  double step = 1;
  while (end / step > count) step *= 2;
  for (double at = 0; at <= end; at += step) {
    ticks.push_back({at, exact_size_text(static_cast<uint64_t>(at))});
  }
  return ticks;
}

std::string instant_text(double ns, double span_ns) {
  const Unit unit = unit_for(ns);
  const double step = std::max(span_ns / 1000, 1.0);
  if (std::fabs(ns) >= kLongNs) return (ns < 0 ? "-" : "+") + long_text(std::fabs(ns), step);
  // Not coarser than in reports: to the millisecond.
  const int least = unit.ns == 1e9 ? 3 : 0;
  const int digits = digits_for(round_down(step), unit.ns);
  return fmt::format("{}{:.{}f} {}", ns < 0 ? "-" : "+", std::fabs(ns) / unit.ns,
                     std::max(digits, least), unit.name);
}

std::string span_text(double ns) {
  if (std::fabs(ns) >= kLongNs) return duration_text(static_cast<int64_t>(ns));
  const Unit unit = unit_for(ns);
  const double amount = std::fabs(ns) / unit.ns;
  const int digits = unit.ns == 1 || amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  return fmt::format("{}{:.{}f} {}", ns < 0 ? "-" : "", amount, digits, unit.name);
}

std::string signed_size_text(int64_t bytes) {
  if (bytes == 0) return "0 B";
  const uint64_t magnitude =
      bytes < 0 ? 0 - static_cast<uint64_t>(bytes) : static_cast<uint64_t>(bytes);
  return (bytes < 0 ? "-" : "+") + size_text(magnitude);
}

}  // namespace tidemark::view
