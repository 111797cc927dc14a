#include "analysis/plan/plan.h"
#include "analysis/insight/card/limit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "analysis/plan/plan_report.h"
#include "analysis/plan/program/layers.h"
#include "tests/support/story.h"
#include "tests/support/transformer_run.h"

namespace tidemark {
namespace {

using test::TransformerRun;
using test::TransformerShape;

std::unique_ptr<Planner> planner_of(const ProcessModel& process, uint64_t card = 0) {
  PlanOptions options;
  options.whatif.card_bytes = card;
  auto planner = Planner::prepare(process, 0, options);
  EXPECT_TRUE(planner) << (planner ? "" : planner.error().message);
  return planner ? std::move(*planner) : nullptr;
}

PlanOutcome planned(const Planner& planner, const PlanChange& change) {
  Result<PlanOutcome> outcome = planner.plan(change);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return outcome ? *outcome : PlanOutcome{};
}

void expect_close(uint64_t found, uint64_t expected, double share) {
  const auto value = static_cast<double>(expected);
  EXPECT_NEAR(static_cast<double>(found), value, share * value);
}

// The plan from a recording of `from` against the run of `to` itself.
void expect_same(const TransformerShape& from, const TransformerShape& to,
                 const PlanChange& change) {
  const TransformerRun recorded(from);
  const TransformerRun real(to);
  const auto planner = planner_of(recorded.process());
  ASSERT_TRUE(planner);
  EXPECT_TRUE(planner->whatif().own().exact());
  EXPECT_EQ(planned(*planner, {}).likely.reserved_peak, recorded.reserved_peak());
  const PlanOutcome outcome = planned(*planner, change);
  if (change.seq != 1) {
    // An attention matrix may have the size of another block by chance.
    expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.005);
    expect_close(outcome.likely.reserved_peak, real.reserved_peak(), 0.01);
    return;
  }
  // Blocks of less than 512 bytes are taken as fixed.
  expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.0005);
  EXPECT_EQ(outcome.likely.reserved_peak, real.reserved_peak()) << change.text();
  EXPECT_LE(outcome.low_reserved, real.reserved_peak());
  EXPECT_GE(outcome.high_reserved, real.reserved_peak());
}

TransformerShape random_shape(uint64_t seed) {
  std::mt19937_64 rng(seed);
  TransformerShape shape;
  shape.layers = 2 + rng() % 5;
  shape.width = 64 * (1 + rng() % 8);
  shape.words = 500 + rng() % 4000;
  shape.batch = 2 * (1 + rng() % 8);
  shape.seq = 32 * (1 + rng() % 8);
  shape.matrices = rng() % 2 == 0;
  shape.modules = rng() % 2 == 0;
  shape.autocast = rng() % 3 == 0;
  shape.accumulate = rng() % 3 == 0 ? 2 : 1;
  return shape;
}

TEST(Plan, OtherBatchesAndLengthsNeedWhatTheirRunsNeed) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const TransformerShape shape = random_shape(seed);
    for (const double factor : {0.5, 2.0, 4.0}) {
      TransformerShape other = shape;
      other.batch = static_cast<uint64_t>(static_cast<double>(shape.batch) * factor);
      PlanChange change;
      change.batch = factor;
      expect_same(shape, other, change);
    }
    TransformerShape other = shape;
    other.seq *= 2;
    PlanChange change;
    change.seq = 2;
    expect_same(shape, other, change);
  }
}

// A workspace with a constant part, and a batch of which nothing is known, are learnt.
TEST(Plan, TwoRecordingsTellWhatGrows) {
  TransformerShape shape;
  shape.workspace_fixed = 300 * 1000 * 1000;
  shape.workspace_per_token = 9000;
  TransformerShape more = shape;
  more.batch = shape.batch * 3 / 2;
  TransformerShape wanted = shape;
  wanted.batch = shape.batch * 4;
  const TransformerRun a(shape);
  const TransformerRun b(more);
  const TransformerRun real(wanted);
  PlanChange change;
  change.batch = 4;
  const auto alone = planner_of(a.process());
  const auto both = planner_of(a.process());
  ASSERT_TRUE(both->learn(b.process(), Dimension::kBatch));
  EXPECT_NEAR(both->learnt().ratio, 1.5, 0.01);
  EXPECT_NE(planned(*alone, change).likely.reserved_peak, real.reserved_peak());
  EXPECT_EQ(planned(*both, change).likely.reserved_peak, real.reserved_peak());

  TransformerShape longer = shape;
  longer.seq = shape.seq * 3 / 2;
  longer.matrices = shape.matrices = wanted.matrices = true;
  wanted.batch = shape.batch;
  wanted.seq = shape.seq * 2;
  const TransformerRun c(shape);
  const TransformerRun d(longer);
  const TransformerRun squares(wanted);
  const auto lengths = planner_of(c.process());
  ASSERT_TRUE(lengths->learn(d.process(), Dimension::kSequence));
  PlanChange twice;
  twice.seq = 2;
  EXPECT_EQ(planned(*lengths, twice).likely.reserved_peak, squares.reserved_peak());
  // Nothing is learnt from the same run.
  EXPECT_FALSE(lengths->learn(c.process(), Dimension::kSequence));
}

