// Plans of a generated run.
#pragma once

#include <gtest/gtest.h>

#include "analysis/plan/plan.h"
#include "tests/support/transformer_run.h"

namespace tidemark::test {

inline PlanOutcome planned(const TransformerRun& run, const PlanChange& change) {
  const auto planner = Planner::prepare(run.process(), 0, {});
  EXPECT_TRUE(planner);
  Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);
  return outcome ? *outcome : PlanOutcome{};
}

inline void expect_close(uint64_t found, uint64_t expected, double share) {
  const auto value = static_cast<double>(expected);
  EXPECT_NEAR(static_cast<double>(found), value, share * value);
}

}  // namespace tidemark::test
