// Memory that runs out in the first step: of what later phases would have done, nothing is
// recorded.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"
#include "tests/support/finding_parts.h"

namespace tidemark {
namespace {

constexpr int kLayers = 6;
constexpr uint64_t kWeight = 32 * kMiB;
constexpr uint64_t kResult = 24 * kMiB;

// Passes of the model, as `Training` has them, and what became of the first one.
class FirstStep {
 public:
  explicit FirstStep(Story& s) : s_(s) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
  }

  std::vector<uint64_t> forward() {
    std::vector<uint64_t> kept;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int line = 1; line < 4; ++line) kept.push_back(s_.alloc(kResult, s_.forward(line)));
    }
    return kept;
  }

  // Returns the gradients.
  std::vector<uint64_t> backward(std::vector<uint64_t> kept) {
    std::vector<uint64_t> gradients;
    for (int layer = 0; layer < kLayers; ++layer) {
      gradients.push_back(s_.alloc(kWeight, s_.node("MmBackward0")));
      for (int line = 1; line < 4; ++line) {
        s_.free(kept.back());
        kept.pop_back();
      }
    }
    return gradients;
  }

  // Of an optimizer of the program's own.
  uint32_t optimizer(int line) {
    return s_.stack({"step optimizers.py:" + std::to_string(line),
                     "wrapper torch/optim/optimizer.py:493", "train train.py:12"});
  }

 private:
  Story& s_;
};

// `operations`: of the backward pass, before the one that fails; they free nothing of the model's.
Trace fails_in_backward(int operations) {
  return Trace([=](Story& s, uint32_t) {
    FirstStep step(s);
    step.forward();
    for (int i = 0; i < operations; ++i) s.free(s.alloc(kMiB, s.node("LogBackward0")));
    s.run_out(64 * kMiB, kMiB, s.node("MmBackward0"));
  });
}

TEST(FirstStepFailures, TheGraphOfABackwardPassThatFailedIsInUse) {
  for (const int operations : {0, 1, 10}) {
    const Trace trace = fails_in_backward(operations);
    EXPECT_TRUE(trace.finding("eval_keeps_graph").id.empty()) << operations;
    const Finding capacity = trace.finding("capacity");
    EXPECT_TRUE(says(capacity, "in the backward pass")) << capacity.summary;
    EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:1", Category::kActivation),
              kLayers * kResult);
  }
}

// One parameter after the other: its states, and then the temporaries of its update.
TEST(FirstStepFailures, StatesOfTheProgramsOwnOptimizerAreNoTemporaries) {
  const Trace trace([](Story& s, uint32_t) {
    FirstStep step(s);
    step.backward(step.forward());
    for (int i = 0; i < kLayers - 1; ++i) {
      s.alloc(kWeight, step.optimizer(82));
      s.alloc(kWeight, step.optimizer(84));
      const uint64_t root = s.alloc(kWeight, step.optimizer(100));
      if (i + 1 < kLayers - 1) s.free(root);
    }
    s.run_out(kWeight, kMiB, step.optimizer(100));
  });
  EXPECT_EQ(bytes_at(trace, "step optimizers.py:82", Category::kOptimizerState),
            (kLayers - 1) * kWeight);
  EXPECT_EQ(bytes_at(trace, "step optimizers.py:100", Category::kOptimizerState), 0U);
  const Finding spike = trace.finding("optimizer_state_spike");
  EXPECT_TRUE(says(spike, "with 320.0 MiB of optimizer state")) << spike.summary;
  EXPECT_NE(advice_of(spike, "smaller_states"), nullptr);
}

// All parameters in one operation.
TEST(FirstStepFailures, TemporariesOfManyParametersAreNoStates) {
  const Trace trace([](Story& s, uint32_t) {
    FirstStep step(s);
    step.backward(step.forward());
    for (int i = 0; i < kLayers - 1; ++i) s.alloc(kWeight, s.optimizer("_multi_tensor_adam"));
    s.run_out(kWeight, kMiB, s.optimizer("_multi_tensor_adam"));
  });
  EXPECT_EQ(bytes_at(trace, "_multi_tensor_adam torch/optim/adam.py:5", Category::kTemporary),
            (kLayers - 1) * kWeight);
}

