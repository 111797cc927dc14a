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
  // `earlier`: each block has one of the same size that is older than the history.
  explicit Model(Story& story, bool earlier = false) : s_(story), earlier_(earlier) {
    for (int i = 0; i < kLayers; ++i) s_.alloc(kWeight, s_.setup());
  }
  uint64_t forward(const std::string& operation, int line, uint64_t bytes) {
    const uint32_t stack =
        s_.stack({"malloc(unsigned) a.cpp:1", "at::_ops::" + operation + "::call(x) b.cpp:2",
                  "compute model.py:" + std::to_string(line), "forward model.py:9",
                  "_call_impl torch/nn/modules/module.py:1", "train train.py:10"});
    if (earlier_) s_.older_block(bytes, stack);
    return s_.alloc(bytes, stack);
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
  bool earlier_;
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

// Attention that the program calls without a module, before a loss that is one.
TEST(AttentionPlans, FunctionsNeedNoModule) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const auto call = [&](const std::string& operation, const std::string& function,
                          uint64_t bytes) {
      const std::vector<std::string> frames = {"at::_ops::" + operation + "::call(x) b.cpp:2",
                                               function + " model.py:3", "train train.py:10"};
      return s.alloc(bytes, s.stack(frames));
    };
    for (int i = 0; i < kLayers; ++i) {
      const uint64_t scores = call("matmul", "scaled_dot_product_attention", kMatrix);
      const uint64_t exponential = call("exp", "softmax", kMatrix);
      call("sum_dim_IntList", "softmax", kSum);
      const uint64_t softmax = call("div", "softmax", kMatrix);
      call("matmul", "scaled_dot_product_attention", kToken);
      for (const uint64_t block : {scores, exponential, softmax}) s.free(block);
      s.alloc(kToken, s.forward(1));
    }
  });
  EXPECT_EQ(
      twice_as_long(trace).likely.allocated_peak,
      kLayers * kWeight + 4 * 3 * kMatrix + 2 * kLayers * kSum + 2 * (2 * kLayers - 1) * kToken);
}

// A line of a model that the training loop calls, from the innermost function outwards.
uint32_t in_model(Story& s, std::vector<std::string> frames) {
  for (const char* frame : {"_call_impl torch/nn/modules/module.py:1", "forward model.py:20",
                            "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}) {
    frames.emplace_back(frame);
  }
  return s.stack(frames);
}

TEST(AttentionPlans, TheFileOfAModuleNamesItsSoftmax) {
  constexpr uint64_t kSmall = 2 * kMiB;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    for (int i = 0; i < kLayers; ++i) {
      s.alloc(kSmall, in_model(s, {"forward linear.py:3"}));
      s.alloc(kMatrix, in_model(s, {"einsum torch/functional.py:407", "forward attend.py:28"}));
      s.alloc(kMatrix,
              in_model(s, {"forward ops/softmax.py:14", "_call_impl torch/nn/modules/module.py:1",
                           "forward attend.py:37"}));
      s.alloc(kSmall, in_model(s, {"einsum torch/functional.py:407", "forward attend.py:40"}));
    }
  });
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak,
            kLayers * (kWeight + 4 * 2 * kMatrix + 2 * 2 * kSmall));
}

// A function of attention has its matrices on several lines; a feed-forward block of their size has
// another caller.
TEST(AttentionPlans, AFunctionNamedAfterAttentionNeedsNoSoftmax) {
  constexpr uint64_t kSmall = 2 * kMiB;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const auto call = [&](const std::string& function, int line, uint64_t bytes) {
      const bool attends = function != "forward";
      const std::string own = function + " ops.py:" + std::to_string(line);
      s.alloc(bytes, in_model(s, {own, attends ? "forward part.py:8" : "forward mlp.py:2"}));
    };
    for (int i = 0; i < kLayers; ++i) {
      call("forward", 1, kSmall);
      for (const int line : {20, 21, 22}) call("causal_attention", line, kMatrix);
      call("causal_attention", 23, kSmall);
      s.alloc(kMatrix, s.stack({"forward mlp.py:7", "_call_impl torch/nn/modules/module.py:1",
                                "forward model.py:21", "_call_impl torch/nn/modules/module.py:1",
                                "train train.py:10"}));
    }
  });
  const PlanOutcome twice = twice_as_long(trace);
  EXPECT_EQ(twice.likely.allocated_peak,
            kLayers * (kWeight + 4 * 3 * kMatrix + 2 * (2 * kSmall + kMatrix)));
  EXPECT_LT(twice.low_allocated, twice.likely.allocated_peak);
}

