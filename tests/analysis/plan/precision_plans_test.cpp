// What keeps its width where a program is planned in 16 bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr uint64_t kOwn = 64 * kMiB;   // what the program's own lines compute
constexpr uint64_t kLayer = 8 * kMiB;  // results of layers

// Layers, then a line of the program outside of them, and the backward pass of an operation on it.
PlanOutcome planned_with(PlanPrecision precision, const std::string& node, bool outside) {
  const Trace trace([&](Story& s, uint32_t) {
    for (const uint64_t mib : {3U, 5U, 6U}) s.alloc(mib * kMiB, s.setup());
    for (int step = 0; step < 4; ++step) {
      std::vector<uint64_t> kept = {s.alloc(kMiB, s.user(3))};
      for (int layer = 1; layer < 4; ++layer) kept.push_back(s.alloc(kLayer, s.forward(layer)));
      const uint32_t own =
          outside ? s.stack({"loss loss.py:4", "train train.py:11"})
                  : s.stack({"forward distance.py:4", "_call_impl torch/nn/modules/module.py:1",
                             "train train.py:11"});
      kept.push_back(s.alloc(kOwn, own));
      const uint64_t gradient = s.alloc(kOwn, s.node(node));
      const uint64_t other = s.alloc(kOwn, s.node("MulBackward0"));
      s.free(gradient);
      s.free(other);
      for (; !kept.empty(); kept.pop_back()) {
        s.free(s.alloc(kLayer, s.node("AddmmBackward0")));
        s.free(kept.back());
      }
      s.free(s.alloc(3 * kMiB, s.optimizer("_multi_tensor_adam")));
    }
  });
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner);
  PlanChange change;
  change.precision = precision;
  const Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome);
  return outcome ? *outcome : PlanOutcome{};
}

// Factorizations have no implementation in 16 bits; that of elementwise operations has.
TEST(PrecisionPlans, LinearAlgebraKeeps32Bits) {
  const PlanOutcome algebra = planned_with(PlanPrecision::kHalf, "LinalgCholeskyExBackward0", true);
  EXPECT_GE(algebra.likely.allocated_peak, 2 * kOwn + kOwn / 2);
  EXPECT_GE(algebra.high_allocated, 3 * kOwn);
  const PlanOutcome elementwise = planned_with(PlanPrecision::kHalf, "TanhBackward0", true);
  EXPECT_LT(elementwise.likely.allocated_peak, 2 * kOwn);
}

// Autocast computes powers in 32 bits, and so the gradients around them.
TEST(PrecisionPlans, GradientsOfOperationsIn32BitsKeepThem) {
  EXPECT_GE(planned_with(PlanPrecision::kAutocast, "PowBackward0", false).likely.allocated_peak,
            3 * kOwn);
  EXPECT_LT(planned_with(PlanPrecision::kAutocast, "TanhBackward0", false).likely.allocated_peak,
            2 * kOwn + 3 * kOwn / 4);
}

}  // namespace
}  // namespace tidemark
