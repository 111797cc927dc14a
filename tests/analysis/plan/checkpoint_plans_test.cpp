// Plans of checkpointed layers, in steps of several kinds.
#include <gtest/gtest.h>

#include "analysis/plan/checkpointing.h"
#include "tests/support/planned.h"

namespace tidemark {
namespace {

using test::expect_close;
using test::planned;
using test::TransformerRun;
using test::TransformerShape;

PlanChange checkpointed() {
  PlanChange change;
  change.checkpoint = true;
  return change;
}

TransformerShape checkpointed(TransformerShape shape) {
  shape.checkpoint = true;
  return shape;
}

TEST(CheckpointPlans, EachOfSeveralGraphsBeforeABackwardPassIsCheckpointed) {
  for (const int summed : {1, 2, 4}) {
    SCOPED_TRACE(summed);
    TransformerShape shape;
    shape.layers = 8;
    shape.batch = 8;
    shape.summed = summed;
    const TransformerRun recorded(shape);
    const TransformerRun real(checkpointed(shape));
    const PlanOutcome outcome = planned(recorded, checkpointed());
    expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.03);
  }
}

TEST(CheckpointPlans, StatisticsAreNoResultOfALayer) {
  TransformerShape shape;
  shape.layers = 12;
  shape.words = 300;
  shape.batch = 64;
  shape.ends_with_norm = true;
  const TransformerRun recorded(shape);
  const TransformerRun real(checkpointed(shape));
  const PlanOutcome outcome = planned(recorded, checkpointed());
  expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.03);
}

TEST(CheckpointPlans, GraphsOfAValidationAreCheckpointed) {
  TransformerShape shape;
  shape.layers = 8;
  shape.validation_batch = 8;
  shape.validation_graphs = true;
  const PlanOutcome outcome = planned(TransformerRun(shape), checkpointed());
  expect_close(outcome.likely.allocated_peak, TransformerRun(checkpointed(shape)).allocated_peak(),
               0.03);
  // Without graphs there is nothing to save.
  shape.validation_graphs = false;
  shape.validation_batch = 256;
  const TransformerRun without(shape);
  expect_close(planned(without, checkpointed()).likely.allocated_peak, without.allocated_peak(),
               0.005);
}

// A step that failed in its forward pass kept what a whole one would have.
TEST(CheckpointPlans, AStepThatFailedBeforeItsBackwardPassIsCheckpointed) {
  for (const int steps : {1, 3}) {
    SCOPED_TRACE(steps);
    TransformerShape shape;
    shape.layers = 12;
    shape.batch = 8;
    shape.words = 300;
    shape.steps = steps;
    if (steps != 1) shape.lengths = {80, 80, 320};
    const uint64_t needed = TransformerRun(shape).reserved_peak();
    const TransformerRun failed(shape, needed * 3 / 4);
    ASSERT_TRUE(failed.ran_out());
    const PlanOutcome outcome = planned(failed, checkpointed());
    const TransformerRun real(checkpointed(shape));
    EXPECT_LT(outcome.likely.allocated_peak, failed.allocated_peak() / 2);
    EXPECT_LE(outcome.likely.allocated_peak, real.allocated_peak());
  }
}

TEST(CheckpointPlans, WhatIsCheckpointedAlreadyIsSaidToBe) {
  const TransformerRun run(checkpointed(TransformerShape{}));
  const auto planner = Planner::prepare(run.process(), 0, {});
  ASSERT_TRUE(planner);
  const Result<PlanOutcome> outcome = (*planner)->plan(checkpointed());
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("already"), std::string::npos);
  // Layers that keep little beside their results are not.
  TransformerShape shape;
  shape.plain_layers = true;
  EXPECT_TRUE((*Planner::prepare(TransformerRun(shape).process(), 0, {}))->plan(checkpointed()));
}

// Many calls of a model without a backward pass are no training.
TEST(CheckpointPlans, WithoutABackwardPassNothingIsCheckpointed) {
  TransformerShape shape;
  shape.steps = 0;
  shape.validation_batch = 8;
  for (const bool graphs : {false, true}) {
    shape.validation_graphs = graphs;
    const TransformerRun run(shape);
    const auto planner = Planner::prepare(run.process(), 0, {});
    ASSERT_TRUE(planner);
    EXPECT_FALSE((*planner)->plan(checkpointed()));
  }
}

// The report and the plan have one computation.
TEST(CheckpointPlans, TheSavingIsThatOfThePlan) {
  for (const int summed : {1, 3}) {
    TransformerShape shape;
    shape.layers = 8;
    shape.batch = 16;
    shape.summed = summed;
    const TransformerRun run(shape);
    const RecordedProgram program(run.process(), run.process().framework.front());
    const std::optional<CheckpointSaving> saving = checkpoint_saving(program);
    ASSERT_TRUE(saving);
    EXPECT_EQ(saving->layers, shape.layers);
    const uint64_t after = planned(run, checkpointed()).likely.allocated_peak;
    expect_close(saving->bytes, run.allocated_peak() - after, 0.01);
  }
}

}  // namespace
}  // namespace tidemark