// Lengths that vary tell that a result has no sequence.
TEST(Plan, VaryingStepsTellWhatGrowsWithTheSequence) {
  TransformerShape shape;
  shape.matrices = true;
  shape.sample_bytes = 12'000'000;
  shape.lengths = {160, 96, 128};
  TransformerShape twice = shape;
  twice.lengths = {320, 192, 256};
  const TransformerRun recorded(shape);
  const TransformerRun real(twice);
  PlanChange change;
  change.seq = 2;
  const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
  EXPECT_EQ(outcome.likely.allocated_peak, real.allocated_peak());
  EXPECT_EQ(outcome.likely.reserved_peak, real.reserved_peak());
}

// With heads x length = 4 x width, the matrix has the size of the results of the wide layer, and a
// mask of it that of the queries.
TEST(Plan, AttentionMatricesAreToldFromLinearResultsOfTheirSizes) {
  struct Case {
    uint64_t width, heads, seq;
  };
  for (const Case c : {Case{320, 8, 160}, Case{256, 8, 128}, Case{512, 16, 128}, Case{320, 8, 80},
                       Case{512, 8, 32}, Case{320, 8, 40}}) {
    for (const bool modules : {true, false}) {
      SCOPED_TRACE(testing::Message() << c.width << " " << c.seq << " " << modules);
      TransformerShape shape;
      shape.matrices = true;
      shape.modules = modules;
      shape.width = c.width;
      shape.heads = c.heads;
      shape.seq = c.seq;
      TransformerShape twice = shape;
      twice.seq *= 2;
      const TransformerRun recorded(shape);
      const TransformerRun real(twice);
      PlanChange change;
      change.seq = 2;
      const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
      const uint64_t segment = uint64_t{2} << 20;
      EXPECT_LE(outcome.low_reserved, real.reserved_peak() + segment);
      EXPECT_GE(outcome.high_reserved + segment, real.reserved_peak());
      EXPECT_LE(outcome.low_allocated, real.allocated_peak());
      EXPECT_GE(outcome.high_allocated + segment, real.allocated_peak());
      if (c.heads * c.seq != c.width && c.heads * c.seq != 2 * c.width) {
        expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.01);
      }
    }
  }
}

uint64_t planned_sum(const PlanOutcome& outcome) {
  uint64_t sum = outcome.failed_request;
  for (const CategoryBytes& c : outcome.categories) sum += c.planned;
  return sum;
}

// What failed grows as the same request did in earlier steps, and is part of the planned peak.
TEST(Plan, ARequestThatFailedGrowsAsItsEarlierOnes) {
  size_t matrices = 0;
  for (const uint64_t longest : {400U, 520U, 640U}) {
    TransformerShape shape;
    shape.matrices = true;
    shape.steps = 4;
    shape.lengths = {100, 160, 120, longest};
    const uint64_t needed = TransformerRun(shape).reserved_peak();
    for (uint64_t percent = 50; percent < 100; percent += 5) {
      const TransformerRun failed(shape, needed * percent / 100);
      if (!failed.ran_out()) continue;
      const uint64_t asked = failed.process().framework[0].failures.back().requested_bytes;
      if (asked != shape.batch * shape.heads * longest * longest * 4) continue;
      SCOPED_TRACE(testing::Message() << longest << " within " << percent << " %");
      ++matrices;
      const auto planner = planner_of(failed.process());
      const PlanOutcome same = planned(*planner, {});
      expect_close(planned_sum(same), same.likely.allocated_peak, 0.03);
      PlanChange change;
      change.seq = 2;
      const PlanOutcome twice = planned(*planner, change);
      expect_close(planned_sum(twice), twice.likely.allocated_peak, 0.03);
      if (twice.failed_request != 0) expect_close(twice.failed_request, 4 * asked, 0.001);
      uint64_t recorded = 0;
      for (const CategoryBytes& c : same.categories) recorded += c.recorded;
      expect_close(recorded, failed.allocated_peak(), 0.03);
    }
  }
  EXPECT_GT(matrices, 3U);
}

