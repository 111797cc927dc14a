#include "analysis/wording.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "analysis/insight/card/limit.h"
#include "analysis/insight/phases.h"
#include "analysis/steps/steps.h"

namespace tidemark {

std::string_view category_name(Category category) {
  switch (category) {
    case Category::kParameter:
      return "parameter";
    case Category::kGradient:
      return "gradient";
    case Category::kOptimizerState:
      return "optimizer_state";
    case Category::kActivation:
      return "activation";
    case Category::kInput:
      return "input";
    case Category::kTemporary:
      return "temporary";
    case Category::kCommunication:
      return "communication";
    case Category::kAutogradDetail:
      return "autograd_detail";
    case Category::kKvCache:
      return "kv_cache";
    case Category::kWorkspace:
      return "workspace";
    case Category::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view phase_name(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kFirstStep:
      return "first_step";
    case PhaseKind::kValidation:
      return "validation";
    case PhaseKind::kGeneration:
      return "generation";
    case PhaseKind::kSaving:
      return "saving";
    case PhaseKind::kForwardOnly:
      return "forward_only";
  }
  return "";
}

std::string_view phase_text(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kFirstStep:
      return "first step";
    case PhaseKind::kForwardOnly:
      return "passes without backward";
    default:
      return phase_name(kind);
  }
}

std::string_view step_source_name(StepSource source) {
  switch (source) {
    case StepSource::kMarks:
      return "marks";
    case StepSource::kRhythm:
      return "rhythm";
    case StepSource::kCollectives:
      return "collectives";
    case StepSource::kLoop:
      return "loop";
    case StepSource::kNone:
      break;
  }
  return "none";
}

std::string_view limit_source_name(LimitSource source) {
  switch (source) {
    case LimitSource::kCard:
      return "card";
    case LimitSource::kDriver:
      return "driver";
    case LimitSource::kRetries:
      return "retries";
    case LimitSource::kFraction:
      return "fraction";
    case LimitSource::kUnknown:
      break;
  }
  return "unknown";
}

namespace {

std::string size_text(uint64_t bytes, int digits) {
  static constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB",
                                                             "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would print as 1024.0 of the smaller unit.
  while (amount >= 1023.95 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", amount, digits, kUnits[unit]);
}

}  // namespace

std::string size_text(uint64_t bytes) {
  return size_text(bytes, 1);
}

std::pair<std::string, std::string> size_texts(uint64_t one, uint64_t other) {
  for (const int digits : {1, 2, 3}) {
    std::pair texts{size_text(one, digits), size_text(other, digits)};
    if (one == other || texts.first != texts.second) return texts;
  }
  return {grouped(one) + " bytes", grouped(other) + " bytes"};
}

std::string grouped(uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string duration_text(int64_t ns) {
  const double magnitude = std::fabs(static_cast<double>(ns));
  const std::string_view sign = ns < 0 ? "-" : "";
  if (magnitude < 1e3) return fmt::format("{}{:.0f} ns", sign, magnitude);
  if (magnitude < 1e6) return fmt::format("{}{:.0f} us", sign, magnitude / 1e3);
  if (magnitude < 1e9) return fmt::format("{}{:.0f} ms", sign, magnitude / 1e6);
  if (magnitude < 120e9) return fmt::format("{}{:.3f} s", sign, magnitude / 1e9);
  const auto seconds = static_cast<uint64_t>(magnitude / 1e9);
  if (seconds < 7200) return fmt::format("{}{} min {} s", sign, seconds / 60, seconds % 60);
  return fmt::format("{}{} h {} min", sign, seconds / 3600, seconds / 60 % 60);
}

std::string percent_text(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string counted(uint64_t number, std::string_view singular) {
  const std::string_view plural = singular.ends_with("s") ? "es" : "s";
  return fmt::format("{} {}{}", grouped(number), singular, number == 1 ? "" : plural);
}

std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace tidemark
