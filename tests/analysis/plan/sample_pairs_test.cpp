// Plans of programs whose own lines compute a number for each pair of samples, or of positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/plan/plan.h"
#include "tests/support/planned.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using test::expect_close;

constexpr uint64_t kSamples = 1280;
constexpr uint64_t kPairs = kSamples * kSamples;

// Two towers and a loss over all pairs. The first layer of `masked` also makes a mask of that size.
class Contrastive {
 public:
  explicit Contrastive(Story& s, uint64_t features = 1, bool masked = false)
      : s_(s), features_(features), masked_(masked) {
    for (const uint64_t kib : {768U, 960U, 1152U}) s_.alloc(kib << 10U, s_.setup());
  }

  void step() {
    std::vector<uint64_t> kept;
    for (const int line : {11, 12}) {
      kept.push_back(s_.alloc(kSamples * 4 * 600, s_.stack({"train train.py:" + at(line)})));
    }
    const std::vector<uint64_t> inputs = kept;
    kept.clear();
    for (int layer = 1; layer <= 3; ++layer) {
      kept.push_back(s_.alloc(kSamples * 4 * 450, in_module("torch/nn/modules/linear.py", layer)));
      if (masked_ && layer == 1) kept.push_back(s_.alloc(4 * kPairs, in_module("model.py", 5)));
    }
    const uint32_t loss = s_.stack({"pair_loss loss.py:4", "train train.py:14"});
    const uint64_t labels =
        s_.alloc(8 * kSamples, s_.stack({"pair_loss loss.py:3", "train train.py:14"}));
    if (!masked_) {
      if (features_ > 1) {
        kept.push_back(s_.alloc(4 * kSamples * features_, s_.forward(8)));
        kept.push_back(s_.alloc(4 * kPairs * features_, loss));
      }
      kept.push_back(s_.alloc(4 * kPairs, loss));
      kept.push_back(s_.alloc(4 * kPairs, s_.stack({"cross_entropy torch/nn/functional.py:9",
                                                    "pair_loss loss.py:5", "train train.py:14"})));
    }
    std::reverse(kept.begin(), kept.end());
    for (const uint64_t block : kept) {
      s_.free(s_.alloc(kSamples * 4 * 450, s_.node("AddmmBackward0")));
      s_.free(block);
    }
    s_.free(labels);
    for (const uint64_t input : inputs) s_.free(input);
    s_.free(s_.alloc(768U << 10U, s_.optimizer("_multi_tensor_adam")));
  }

 private:
  static std::string at(int line) { return std::to_string(line); }
  uint32_t in_module(const std::string& file, int line) {
    return s_.stack({"forward " + file + ":" + at(line), "_call_impl torch/nn/modules/module.py:1",
                     "train train.py:13"});
  }
  Story& s_;
  uint64_t features_;
  bool masked_;
};

PlanOutcome plan_of(const Trace& trace, double batch, double seq = 1) {
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner) << (planner ? "" : planner.error().message);
  if (!planner) return {};
  PlanChange change;
  change.batch = batch;
  change.seq = seq;
  Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome);
  return outcome ? *outcome : PlanOutcome{};
}

uint64_t peak_of(const Trace& trace) {
  return trace.model().processes[0].framework[0].allocated_peak.bytes;
}

Trace contrastive(uint64_t features, bool masked = false) {
  return Trace([=](Story& s, uint32_t) {
    Contrastive program(s, features, masked);
    for (int step = 0; step < 4; ++step) program.step();
  });
}

bool names_pairs(const PlanOutcome& plan, std::string_view line) {
  return std::any_of(plan.assumptions.begin(), plan.assumptions.end(), [&](const std::string& a) {
    return a.find("square of the batch") != a.npos && a.find(line) != a.npos;
  });
}

TEST(SamplePairs, GrowWithTheSquareOfTheBatch) {
  const Trace trace = contrastive(1);
  const PlanOutcome plan = plan_of(trace, 2);
  const uint64_t weights = (768U + 960U + 1152U) << 10U;
  const uint64_t matrices = 2 * 4 * kPairs;
  const uint64_t linear = 2 * (peak_of(trace) - weights - matrices);
  expect_close(plan.likely.allocated_peak, weights + 4 * matrices + linear, 0.03);
  // It may be a coincidence.
  expect_close(plan.low_allocated, weights + 2 * matrices + linear, 0.03);
  EXPECT_TRUE(names_pairs(plan, "loss.py:4"));
}

TEST(SamplePairs, MayHaveSeveralNumbersEach) {
  const Trace trace = contrastive(6);
  const PlanOutcome plan = plan_of(trace, 2);
  EXPECT_GT(plan.likely.allocated_peak, 4 * 8 * 4 * kPairs);
}

// A layer that follows uses it: it is of positions, and other samples do not change its size.
TEST(SamplePairs, MasksAreOfPositions) {
  const Trace trace = contrastive(1, true);
  const PlanOutcome twice = plan_of(trace, 2);
  EXPECT_FALSE(names_pairs(twice, ""));
  EXPECT_LE(twice.likely.allocated_peak, 2 * peak_of(trace));
}

// Blocks that are several times as large as what any layer computes are masks or the like.
TEST(WideResults, GrowWithTheSquareOfTheLength) {
  const Trace trace([](Story& s, uint32_t) {
    for (const uint64_t kib : {768U, 960U, 1152U}) s.alloc(kib << 10U, s.setup());
    for (int step = 0; step < 4; ++step) {
      const uint64_t input = s.alloc(kMiB, s.user(3));
      const uint64_t hidden = s.alloc(4 * kMiB, s.forward(1));
      const uint64_t mask = s.alloc(
          48 * kMiB, s.stack({"position_bias model.py:8", "forward model.py:9",
                              "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}));
      const uint64_t out = s.alloc(4 * kMiB, s.forward(2));
      s.free(s.alloc(4 * kMiB, s.node("AddmmBackward0")));
      for (const uint64_t block : {out, mask, hidden, input}) s.free(block);
      s.free(s.alloc(768U << 10U, s.optimizer("_multi_tensor_adam")));
    }
  });
  const PlanOutcome plan = plan_of(trace, 1, 2);
  EXPECT_GT(plan.likely.allocated_peak, 192 * kMiB);
  EXPECT_LT(plan.low_allocated, 128 * kMiB);
}

}  // namespace
}  // namespace tidemark