TEST(Plan, OptimizersAndPrecision) {
  using Optimizer = TransformerShape::Optimizer;
  const std::pair<PlanOptimizer, Optimizer> kinds[] = {
      {PlanOptimizer::kFused, Optimizer::kFused},
      {PlanOptimizer::kAdamW8bit, Optimizer::kBytes},
      {PlanOptimizer::kSgd, Optimizer::kSgd},
      {PlanOptimizer::kSgdMomentum, Optimizer::kMomentum}};
  for (const auto& [plan, run] : kinds) {
    TransformerShape other;
    other.optimizer = run;
    PlanChange change;
    change.optimizer = plan;
    expect_same({}, other, change);
  }
  // States that the recorded optimizer does not have.
  TransformerShape sgd;
  sgd.optimizer = Optimizer::kSgd;
  TransformerShape bytes;
  bytes.optimizer = Optimizer::kBytes;
  PlanChange change;
  change.optimizer = PlanOptimizer::kAdamW8bit;
  expect_same(sgd, bytes, change);

  TransformerShape half;
  half.number_bytes = 2;
  PlanChange precision;
  precision.precision = PlanPrecision::kHalf;
  const TransformerRun recorded({});
  const TransformerRun real(half);
  const PlanOutcome outcome = planned(*planner_of(recorded.process()), precision);
  // Statistics of normalizations keep 32 bits: too little to matter.
  expect_close(outcome.likely.reserved_peak, real.reserved_peak(), 0.01);
}

// What the program keeps for itself is not converted with the model.
TEST(Plan, ADataSetKeepsItsPrecision) {
  TransformerShape shape;
  shape.data_bytes = 900 << 20;
  TransformerShape half = shape;
  half.number_bytes = 2;
  PlanChange change;
  change.precision = PlanPrecision::kHalf;
  for (const bool frees : {false, true}) {  // at the end
    shape.frees_data = half.frees_data = frees;
    const TransformerRun recorded(shape);
    const TransformerRun real(half);
    const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
    expect_close(outcome.likely.reserved_peak, real.reserved_peak(), 0.01);
  }
}

bool says(const PlanOutcome& outcome, std::string_view words) {
  return std::any_of(outcome.assumptions.begin(), outcome.assumptions.end(),
                     [&](const std::string& text) { return text.find(words) != text.npos; });
}

// The names of kernels tell that numbers have 64 bits.
TEST(Plan, ModelsInDoublePrecisionShrinkToAQuarter) {
  const char* kDouble[] = {
      "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x16_execute_kernel__5x_cublas",
      "_ZN7cutlass7Kernel2I50cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1EEvNT_6ParamsE"};
  for (const char* kernel : kDouble) {
    TransformerShape shape;
    shape.number_bytes = 8;
    shape.kernel = kernel;
    TransformerShape half;
    half.number_bytes = 2;
    const TransformerRun recorded(shape);
    PlanChange change;
    change.precision = PlanPrecision::kHalf;
    const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
    expect_close(outcome.likely.reserved_peak, TransformerRun(half).reserved_peak(), 0.02);
    EXPECT_TRUE(says(outcome, "64 bits"));
    change.precision = PlanPrecision::kAutocast;
    const PlanOutcome cast = planned(*planner_of(recorded.process()), change);
    EXPECT_EQ(cast.likely.reserved_peak, recorded.reserved_peak());
  }
  for (const char* kernel : {"", "sm80_xmma_gemm_f32f32_f32f32_f32_nn", "nvjet_hsh_128x256",
                             "void at::native::reduce_kernel<ReduceOp<double>>"}) {
    TransformerShape shape;
    shape.kernel = kernel;
    const TransformerRun recorded(shape);
    PlanChange change;
    change.precision = PlanPrecision::kHalf;
    EXPECT_FALSE(says(planned(*planner_of(recorded.process()), change), "64 bits")) << kernel;
  }
}

// To half of that in 32 bits; a program in 32 bits has nothing to convert.
TEST(Plan, OnlyModelsInDoublePrecisionAreConvertedTo32Bits) {
  TransformerShape shape;
  shape.number_bytes = 8;
  shape.kernel = "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x16";
  const TransformerRun recorded(shape);
  PlanChange change;
  change.precision = PlanPrecision::kFull;
  const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
  expect_close(outcome.likely.reserved_peak, TransformerRun({}).reserved_peak(), 0.02);
  EXPECT_TRUE(says(outcome, "converted to 32 bits"));
  for (const auto& [kernel, reason] :
       {std::pair("sm80_xmma_gemm_f32f32_f32f32_f32_nn", "32 bits or fewer already"),
        std::pair("", "no kernel of the recording tells")}) {
    TransformerShape single;
    single.kernel = kernel;
    const TransformerRun run(single);
    const Result<PlanOutcome> refused = planner_of(run.process())->plan(change);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(reason), std::string::npos) << refused.error().message;
  }
}

