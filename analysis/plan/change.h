// A change of the recorded program that a plan is made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

// kFull: 32 bits, of a program in 64.
enum class PlanPrecision : uint8_t { kRecorded, kFull, kHalf, kAutocast };
enum class PlanOptimizer : uint8_t { kRecorded, kFused, kAdamW, kAdamW8bit, kSgd, kSgdMomentum };
enum class PlanShard : uint8_t { kNone, kDdp, kZero1, kZero2, kZero3 };

struct PlanChange {
  double batch = 1;
  double seq = 1;
  PlanPrecision precision = PlanPrecision::kRecorded;
  PlanOptimizer optimizer = PlanOptimizer::kRecorded;
  bool checkpoint = false;
  // Paths, path patterns ("layers.*") or classes of nn.Modules; empty: the repeated layers.
  std::vector<std::string> checkpoint_modules;
  PlanShard shard = PlanShard::kNone;
  uint32_t ranks = 1;
  std::string alloc_conf;  // if has_conf
  bool has_conf = false;

  // "batch 2x, precision bf16"; "the recorded program" if nothing changes.
  std::string text() const;
};

// "2x", "0.5x", "1/2" or "2".
Result<double> parse_factor(std::string_view option, std::string_view text);
Result<PlanPrecision> parse_precision(std::string_view text);
Result<PlanOptimizer> parse_optimizer(std::string_view text);
Result<PlanShard> parse_shard(std::string_view text);

// "2", "0.5", "1.25", "1/16".
std::string factor_text(double factor);

}  // namespace tidemark