// The states of an optimizer that its constructor makes are not the weights of a second model.
TEST(FirstStepFailures, ConstructorsOfOptimizersMakeStates) {
  const Trace trace([](Story& s, uint32_t) {
    FirstStep step(s);
    for (int i = 0; i < kLayers; ++i) {
      s.alloc(kWeight, s.stack({"__init__ my/adamw.py:27", "train train.py:5"}));
      s.alloc(kWeight / 4, s.stack({"__init__ my/optimized_layer.py:9", "train train.py:6"}));
    }
    step.forward();
    s.run_out(64 * kMiB, kMiB, s.forward(2));
  });
  EXPECT_EQ(bytes_at(trace, "__init__ my/adamw.py:27", Category::kOptimizerState),
            kLayers * kWeight);
  EXPECT_EQ(bytes_at(trace, "__init__ my/optimized_layer.py:9", Category::kOptimizerState), 0U);
}

// `goes_on`: to a second step.
Trace first_step(bool goes_on) {
  return Trace::on_card(uint64_t{1} << 30, [=](Story& s, uint32_t) {
    FirstStep step(s);
    step.backward(step.forward());
    for (int i = 0; i < 2 * kLayers; ++i) s.alloc(kWeight, s.optimizer("_init_group"));
    s.free(s.alloc(kWeight, s.optimizer("_single_tensor_adam")));
    if (goes_on) s.alloc(kMiB, s.forward(1));
  });
}

// Weights and activations, and the first gradient; then weights, gradients, states, a temporary.
constexpr uint64_t kPeakOfPasses = 7 * kWeight + 18 * kResult;
constexpr uint64_t kPeakOfOptimizer = 25 * kWeight;

// Without half of the states, the peak of the activations remains.
TEST(FirstStepFailures, SmallerStatesSaveWhatAnotherPeakLeaves) {
  const Finding spike = first_step(true).finding("optimizer_state_spike", 800 * kMiB);
  const Advice* const advice = advice_of(spike, "smaller_states");
  ASSERT_NE(advice, nullptr);
  EXPECT_EQ(advice->saves_bytes, kPeakOfOptimizer - kPeakOfPasses);
}

TEST(FirstStepFailures, TheNextStepHasTheStatesFromTheStart) {
  const Trace trace = first_step(false);
  constexpr uint64_t kNext = kPeakOfPasses + 12 * kWeight;
  const Finding fits = trace.finding("optimizer_state_spike", kNext + 1024 * kMiB);
  EXPECT_TRUE(says(fits, "only the first step is recorded")) << fits.summary;
  EXPECT_EQ(fits.severity, kInfo);
  EXPECT_EQ(fits.evidence.at(1).second, kNext);
  EXPECT_EQ(trace.finding("optimizer_state_spike", kNext - kMiB).severity, kWarning);
}

// An optimizer that replaces its states in every step has them in every pass but the first.
TEST(FirstStepFailures, StatesThatEachStepReplacesAreNotOfTheFirst) {
  const Trace trace = Trace::on_card(uint64_t{1} << 30, [](Story& s, uint32_t) {
    FirstStep step(s);
    std::vector<uint64_t> states;
    for (int i = 0; i < 4; ++i) {
      std::vector<uint64_t> gradients = step.backward(step.forward());
      std::vector<uint64_t> next;
      for (int k = 0; k < kLayers; ++k)
        next.push_back(s.alloc(kWeight, s.optimizer("_init_group")));
      for (const uint64_t block : states) s.free(block);
      for (const uint64_t block : gradients) s.free(block);
      states = next;
    }
  });
  EXPECT_FALSE(says(trace.finding("optimizer_state_spike", 1024 * kMiB), "only the first step"));
}

}  // namespace
}  // namespace tidemark