// Before 16 bits, which lose more.
TEST(Plan, ModelsInDoublePrecisionAreFittedIn32Bits) {
  TransformerShape shape;
  shape.number_bytes = 8;
  shape.kernel = "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x16";
  const TransformerRun recorded(shape);
  // Without what costs less.
  PlanChange change;
  change.has_conf = change.checkpoint = true;
  change.optimizer = PlanOptimizer::kFused;
  const uint64_t needed = planned(*planner_of(recorded.process()), change).likely.reserved_peak;
  const auto planner = planner_of(recorded.process(), kContextBytes + needed * 3 / 4);
  const std::optional<PlanChange> cheapest = cheapest_fit(*planner, change, 0);
  ASSERT_TRUE(cheapest);
  EXPECT_EQ(cheapest->precision, PlanPrecision::kFull);
}

const std::string kElementwise = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_";

// Where no matrix product tells, what adds and multiplies numbers does.
TEST(Plan, ArithmeticTellsTheWidthOfProgramsWithoutMatrixProducts) {
  const auto half_of = [](uint64_t number_bytes, const std::vector<std::string>& kernels) {
    TransformerShape shape;
    shape.number_bytes = number_bytes;
    for (const std::string& kernel : kernels) shape.kernels.push_back(kElementwise + kernel);
    const TransformerRun recorded(shape);
    PlanChange change;
    change.precision = PlanPrecision::kHalf;
    return planned(*planner_of(recorded.process()), change);
  };
  const std::string in_32 = "13BinaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEE";
  const std::string in_64 = "15CUDAFunctor_addIdEESt5arrayIPcLm3EE";
  EXPECT_TRUE(says(half_of(4, {in_32}), "taken to have 32 bits"));
  EXPECT_TRUE(says(half_of(8, {in_64}), "64 bits"));
  EXPECT_TRUE(says(half_of(4, {in_32, in_64}), "Nothing in the recording tells"));
}

const char* const kProduct16 = "nvjet_sm90_tst_96x128_64x7_1x2_h_bz_TNN";
const char* const kProduct32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3";
const std::string kApply = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelI";
const std::string kOptimizer16 =
    kApply + "PointwiseOpScalarListFunctorIN3c108BFloat16ELi3ELi3ELi0E";
const std::string kOptimizer32 = kApply + "PointwiseOpScalarListFunctorIfLi3ELi3ELi0E";
const std::string kStepCount = kApply + "BinaryOpScalarFunctorIfLi1ELi1ELi0EESt4plusIfE";

TransformerShape shape_with(uint64_t number_bytes, std::vector<std::string> kernels) {
  TransformerShape shape;
  shape.number_bytes = number_bytes;
  shape.kernels = std::move(kernels);
  return shape;
}

TEST(Plan, ModelsIn16BitsDoNotShrink) {
  for (const PlanPrecision precision : {PlanPrecision::kHalf, PlanPrecision::kAutocast}) {
    PlanChange change;
    change.precision = precision;
    for (const auto& kernels : std::vector<std::vector<std::string>>{
             {kProduct16}, {kProduct16, kOptimizer16}, {kProduct16, kOptimizer16, kStepCount}}) {
      const TransformerRun recorded(shape_with(2, kernels));
      const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
      EXPECT_EQ(outcome.likely.reserved_peak, recorded.reserved_peak());
      EXPECT_EQ(outcome.low_reserved, outcome.high_reserved);
      EXPECT_TRUE(says(outcome, "computes in 16 bits"));
    }
  }
  // Where kernels of both kinds ran, the range tells.
  PlanChange half;
  half.precision = PlanPrecision::kHalf;
  for (const auto& kernels : std::vector<std::vector<std::string>>{{kProduct16, kProduct32},
                                                                   {kProduct16, kOptimizer32}}) {
    const TransformerRun recorded(shape_with(4, kernels));
    const PlanOutcome outcome = planned(*planner_of(recorded.process()), half);
    EXPECT_LT(outcome.likely.reserved_peak, recorded.reserved_peak() * 6 / 10);
    EXPECT_GT(outcome.high_reserved, recorded.reserved_peak() * 6 / 10);
  }
  const TransformerRun single(shape_with(4, {kProduct32, kOptimizer32}));
  const PlanOutcome outcome = planned(*planner_of(single.process()), half);
  EXPECT_LT(outcome.likely.reserved_peak, single.reserved_peak() * 6 / 10);
  EXPECT_EQ(outcome.low_reserved, outcome.high_reserved);
}

TEST(Plan, EightBitStatesOf16BitOnes) {
  using Optimizer = TransformerShape::Optimizer;
  PlanChange change;
  change.optimizer = PlanOptimizer::kAdamW8bit;
  TransformerShape half = shape_with(2, {kProduct16, kOptimizer16});
  TransformerShape bytes = half;
  bytes.optimizer = Optimizer::kBytes;
  expect_same(half, bytes, change);
  half.optimizer = Optimizer::kSgd;
  expect_same(half, bytes, change);
  // And of 32-bit ones in a model that is converted.
  change.precision = PlanPrecision::kHalf;
  const TransformerRun recorded(TransformerShape{});
  const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
  expect_close(outcome.likely.reserved_peak, TransformerRun(bytes).reserved_peak(), 0.01);
}

