// What a plan leaves as it was, and what it learns from steps, beside other parts of a program.
#include <gtest/gtest.h>

#include "tests/support/planned.h"

namespace tidemark {
namespace {

using test::expect_close;
using test::planned;
using test::TransformerRun;
using test::TransformerShape;

PlanChange batches(double factor) {
  PlanChange change;
  change.batch = factor;
  return change;
}
PlanChange lengths(double factor) {
  PlanChange change;
  change.seq = factor;
  return change;
}
bool says(const PlanOutcome& outcome, std::string_view words) {
  return std::any_of(outcome.assumptions.begin(), outcome.assumptions.end(),
                     [&](const std::string& text) { return text.find(words) != text.npos; });
}

TEST(KeptInPlans, AValidationWithAnotherBatchTellsNothingOfLengths) {
  for (const bool matrices : {false, true}) {
    SCOPED_TRACE(matrices);
    TransformerShape shape;
    shape.matrices = matrices;
    shape.steps = 5;
    shape.validation_batch = 2 * shape.batch;
    TransformerShape twice = shape;
    twice.seq *= 2;
    const PlanOutcome outcome = planned(TransformerRun(shape), lengths(2));
    expect_close(outcome.likely.allocated_peak, TransformerRun(twice).allocated_peak(), 0.01);
    EXPECT_TRUE(says(outcome, "no steps were found that differ in their length"));
    EXPECT_EQ(outcome.low_reserved < outcome.likely.reserved_peak, matrices);
  }
}

// Products of 16 bits around a softmax of 32 are attention, a softmax without any is not.
TEST(KeptInPlans, OnlyASoftmaxBetweenProductsIsAttention) {
  for (const bool attends : {true, false}) {
    SCOPED_TRACE(attends);
    TransformerShape shape;
    shape.words = 600;
    shape.seq = 200;
    shape.autocast = true;
    shape.matrices = shape.half_products = attends;
    shape.weighs_tokens = !attends;
    TransformerShape twice = shape;
    twice.seq *= 2;
    const PlanOutcome outcome = planned(TransformerRun(shape), lengths(2));
    expect_close(outcome.likely.allocated_peak, TransformerRun(twice).allocated_peak(), 0.01);
    EXPECT_EQ(says(outcome, "with its square; the range"), attends);
  }
}

// A last batch that is not full, or batches of several sizes, vary in no length.
TEST(KeptInPlans, BatchesThatVaryTellNothingOfLengths) {
  TransformerShape shape;
  shape.matrices = true;
  shape.batches = {6, 6, 4};
  TransformerShape twice = shape;
  twice.seq *= 2;
  const PlanOutcome outcome = planned(TransformerRun(shape), lengths(2));
  expect_close(outcome.likely.allocated_peak, TransformerRun(twice).allocated_peak(), 0.01);
  EXPECT_TRUE(says(outcome, "in their batch or in their length"));
}

TEST(KeptInPlans, AMaskForEachLengthFollowsItsSquareAndNoBatch) {
  TransformerShape shape;
  shape.keeps_masks = true;
  shape.steps = 6;
  shape.lengths = {600, 500, 400, 640, 450, 560};
  shape.validation_batch = 12;
  const TransformerRun recorded(shape);
  TransformerShape wider = shape;
  wider.batch *= 2;
  wider.validation_batch *= 2;
  const PlanOutcome twice = planned(recorded, batches(2));
  expect_close(twice.likely.allocated_peak, TransformerRun(wider).allocated_peak(), 0.01);
  EXPECT_GT(twice.high_reserved, twice.likely.reserved_peak + (4 << 20));
  TransformerShape longer = shape;
  for (uint64_t& length : longer.lengths) length *= 2;
  const PlanOutcome square = planned(recorded, lengths(2));
  expect_close(square.likely.allocated_peak, TransformerRun(longer).allocated_peak(), 0.01);
  EXPECT_TRUE(says(square, "the lengths of the steps vary"));
}

TEST(KeptInPlans, ABufferFromBeforeTheFirstStepStaysWithAnyBatch) {
  TransformerShape shape;
  shape.data_bytes = 900 << 20;
  for (const bool frees : {false, true}) {  // at the end
    SCOPED_TRACE(frees);
    shape.frees_data = frees;
    TransformerShape wider = shape;
    wider.batch *= 2;
    const PlanOutcome outcome = planned(TransformerRun(shape), batches(2));
    EXPECT_EQ(outcome.likely.reserved_peak, TransformerRun(wider).reserved_peak());
    EXPECT_GT(outcome.high_reserved, outcome.likely.reserved_peak);
  }
}

// What is made and freed before a model runs has nothing to do with its batch.
TEST(KeptInPlans, PreparationsStayWithAnyBatch) {
  TransformerShape shape;
  shape.prepared_bytes = 2000 << 20;
  const TransformerRun run(shape);
  const PlanOutcome outcome = planned(run, batches(2));
  EXPECT_EQ(outcome.likely.reserved_peak, run.reserved_peak());
  EXPECT_GT(outcome.high_reserved, outcome.likely.reserved_peak);
}

// A program that goes through a sequence position by position.
TEST(KeptInPlans, BlocksOfEachPositionGrowInNumber) {
  TransformerShape shape;
  shape.position_bytes = 64 << 10;
  shape.lengths = {600, 500, 400, 640, 450, 560};
  shape.steps = 6;
  TransformerShape longer = shape;
  for (uint64_t& length : longer.lengths) length *= 2;
  const PlanOutcome outcome = planned(TransformerRun(shape), lengths(2));
  expect_close(outcome.likely.allocated_peak, TransformerRun(longer).allocated_peak(), 0.02);
}

// What a program prepares need not follow the precision of its model.
TEST(KeptInPlans, WhatTheProgramComputesItselfMayKeepItsPrecision) {
  TransformerShape shape;
  shape.prepared_bytes = 2000 << 20;
  const TransformerRun run(shape);
  PlanChange change;
  change.precision = PlanPrecision::kHalf;
  const PlanOutcome outcome = planned(run, change);
  EXPECT_GE(outcome.high_reserved, uint64_t{2000} << 20);
}

// Results of half the size of a weight are no copies of it where all products have 32 bits.
TEST(KeptInPlans, KernelsIn32BitsRuleAutocastOut) {
  TransformerShape shape;
  shape.words = 200;
  shape.batch = 4;
  shape.seq = 160;  // 2 x width tokens
  shape.kernels = {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3"};
  TransformerShape half = shape;
  half.number_bytes = 2;
  PlanChange change;
  change.precision = PlanPrecision::kHalf;
  const PlanOutcome outcome = planned(TransformerRun(shape), change);
  EXPECT_FALSE(says(outcome, "autocast"));
  expect_close(outcome.likely.allocated_peak, TransformerRun(half).allocated_peak(), 0.02);
}

TEST(KeptInPlans, AValidationMayHaveABatchOfItsOwn) {
  TransformerShape shape;
  shape.validation_batch = shape.batch;
  shape.validation_graphs = true;
  TransformerShape training = shape;
  training.batch *= 2;
  TransformerShape both = training;
  both.validation_batch *= 2;
  const PlanOutcome outcome = planned(TransformerRun(shape), batches(2));
  EXPECT_LE(outcome.low_reserved, TransformerRun(training).reserved_peak());
  EXPECT_GE(outcome.high_reserved, TransformerRun(both).reserved_peak());
  EXPECT_TRUE(says(outcome, "a batch of its own"));
  EXPECT_FALSE(says(planned(TransformerRun(shape), lengths(2)), "a batch of its own"));
}

}  // namespace
}  // namespace tidemark
