#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "analysis/plan/plan.h"

namespace tidemark {

namespace {

constexpr double kMostFactor = 1024;
constexpr double kPrecision = 1.005;  // where the batch size is not known

// One step of the search: whole samples where the recorded batch size is known.
double snapped(double factor, uint64_t samples) {
  if (samples == 0) return factor;
  const auto recorded = static_cast<double>(samples);
  return std::max(1.0, std::floor(factor * recorded + 1e-9)) / recorded;
}

bool close_enough(double low, double high, uint64_t samples) {
  if (samples != 0) return (high - low) * static_cast<double>(samples) < 1.5;
  return high / low < kPrecision;
}

}  // namespace

Result<FittingBatch> largest_batch(const Planner& planner, const PlanChange& change,
                                   uint64_t samples) {
  const auto fits = [&](double factor) {
    PlanChange tried = change;
    tried.batch = factor;
    return planner.fits(tried);
  };
  const double least = samples != 0 ? 1.0 / static_cast<double>(samples) : 1.0 / 256;
  FittingBatch found;
  double low = 0;
  double high = 1;
  for (;;) {  // doubles until it does not fit
    const Result<bool> ok = fits(snapped(high, samples));
    if (!ok) return ok.error();
    if (!*ok) break;
    low = snapped(high, samples);
    if (high >= kMostFactor) {
      found = {low, 0, true};
      break;
    }
    high *= 2;
  }
  while (low == 0 && high > least) {  // halves until it fits
    const double half = std::max(snapped(high / 2, samples), least);
    const Result<bool> ok = fits(half);
    if (!ok) return ok.error();
    if (*ok)
      low = half;
    else
      high = half;
  }
  while (low != 0 && !found.at_limit && !close_enough(low, high, samples)) {
    const double middle = snapped((low + high) / 2, samples);
    if (middle <= low || middle >= high) break;
    const Result<bool> ok = fits(middle);
    if (!ok) return ok.error();
    (*ok ? low : high) = middle;
  }
  found.factor = low;
  found.samples = static_cast<uint64_t>(std::llround(low * static_cast<double>(samples)));
  return found;
}

std::optional<PlanChange> cheapest_fit(const Planner& planner, const PlanChange& change,
                                       uint64_t samples) {
  // From what costs nothing to what costs time or changes results. Costs are an order, not a
  // measure: a setting of the allocator, fused and 8-bit optimizers, recomputation, 32 bits of a
  // program in 64, 16 bits, and last a smaller batch.
  struct Candidate {
    int cost;
    PlanChange change;
  };
  std::vector<Candidate> candidates;
  // Under autocast, weights and what stays in 32 bits are left to convert.
  const RecordedWidths widths = recorded_widths(planner.program());
  const bool converts = widths.autocasts || !widths.computes_in_16();
  const bool in_float64 = computes_in_float64(planner.program().process().names);
  const bool optimizes = planner.program().has_optimizer();
  for (unsigned set = 0; set < 16; ++set) {
    for (int optimizer = 0; optimizer < (optimizes ? 3 : 1); ++optimizer) {
      for (int halvings = 0; halvings < 5; ++halvings) {
        Candidate c{0, change};
        if ((set & 1) != 0) {
          if (change.has_conf) continue;
          c.change.alloc_conf = "expandable_segments:True";
          c.change.has_conf = true;
          c.cost += 1;
        }
        if ((set & 2) != 0) {
          if (change.checkpoint) continue;
          c.change.checkpoint = true;
          c.cost += 12;
        }
        if ((set & 12) != 0) {
          const bool full = (set & 8) != 0;
          if (change.precision != PlanPrecision::kRecorded || (set & 12) == 12) continue;
          if (full ? !in_float64 : !converts) continue;
          c.change.precision = full ? PlanPrecision::kFull : PlanPrecision::kHalf;
          c.cost += full ? 20 : 40;
        }
        if (optimizer != 0) {
          if (change.optimizer != PlanOptimizer::kRecorded) continue;
          c.change.optimizer = optimizer == 1 ? PlanOptimizer::kFused : PlanOptimizer::kAdamW8bit;
          c.cost += optimizer == 1 ? 2 : 6;
        }
        if (halvings != 0) {
          c.change.batch = snapped(change.batch / (1 << halvings), samples);
          if (c.change.batch >= change.batch) continue;
        }
        c.cost += 100 * halvings;
        candidates.push_back(std::move(c));
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  for (const Candidate& c : candidates) {
    const Result<bool> ok = planner.fits(c.change);
    if (ok && *ok) return c.change;  // a change that cannot be planned is not proposed
  }
  return std::nullopt;
}

}  // namespace tidemark