TEST(Plan, OptimizersWithMoreStates) {
  using Optimizer = TransformerShape::Optimizer;
  const std::pair<PlanOptimizer, Optimizer> kinds[] = {
      {PlanOptimizer::kAdamW, Optimizer::kForeach}, {PlanOptimizer::kAdamW8bit, Optimizer::kBytes}};
  for (const Optimizer from : {Optimizer::kSgd, Optimizer::kMomentum, Optimizer::kFused}) {
    for (const auto& [plan, to] : kinds) {
      TransformerShape recorded;
      recorded.optimizer = from;
      TransformerShape real;
      real.optimizer = to;
      PlanChange change;
      change.optimizer = plan;
      const TransformerRun before(recorded);
      const TransformerRun after(real);
      const PlanOutcome outcome = planned(*planner_of(before.process()), change);
      uint64_t requested = 0;
      for (const CategoryBytes& c : outcome.categories) requested += c.planned;
      SCOPED_TRACE(static_cast<int>(from));
      SCOPED_TRACE(static_cast<int>(to));
      expect_close(requested, after.process().framework[0].requested_peak.bytes, 0.0005);
      // The states follow each other in another order, and take other free blocks.
      expect_close(outcome.likely.allocated_peak, after.allocated_peak(), 0.01);
      expect_close(outcome.likely.reserved_peak, after.reserved_peak(), 0.01);
    }
  }
}

TEST(Plan, CheckpointedLayersRunAgain) {
  for (const bool matrices : {false, true}) {
    TransformerShape shape;
    shape.layers = 8;
    shape.batch = 16;
    shape.matrices = matrices;
    TransformerShape other = shape;
    other.checkpoint = true;
    const TransformerRun recorded(shape);
    const TransformerRun real(other);
    ASSERT_LT(real.allocated_peak(), recorded.allocated_peak() * 9 / 10);
    const auto planner = planner_of(recorded.process());
    PlanChange change;
    change.checkpoint = true;
    const PlanOutcome all = planned(*planner, change);
    expect_close(all.likely.allocated_peak, real.allocated_peak(), 0.02);
    // In such a small run a single segment counts.
    expect_close(all.likely.reserved_peak, real.reserved_peak(), 0.12);
    // Half of the layers: something in between.
    change.checkpoint_modules = {"layers.0", "layers.1", "layers.2", "layers.3"};
    const uint64_t some = planned(*planner, change).likely.allocated_peak;
    EXPECT_LT(some, recorded.allocated_peak());
    EXPECT_GT(some, all.likely.allocated_peak);
    change.checkpoint_modules = {"blocks.*"};
    EXPECT_FALSE(planner->plan(change));
  }
  TransformerShape unknown;
  unknown.modules = false;
  const TransformerRun run(unknown);
  PlanChange change;
  change.checkpoint = true;
  const auto outcome = planner_of(run.process())->plan(change);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("nn.Modules"), std::string::npos);
}

uint64_t bytes_of(const PlanOutcome& outcome, Category category, bool planned = true) {
  for (const CategoryBytes& c : outcome.categories) {
    if (c.category == category) return planned ? c.planned : c.recorded;
  }
  return 0;
}

// The sum over all tokens has a buffer that the card limits, in any precision.
TEST(Plan, BuffersOfReductionsStopGrowing) {
  TransformerShape shape;
  shape.layers = 1;
  shape.width = 64;
  shape.head_bias = true;
  for (const uint64_t words : std::vector<uint64_t>{400, 3000, 16000}) {
    for (const double factor : {0.25, 0.5, 2.0, 4.0, 16.0}) {
      SCOPED_TRACE(std::to_string(words) + " words, batch " + std::to_string(factor));
      shape.words = words;
      shape.batch = 32;
      const TransformerRun recorded(shape);
      TransformerShape other = shape;
      other.batch = static_cast<uint64_t>(32 * factor);
      PlanChange change;
      change.batch = factor;
      const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
      const TransformerRun real(other);
      expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.01);
      expect_close(outcome.likely.reserved_peak, real.reserved_peak(), 0.02);
    }
    TransformerShape other = shape;
    other.number_bytes = 2;
    PlanChange change;
    change.precision = PlanPrecision::kHalf;
    const TransformerRun recorded(shape);
    const TransformerRun real(other);
    const PlanOutcome outcome = planned(*planner_of(recorded.process()), change);
    expect_close(outcome.likely.allocated_peak, real.allocated_peak(), 0.01);
    expect_close(outcome.likely.reserved_peak, real.reserved_peak(), 0.02);
  }
}

