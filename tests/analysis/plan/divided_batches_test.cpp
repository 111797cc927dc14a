// Plans for another batch of programs whose steps call the model several times.
#include <gtest/gtest.h>

#include "tests/support/planned.h"

namespace tidemark {
namespace {

using test::expect_close;
using test::TransformerRun;
using test::TransformerShape;

struct Planned {
  PlanOutcome outcome;
  bool may_divide = false;
};

Planned with_batch(double factor, const TransformerShape& shape) {
  const TransformerRun run(shape);
  const auto planner = Planner::prepare(run.process(), 0, {});
  EXPECT_TRUE(planner);
  PlanChange change;
  change.batch = factor;
  Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome);
  return {*outcome, (*planner)->may_divide_batch()};
}

bool speaks_of_parts(const PlanOutcome& outcome) {
  return std::any_of(outcome.assumptions.begin(), outcome.assumptions.end(),
                     [](const std::string& text) { return text.find("a chunk") != text.npos; });
}

TransformerShape in_passes() {
  TransformerShape shape;
  shape.accumulate = 3;
  return shape;
}

// Twice the batch may be twice as large parts, or twice as many.
TEST(DividedBatches, PartsOfOneInputMayStayAsTheyAre) {
  TransformerShape shape = in_passes();
  shape.one_input = true;
  TransformerShape larger = shape;
  larger.batch *= 2;
  TransformerShape more = shape;
  more.accumulate *= 2;
  const auto [outcome, may_divide] = with_batch(2, shape);
  EXPECT_TRUE(may_divide);
  EXPECT_TRUE(speaks_of_parts(outcome));
  expect_close(outcome.likely.reserved_peak, TransformerRun(larger).reserved_peak(), 0.02);
  expect_close(outcome.low_reserved, TransformerRun(more).reserved_peak(), 0.02);
  // With half the batch, the smallest saving is none.
  EXPECT_GE(with_batch(0.5, shape).outcome.high_reserved,
            TransformerRun(shape).reserved_peak() / 50 * 49);
}

TEST(DividedBatches, BatchesWithInputsOfTheirOwnGrow) {
  const TransformerShape shape = in_passes();
  const auto [outcome, may_divide] = with_batch(2, shape);
  EXPECT_FALSE(may_divide);
  EXPECT_FALSE(speaks_of_parts(outcome));
  EXPECT_EQ(outcome.low_reserved, outcome.likely.reserved_peak);
}

// Twice as many forward passes before one backward pass take as much as twice as large ones.
TEST(DividedBatches, GraphsThatAreAliveTogetherGrow) {
  TransformerShape shape;
  shape.summed = 3;
  shape.one_input = true;
  const auto [outcome, may_divide] = with_batch(2, shape);
  EXPECT_FALSE(may_divide);
  EXPECT_EQ(outcome.low_reserved, outcome.likely.reserved_peak);
}

}  // namespace
}  // namespace tidemark
