#include "export/report/kernel_bursts.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/wording.h"

namespace tidemark {

namespace {

std::string percent(double share) {
  return share < 0.095 ? fmt::format("{:.1f} %", 100 * share)
                       : fmt::format("{:.0f} %", 100 * share);
}

}  // namespace

std::string bursts_text(const KernelBursts& bursts) {
  if (bursts.pauses == 0) return {};
  const std::string cost =
      bursts.kernel_cost_ns == 0
          ? std::string()
          : fmt::format(" ({} ns per kernel, {})", grouped(bursts.kernel_cost_ns),
                        bursts.measured ? "measured" : "assumed");
  constexpr double kNearlyAll = 0.995;
  const std::string recorded =
      bursts.recorded_share() >= kNearlyAll
          ? fmt::format("nearly all kernels were recorded: all but those of {}",
                        duration_text(static_cast<int64_t>(bursts.unrecorded_ns)))
          : fmt::format("kernels recorded in bursts: {} of the time",
                        percent(bursts.recorded_share()));
  return fmt::format(
      "{}, to stay below {} once the program has begun; with its beginning, of which all are "
      "recorded, about {}{}",
      recorded, bursts.budget.empty() ? "the budget" : bursts.budget, percent(bursts.cost_share()),
      cost);
}

std::string bursts_text(const Report& report) {
  KernelBursts all;
  all.measured = true;
  for (const RankReport& rank : report.ranks) {
    const KernelBursts& one = rank.loss.bursts;
    if (one.pauses == 0) continue;
    all.budget = one.budget;
    all.kernel_cost_ns = std::max(all.kernel_cost_ns, one.kernel_cost_ns);
    all.measured &= one.measured;
    all.pauses += one.pauses;
    all.time_ns += one.time_ns;
    all.unrecorded_ns += one.unrecorded_ns;
    all.cost_ns += one.cost_ns;
  }
  return bursts_text(all);
}

}  // namespace tidemark