TEST(Plan, LayersAreInListsOrHaveNumbers) {
  for (const char* name :
       {"layers.", "stages.1.", "encoder.layers.encoder_layer_", "features.denseblock"}) {
    SCOPED_TRACE(name);
    TransformerShape shape;
    shape.layer_name = name;
    const TransformerRun run(shape);
    const RecordedProgram program(run.process(), run.process().framework.front());
    const Layers layers(program);
    EXPECT_EQ(layers.paths().size(), shape.layers);
    EXPECT_EQ(layers.paths().front(), std::string(name) + "0");
  }
}

TEST(Plan, ShardsAreDivided) {
  TransformerShape shape;
  shape.batch = 1;
  shape.seq = 32;  // weights are what counts
  const TransformerRun run(shape);
  const auto planner = planner_of(run.process());
  const PlanOutcome alone = planned(*planner, {});
  const auto sharded = [&](PlanShard shard, uint32_t ranks) {
    PlanChange change;
    change.shard = shard;
    change.ranks = ranks;
    return planned(*planner, change);
  };
  const uint64_t parameters = bytes_of(alone, Category::kParameter, false);
  const uint64_t states = bytes_of(alone, Category::kOptimizerState, false);
  expect_close(states, 2 * parameters, 0.01);
  // Buckets hold every gradient once more.
  expect_close(sharded(PlanShard::kDdp, 2).likely.allocated_peak,
               alone.likely.allocated_peak + parameters, 0.01);
  expect_close(bytes_of(sharded(PlanShard::kZero1, 4), Category::kOptimizerState), states / 4,
               0.01);
  const PlanOutcome two = sharded(PlanShard::kZero3, 2);
  const PlanOutcome four = sharded(PlanShard::kZero3, 4);
  expect_close(bytes_of(two, Category::kParameter), parameters / 2, 0.02);
  EXPECT_LT(four.likely.allocated_peak, two.likely.allocated_peak);
  EXPECT_LT(two.likely.allocated_peak, alone.likely.allocated_peak);
  // What is left is at least the shards.
  EXPECT_GT(four.likely.allocated_peak, (2 * parameters + states) / 4);
}

// Of a card that was not read, what the CUDA context is assumed to take.
constexpr uint64_t kContextBytes = uint64_t{640} << 20;

TEST(Plan, TheLargestBatchFitsAndMoreDoesNot) {
  TransformerShape shape;
  shape.batch = 8;
  const TransformerRun recorded(shape);
  const uint64_t card = 3 * recorded.reserved_peak();
  const auto planner = planner_of(recorded.process(), card + kContextBytes);
  EXPECT_TRUE(planner->assumes_outside());
  EXPECT_EQ(planner->capacity(), card);
  const Result<FittingBatch> batch = largest_batch(*planner, {}, shape.batch);
  ASSERT_TRUE(batch);
  EXPECT_GT(batch->samples, 2 * shape.batch);
  TransformerShape fits = shape;
  fits.batch = batch->samples;
  EXPECT_FALSE(TransformerRun(fits, card).ran_out());
  fits.batch = batch->samples * 11 / 10 + 1;
  EXPECT_TRUE(TransformerRun(fits, card).ran_out());
}

TEST(Plan, AFailedRunFitsAfterTheCheapestChanges) {
  TransformerShape shape;
  shape.batch = 24;
  const uint64_t needed = TransformerRun(shape).reserved_peak();
  shape.card = needed * 9 / 10;
  const TransformerRun failed(shape, shape.card);
  ASSERT_TRUE(failed.ran_out());
  const auto planner = planner_of(failed.process());
  EXPECT_TRUE(planner->ran_out());
  EXPECT_FALSE(planned(*planner, {}).fits());
  const auto change = cheapest_fit(*planner, {}, shape.batch);
  ASSERT_TRUE(change);
  EXPECT_TRUE(planned(*planner, *change).fits()) << change->text();
}

// Without modules to checkpoint and without states.
TransformerShape bare_shape() {
  TransformerShape shape;
  shape.modules = false;
  shape.optimizer = TransformerShape::Optimizer::kSgd;
  return shape;
}

TEST(Plan, AutocastIsFollowedByAWholeModelIn16Bits) {
  TransformerShape shape = bare_shape();
  shape.autocast = true;
  const TransformerRun recorded(shape);
  const auto planner =
      planner_of(recorded.process(), recorded.reserved_peak() * 8 / 10 + kContextBytes);
  ASSERT_TRUE(planner->program().autocasts());
  const auto change = cheapest_fit(*planner, {}, shape.batch);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->precision, PlanPrecision::kHalf);
}