// Products without a frame: "q @ k.T", and a loss with a softmax of the same function.
TEST(AttentionPlans, ProductsNeedNoFrame) {
  constexpr uint64_t kSmall = 2 * kMiB;
  constexpr uint64_t kQueries = 16 * kMiB;
  constexpr uint64_t kLogits = 26 * kMiB;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    for (int step = 0; step < 2; ++step) {
      std::vector<uint64_t> kept;
      const auto call = [&](uint64_t bytes, const std::vector<std::string>& frames) {
        kept.push_back(s.alloc(bytes, in_model(s, frames)));
      };
      const auto softmax = [&](uint64_t bytes, const std::string& caller) {
        call(kSum, {"softmax ops.py:5", caller, "forward part.py:8"});
        call(bytes, {"softmax ops.py:6", caller, "forward part.py:8"});
        call(kSum, {"softmax ops.py:7", caller, "forward part.py:8"});
        call(bytes, {"softmax ops.py:7", caller, "forward part.py:8"});
      };
      for (int i = 0; i < kLayers; ++i) {
        call(kSmall, {"forward linear.py:3"});
        call(kQueries, {"attend ops.py:19", "forward part.py:8"});
        call(kMatrix, {"attend ops.py:20", "forward part.py:8"});
        softmax(kMatrix, "attend ops.py:21");
        call(kSmall, {"attend ops.py:22", "forward part.py:8"});
      }
      call(kLogits, {"cross_entropy ops.py:30", "forward part.py:8"});
      softmax(kLogits, "cross_entropy ops.py:31");
      call(kSum, {"cross_entropy ops.py:32", "forward part.py:8"});
      for (int i = 0; i < kLayers; ++i) kept.push_back(s.alloc(kMiB, 0));
      for (const uint64_t block : kept) s.free(block);
    }
  });
  const uint64_t layer = 4 * 3 * kMatrix + 2 * (2 * kSmall + kQueries + 2 * kSum);
  const uint64_t loss = 2 * (3 * kLogits + 3 * kSum);
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak, kLayers * (kWeight + layer + kMiB) + loss);
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

// Without native frames and names of modules, the lines that call modules tell.
TEST_P(FeedForward, IsCalledOnAnotherLine) {
  constexpr uint64_t kSmall = 2 * kMiB;  // queries, keys, values
  const uint64_t hidden = GetParam();
  const auto step = [&](Story& s, const std::string& operation, int line, int caller,
                        uint64_t bytes) {
    s.alloc(bytes, s.stack({operation + " model.py:" + std::to_string(line),
                            "_call_impl torch/nn/modules/module.py:1",
                            "forward model.py:" + std::to_string(caller),
                            "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}));
  };
  const Trace trace([&](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    for (int i = 0; i < kLayers; ++i) {
      step(s, "forward", 1, 20, kSmall);
      step(s, "scores", 2, 20, kMatrix);
      step(s, "softmax", 3, 20, kMatrix);
      step(s, "forward", 4, 20, kSmall);
      step(s, "forward", 5, 21, hidden);
      step(s, "silu", 6, 21, hidden);
      step(s, "forward", 7, 21, kSmall);
    }
  });
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak,
            kLayers * (kWeight + 4 * 2 * kMatrix + 2 * (3 * kSmall + 2 * hidden)));
}

// What an earlier pass left behind is as much of both as what the recorded one leaves.
TEST_P(FeedForward, OfAnEarlierPassIsNoMatrix) {
  const uint64_t hidden = GetParam();
  const Trace trace([hidden](Story& s, uint32_t) {
    Model model(s, true);
    model.forward("embedding", 0, kToken);
    for (int i = 0; i < kLayers; ++i) {
      model.attend();
      model.forward("einsum", 7, hidden);
      model.forward("sigmoid", 8, hidden);
      model.forward("einsum", 9, kToken);
    }
  });
  EXPECT_EQ(twice_as_long(trace).likely.allocated_peak,
            kLayers * (kWeight + 2 * (kLongAttention + 2 * (kToken + 2 * hidden))) + 4 * kToken);
}

INSTANTIATE_TEST_SUITE_P(Sizes, FeedForward, testing::Values(kMatrix / 2, kMatrix, 2 * kMatrix));

}  // namespace
}  // namespace tidemark
