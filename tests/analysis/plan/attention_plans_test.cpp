// Matrices of attention in plans for other lengths: their place tells them from what has their
// size.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr int kLayers = 4;
constexpr uint64_t kWeight = 7 * kMiB;
constexpr uint64_t kToken = 5 * kMiB;    // queries, keys, values, results
constexpr uint64_t kMatrix = 12 * kMiB;  // scores
constexpr uint64_t kSum = 64 << 10;

PlanOutcome twice_as_long(const Trace& trace) {
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner) << (planner ? "" : planner.error().message);
  if (!planner) return {};
  PlanChange change;
  change.seq = 2;
  Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);
  return outcome ? *outcome : PlanOutcome{};
}

// Operations of a model's own lines, as a snapshot with native frames has them.
class Model {
 public:
  explicit Model(Story& story) : s_(story) {
    for (int i = 0; i < kLayers; ++i) s_.alloc(kWeight, s_.setup());
  }
  uint64_t forward(const std::string& operation, int line, uint64_t bytes) {
    return s_.alloc(
        bytes, s_.stack({"malloc(unsigned) a.cpp:1", "at::_ops::" + operation + "::call(x) b.cpp:2",
                         "compute model.py:" + std::to_string(line), "forward model.py:9",
                         "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}));
  }
  // Scores, their softmax as written out, and its product with the values.
  void attend() {
    forward("mul", 1, kToken);
    forward("bmm", 2, kMatrix);
    forward("exp", 3, kMatrix);
    forward("sum_dim_IntList", 3, kSum);
    forward("div", 4, kMatrix);
    forward("bmm", 5, kToken);
  }
  uint64_t node(const std::string& name, uint64_t bytes) { return s_.alloc(bytes, s_.node(name)); }

 private:
  Story& s_;
};

constexpr uint64_t kLongAttention = 2 * 2 * kToken + 4 * 3 * kMatrix + 2 * kSum;

TEST(AttentionPlans, AWrittenOutSoftmaxHasSquareMatrices) {
  const Trace trace([](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < kLayers; ++i) model.attend();
  });
  const PlanOutcome twice = twice_as_long(trace);
  EXPECT_EQ(twice.likely.allocated_peak, kLayers * (kWeight + kLongAttention));
  EXPECT_LT(twice.low_reserved, twice.likely.reserved_peak);
}

class FeedForward : public testing::TestWithParam<uint64_t> {};

// Its results have the size of a matrix, or twice of it, and grow as the tokens do.
TEST_P(FeedForward, IsNoMatrix) {
  const uint64_t hidden = GetParam();
  const Trace trace([hidden](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < kLayers; ++i) {
      model.attend();
      model.forward("add", 6, kToken);
      model.forward("einsum", 7, hidden);
      model.forward("sigmoid", 8, hidden);
      model.forward("mul", 8, hidden);
      model.forward("einsum", 9, kToken);
    }
  });
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak,
            kLayers * (kWeight + kLongAttention + 2 * (2 * kToken + 3 * hidden)));
}

// Nor is one whose activation function has an exponential.
TEST_P(FeedForward, IsNoSoftmax) {
  const uint64_t hidden = GetParam();
  const Trace trace([hidden](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < kLayers; ++i) {
      model.attend();
      model.forward("einsum", 7, hidden);
      model.forward("exp", 8, hidden);
      model.forward("div", 8, hidden);
      model.forward("einsum", 9, kToken);
    }
  });
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak,
            kLayers * (kWeight + kLongAttention + 2 * (kToken + 3 * hidden)));
}

// Of a step whose peak is in the backward pass.
TEST_P(FeedForward, HasNoMatricesInItsBackwardPass) {
  const uint64_t hidden = GetParam();
  const Trace trace([hidden](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < kLayers; ++i) model.attend();
    model.node("BmmBackward0", hidden);
    model.node("MulBackward0", hidden);
    model.node("BmmBackward0", kMatrix);
    model.node("DivBackward0", kMatrix);
    model.node("ExpBackward0", kMatrix);
    model.node("BmmBackward0", kToken);
    model.node("BmmBackward0", hidden);
    model.node("MulBackward0", hidden);
    model.node("BmmBackward0", kToken);
  });
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak,
            kLayers * (kWeight + kLongAttention) + 4 * 3 * kMatrix + 2 * (2 * kToken + 4 * hidden));
}

INSTANTIATE_TEST_SUITE_P(Sizes, FeedForward, testing::Values(kMatrix / 2, kMatrix, 2 * kMatrix));

}  // namespace
}  // namespace tidemark