// There is nothing between one sample and none.
TEST(Plan, SmallerBatchesHaveWholeSamples) {
  for (const uint64_t samples : {1U, 3U, 6U}) {
    SCOPED_TRACE(samples);
    TransformerShape shape = bare_shape();
    shape.batch = samples;
    const TransformerRun recorded(shape);
    for (const uint64_t percent : {15U, 30U, 50U}) {
      const uint64_t card = recorded.reserved_peak() * percent / 100 + kContextBytes;
      const auto planner = planner_of(recorded.process(), card);
      const auto change = cheapest_fit(*planner, {}, samples);
      if (!change) continue;
      const double wanted = change->batch * static_cast<double>(samples);
      EXPECT_GE(wanted, 1);
      EXPECT_NEAR(wanted, std::round(wanted), 1e-9);
    }
  }
}

// AdamW makes its states in the first step, after the passes that later steps add them to.
TEST(Plan, LaterStepsKeepTheStatesThatTheFirstOneMade) {
  TransformerShape shape;
  shape.steps = 1;
  TransformerShape more = shape;
  more.steps = 3;
  const TransformerRun first(shape);
  const TransformerRun later(more);
  ASSERT_LT(first.allocated_peak(), later.allocated_peak());
  const auto planner = planner_of(first.process());
  const PlanOutcome outcome = planned(*planner, {});
  expect_close(outcome.likely.allocated_peak, later.allocated_peak(), 0.03);
  expect_close(outcome.likely.reserved_peak, later.reserved_peak(), 0.1);
  EXPECT_TRUE(says(outcome, "later steps also keep"));
  EXPECT_EQ(planner->replayed_reserved_peak(), first.reserved_peak());
  PlanChange twice;
  twice.batch = 2;
  more.batch *= 2;
  const TransformerRun twice_later(more);
  expect_close(planned(*planner, twice).likely.allocated_peak, twice_later.allocated_peak(), 0.03);
  EXPECT_FALSE(says(planned(*planner_of(later.process()), {}), "later steps also keep"));
  // States that the recorded optimizer does not have.
  shape.optimizer = TransformerShape::Optimizer::kSgd;
  more.batch = shape.batch;
  more.optimizer = TransformerShape::Optimizer::kBytes;
  PlanChange change;
  change.optimizer = PlanOptimizer::kAdamW8bit;
  const TransformerRun plain(shape);
  expect_close(planned(*planner_of(plain.process()), change).likely.allocated_peak,
               TransformerRun(more).allocated_peak(), 0.01);
}

TEST(Plan, AssumptionsTellWhatThePlanCounts) {
  TransformerShape shape;
  const TransformerRun run(shape);
  const auto planner = planner_of(run.process());
  PlanChange change;
  change.seq = 2;
  EXPECT_TRUE(says(planned(*planner, change), "grow with the length"));
  change.batch = 2;
  EXPECT_TRUE(says(planned(*planner, change), "grow with the batch and the length"));
  // States from before the history, whose optimizer was not recorded.
  const Trace older([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    for (int i = 0; i < 8; ++i) s.older_block(8 * kMiB, s.optimizer("_init_group"));
    for (int i = 0; i < 4; ++i) s.alloc(12 * kMiB, s.forward(i));
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, 0);
  });
  const PlanOutcome kept = planned(*planner_of(older.model().processes[0]), {});
  EXPECT_FALSE(says(kept, "its states may be missing"));
  // A program that is not trained has no gradients to collect.
  const Trace served([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    for (int i = 0; i < 4; ++i) s.free(s.alloc(12 * kMiB, s.forward(i)));
  });
  PlanChange ddp;
  ddp.shard = PlanShard::kDdp;
  ddp.ranks = 2;
  EXPECT_TRUE(says(planned(*planner_of(served.model().processes[0]), ddp), "there are no buckets"));
  EXPECT_FALSE(says(planned(*planner, ddp), "there are no buckets"));
}

// What grows with a batch is not known without a pass; what does not is planned.
TEST(Plan, BatchesNeedAForwardPass) {
  for (const bool steps : {false, true}) {
    const Trace trace([steps](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
      for (int i = 0; i < 8 && steps; ++i) s.alloc(8 * kMiB, s.optimizer("_init_group"));
    });
    PlanQuestion question;
    question.options.whatif.card_bytes = uint64_t{8} << 30;
    EXPECT_TRUE(make_plan_report(trace.model(), nullptr, question));
    question.fit = true;
    for (const auto& [batch, seq] :
         {std::pair{1.0, 1.0}, std::pair{2.0, 1.0}, std::pair{1.0, 2.0}}) {
      question.change.batch = batch;
      question.change.seq = seq;
      const auto refused = make_plan_report(trace.model(), nullptr, question);
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find("no forward pass"), std::string::npos);
      question.fit = false;
    }
  }
}

