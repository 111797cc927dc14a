#include "analysis/plan/change.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "proto/base/leading_number.h"

namespace tidemark {

namespace {

template <typename Kind, size_t N>
using Names = std::array<std::pair<std::string_view, Kind>, N>;

constexpr Names<PlanPrecision, 5> kPrecisions = {{{"fp32", PlanPrecision::kFull},
                                                  {"bf16", PlanPrecision::kHalf},
                                                  {"fp16", PlanPrecision::kHalf},
                                                  {"autocast", PlanPrecision::kAutocast},
                                                  {"recorded", PlanPrecision::kRecorded}}};
constexpr Names<PlanOptimizer, 5> kOptimizers = {{{"adamw8bit", PlanOptimizer::kAdamW8bit},
                                                  {"adamw", PlanOptimizer::kAdamW},
                                                  {"fused", PlanOptimizer::kFused},
                                                  {"sgd", PlanOptimizer::kSgd},
                                                  {"sgd-momentum", PlanOptimizer::kSgdMomentum}}};
constexpr Names<PlanShard, 5> kShards = {{{"ddp", PlanShard::kDdp},
                                          {"zero1", PlanShard::kZero1},
                                          {"zero2", PlanShard::kZero2},
                                          {"zero3", PlanShard::kZero3},
                                          {"fsdp2", PlanShard::kZero3}}};

template <typename Kind, size_t N>
Result<Kind> parse_name(const Names<Kind, N>& names, std::string_view option,
                        std::string_view text) {
  std::string known;
  for (const auto& [name, kind] : names) {
    if (name == text) return kind;
    known += known.empty() ? "" : ", ";
    known += name;
  }
  return Error{fmt::format("{} '{}' is not one of {}", option, text, known)};
}

template <typename Kind, size_t N>
std::string_view name_of(const Names<Kind, N>& names, Kind wanted) {
  for (const auto& [name, kind] : names) {
    if (kind == wanted) return name;
  }
  return {};
}

bool parse_number(std::string_view text, double& number) {
  const std::optional<LeadingNumber> found = leading_number(text);
  if (!found || !found->rest.empty() || !std::isfinite(found->value)) return false;
  number = found->value;
  return true;
}

}  // namespace

Result<double> parse_factor(std::string_view option, std::string_view text) {
  std::string_view digits = text;
  if (digits.ends_with('x')) digits.remove_suffix(1);
  double factor = 0;
  double divisor = 1;
  const size_t slash = digits.find('/');
  const bool valid = parse_number(digits.substr(0, slash), factor) &&
                     (slash == digits.npos || parse_number(digits.substr(slash + 1), divisor));
  if (valid && divisor > 0) factor /= divisor;
  if (!valid || divisor <= 0 || factor < 1.0 / 4096 || factor > 4096) {
    return Error{fmt::format("{} '{}' is not a factor such as 2x, 0.5x or 1/2", option, text)};
  }
  return factor;
}

Result<PlanPrecision> parse_precision(std::string_view text) {
  return parse_name(kPrecisions, "--precision", text);
}
Result<PlanOptimizer> parse_optimizer(std::string_view text) {
  return parse_name(kOptimizers, "--optimizer", text);
}
Result<PlanShard> parse_shard(std::string_view text) {
  return parse_name(kShards, "--shard", text);
}

std::string factor_text(double factor) {
  const double divisor = std::round(1 / factor);
  const bool exact = std::abs(1000 * factor - std::round(1000 * factor)) < 1e-6;
  if (!exact && divisor > 1 && std::abs(factor * divisor - 1) < 1e-9) {
    return fmt::format("1/{:.0f}", divisor);
  }
  std::string text = fmt::format("{:.3f}", factor);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string PlanChange::text() const {
  std::string all;
  const auto add = [&](const std::string& part) { all += (all.empty() ? "" : ", ") + part; };
  if (batch != 1) add("batch " + factor_text(batch) + "x");
  if (seq != 1) add("seq " + factor_text(seq) + "x");
  if (precision != PlanPrecision::kRecorded) {
    add(fmt::format("precision {}", name_of(kPrecisions, precision)));
  }
  if (optimizer != PlanOptimizer::kRecorded) {
    add(fmt::format("optimizer {}", name_of(kOptimizers, optimizer)));
  }
  if (checkpoint) {
    std::string modules;
    for (const std::string& m : checkpoint_modules) modules += (modules.empty() ? " " : ",") + m;
    add("checkpoint" + modules);
  }
  if (shard != PlanShard::kNone) {
    add(fmt::format("{} over {} ranks", name_of(kShards, shard), ranks));
  }
  if (has_conf) add(alloc_conf.empty() ? "default allocator settings" : alloc_conf);
  return all.empty() ? "the recorded program" : all;
}

}  // namespace tidemark
