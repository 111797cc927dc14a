// What two recordings of a program tell of how it grows, and which two tell nothing.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr int kLayers = 4;
constexpr uint64_t kToken = 5 * kMiB;    // queries, keys, values, results
constexpr uint64_t kMatrix = 12 * kMiB;  // scores

struct Shape {
  uint64_t length = 1;
  uint64_t batch = 1;
  uint64_t weight = 7 * kMiB;
  int layers = kLayers;
  std::string folder = "/home/";
  std::string interpreter = "_PyEval_EvalFrameDefault ceval.cpp:3000";
  int library_line = 81;
  bool earlier_pass = false;  // from before the history, of which the results are still there
  int moved_lines = 0;        // of another version of the program
};

// Attention and a hidden layer, whose results have the size of its matrices in the shortest run.
class Model {
 public:
  Model(Story& story, const Shape& shape) : s_(story), shape_(shape) {
    for (int i = 0; i < shape_.layers; ++i) s_.alloc(shape_.weight, s_.setup());
  }
  void forward() {
    for (int i = 0; i < shape_.layers; ++i) {
      const uint64_t tokens = shape_.batch * shape_.length;
      make("mul", 1, tokens * kToken);
      make("bmm", 2 + shape_.moved_lines, tokens * shape_.length * kMatrix);
      make("softmax", 3 + shape_.moved_lines, tokens * shape_.length * kMatrix);
      make("bmm", 4 + shape_.moved_lines, tokens * kToken);
      make("einsum", 6 + shape_.moved_lines, tokens * kMatrix);
      make("einsum", 7 + shape_.moved_lines, tokens * kToken);
    }
  }

 private:
  void make(const std::string& operation, int line, uint64_t bytes) {
    const uint32_t stack =
        s_.stack({"at::_ops::" + operation + "::call(x) b.cpp:2", shape_.interpreter,
                  "compute " + shape_.folder + "model.py:" + std::to_string(line),
                  "inner " + shape_.folder +
                      "lib/python3.12/contextlib.py:" + std::to_string(shape_.library_line),
                  "forward " + shape_.folder + "model.py:9",
                  "_call_impl torch/nn/modules/module.py:1", "train train.py:10"});
    if (shape_.earlier_pass) s_.older_block(bytes, stack);
    s_.alloc(bytes, stack);
  }

  Story& s_;
  Shape shape_;
};

Trace recording(const Shape& shape) {
  return Trace([&](Story& s, uint32_t) { Model(s, shape).forward(); });
}

std::unique_ptr<Planner> planner_of(const Trace& trace) {
  auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner) << (planner ? "" : planner.error().message);
  return planner ? std::move(*planner) : nullptr;
}

Status learn(Planner& planner, const Trace& other, Dimension dimension) {
  return planner.learn(other.model().processes[0], dimension);
}

uint64_t peak_of(const Trace& trace) {
  return trace.model().processes[0].framework[0].allocated_peak.bytes;
}

uint64_t planned_peak(const Planner& planner, double seq) {
  PlanChange change;
  change.seq = seq;
  const Result<PlanOutcome> outcome = planner.plan(change);
  EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);
  return outcome ? outcome->likely.allocated_peak : 0;
}

// The matrices have most of the bytes, and grow with the square.
TEST(TwoRecordings, TellTheRatioOfTheirLengthsInEitherOrder) {
  const Trace shorter = recording({.length = 2});
  const Trace longer = recording({.length = 8});
  const Trace between = recording({.length = 4});
  const auto up = planner_of(shorter);
  ASSERT_TRUE(learn(*up, longer, Dimension::kSequence));
  EXPECT_NEAR(up->learnt().ratio, 4, 0.001);
  EXPECT_EQ(planned_peak(*up, 2), peak_of(between));
  const auto down = planner_of(longer);
  ASSERT_TRUE(learn(*down, shorter, Dimension::kSequence));
  EXPECT_NEAR(down->learnt().ratio, 0.25, 0.001);
  EXPECT_EQ(planned_peak(*down, 0.5), peak_of(between));
}

TEST(TwoRecordings, OfOtherLengthsTellNothingOfBatches) {
  const Trace trace = recording({.length = 2});
  const auto planner = planner_of(trace);
  const Status longer = learn(*planner, recording({.length = 4}), Dimension::kBatch);
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message.find("differs in the length of its sequences"),
            std::string::npos);
  EXPECT_TRUE(learn(*planner, recording({.length = 2, .batch = 4}), Dimension::kBatch));
  EXPECT_NEAR(planner->learnt().ratio, 4, 0.001);
}

TEST(TwoRecordings, HaveTheSameWeights) {
  const Trace trace = recording({});
  for (const Shape& other :
       {Shape{.batch = 2, .weight = 8 * kMiB}, Shape{.batch = 2, .layers = kLayers + 1}}) {
    const Status ok = learn(*planner_of(trace), recording(other), Dimension::kBatch);
    ASSERT_FALSE(ok);
    EXPECT_NE(ok.error().message.find("their weights differ"), std::string::npos);
  }
}

TEST(TwoRecordings, MayComeFromTwoMachines) {
  const Trace trace = recording({.length = 2});
  const Trace other = recording({.length = 4,
                                 .folder = "/srv/checkout/",
                                 .interpreter = "_PyEval_Vector pycore_ceval.cpp:89",
                                 .library_line = 85});
  const auto planner = planner_of(trace);
  EXPECT_TRUE(learn(*planner, other, Dimension::kSequence));
  EXPECT_EQ(planner->learnt().matched_bytes, planner->learnt().all_bytes);
}

// They have no place among the recorded ones, but their sizes.
TEST(TwoRecordings, TellHowOlderResultsGrow) {
  const Trace trace = recording({.earlier_pass = true});
  const auto planner = planner_of(trace);
  ASSERT_TRUE(
      learn(*planner, recording({.length = 2, .earlier_pass = true}), Dimension::kSequence));
  EXPECT_EQ(planned_peak(*planner, 4), peak_of(recording({.length = 4, .earlier_pass = true})));
}

// A line that both have is not enough.
TEST(TwoRecordings, OfTwoProgramsTellNothing) {
  const Trace trace = recording({});
  const Status other =
      learn(*planner_of(trace), recording({.batch = 2, .moved_lines = 50}), Dimension::kBatch);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("only 9.8 % of the bytes that grow"), std::string::npos)
      << other.error().message;
  const Status absurd = learn(*planner_of(trace), recording({.batch = 512}), Dimension::kBatch);
  ASSERT_FALSE(absurd);
  EXPECT_NE(absurd.error().message.find("512x the batch"), std::string::npos)
      << absurd.error().message;
}

}  // namespace
}  // namespace tidemark