// Other processes and contexts held the rest of the card: what ran out there does not fit it,
// whether its size is given or not.
TEST(Plan, ARunThatRanOutDoesNotFitTheSameCard) {
  for (const uint64_t batch : {12U, 24U}) {
    TransformerShape shape;
    shape.batch = batch;
    const uint64_t limit = TransformerRun(shape).reserved_peak() * 9 / 10;
    const TransformerRun failed(shape, limit);
    ASSERT_TRUE(failed.ran_out());
    const uint64_t known = limit_of(failed.process(), failed.process().framework[0]).bytes;
    for (const uint64_t card : {uint64_t{0}, limit, known + known / 16}) {
      const auto planner = planner_of(failed.process(), card);
      EXPECT_FALSE(planned(*planner, {}).fits()) << batch << " on " << card;
      EXPECT_TRUE(planner->ends_at_error());
    }
    const auto larger = planner_of(failed.process(), 2 * limit + kContextBytes);
    EXPECT_TRUE(planned(*larger, {}).fits());
  }
}

// A step that did not end says nothing about the batch.
TEST(Plan, ARunThatFailedInItsFirstStepHasNoWholeStep) {
  TransformerShape shape;
  shape.batch = 24;
  const uint64_t needed = TransformerRun(shape).reserved_peak();
  const TransformerRun early(shape, needed / 3);
  ASSERT_TRUE(early.ran_out());
  EXPECT_FALSE(planner_of(early.process())->has_whole_step());
  const TransformerRun run(shape);
  const auto whole = planner_of(run.process());
  EXPECT_TRUE(whole->has_whole_step());
  EXPECT_FALSE(whole->ends_at_error());
}

TEST(Plan, ReportsAndErrors) {
  const TransformerRun run({});
  PlanQuestion question;
  question.change.batch = 2;
  question.fit = true;
  const auto report = make_plan_report(run.model(), nullptr, question);
  ASSERT_TRUE(report) << report.error().message;
  const PlanDevice& d = report->devices.front();
  EXPECT_EQ(d.recorded_reserved_peak, run.reserved_peak());
  EXPECT_FALSE(d.recorded_curve.empty());
  EXPECT_FALSE(d.outcome.curve.empty());
  EXPECT_EQ(d.outcome.layers.size(), 4 + 2 + 1U);  // the embedding, the head, and what has none
  ASSERT_TRUE(d.fit);
  EXPECT_GT(d.fit->batch.factor, 2);
  question.device = 7;
  EXPECT_FALSE(make_plan_report(run.model(), nullptr, question));

  // Sizes without any stack.
  const Trace nothing([](Story& story, uint32_t) {
    for (int i = 0; i < 20; ++i) story.free(story.alloc(4 * kMiB, 0));
  });
  const auto refused = Planner::prepare(nothing.model().processes.front(), 0, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("parameters and activations"), std::string::npos);
}

// Free memory from before the history is not reserved again in a replay, and may stay reserved.
TEST(Plan, TheRangeHasWhatTheReplayLacks) {
  const Trace trace([](Story& s, uint32_t) {
    s.segment_state(uint64_t{1} << 43, 512 * kMiB, 0);
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    for (int i = 0; i < 4; ++i) s.alloc(12 * kMiB, s.forward(i));
  });
  const auto planner = planner_of(trace.model().processes[0]);
  const PlanOutcome same = planned(*planner, {});
  EXPECT_LT(same.likely.reserved_peak, planner->whatif().recorded_reserved_peak());
  EXPECT_EQ(same.high_reserved, planner->whatif().recorded_reserved_peak());
  EXPECT_TRUE(says(same, "replayed without a change"));
}

TEST(Plan, FactorsAndNames) {
  EXPECT_EQ(*parse_factor("--batch", "2x"), 2);
  EXPECT_EQ(*parse_factor("--batch", "0.5"), 0.5);
  EXPECT_EQ(*parse_factor("--batch", "3/4"), 0.75);
  for (const char* bad : {"", "x", "-1x", "0", "2y", "1/0", "nan", "inf", "1e9"}) {
    EXPECT_FALSE(parse_factor("--batch", bad)) << bad;
  }
  EXPECT_FALSE(parse_precision("fp8"));
  EXPECT_FALSE(parse_optimizer("lion"));
  EXPECT_FALSE(parse_shard("zero4"));
  PlanChange change;
  EXPECT_EQ(change.text(), "the recorded program");
  change.batch = 0.5;
  change.optimizer = PlanOptimizer::kSgd;
  EXPECT_EQ(change.text(), "batch 0.5x, optimizer sgd");
  EXPECT_EQ(factor_text(1.0 / 16), "1/16");
  EXPECT_EQ(factor_text(0.25), "0.25");
}

}  // namespace
}  // namespace tidemark
