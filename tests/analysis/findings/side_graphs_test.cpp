// Metrics that are computed with a graph beside the loss, and what only looks like them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/model_story.h"

namespace tidemark {
namespace {

constexpr uint64_t kLogits = 96 * kMiB;

enum class Metric {
  kNone,
  kWithGraph,
  kWithoutGraph,
  kAfterBackward,  // and without a graph
  kReturned,       // its large results, in a dictionary
};

// A step of a language model, with a metric on its logits.
class Step {
 public:
  Step(Story& s, Model& model, bool own_function) : s_(s), model_(model), own_(own_function) {}

  void run(Metric metric) {
    Blocks kept = model_.forward("train train.py:10");
    const uint64_t logits = s_.alloc(kLogits, s_.forward(20, "train train.py:10"));
    const uint64_t loss =
        s_.alloc(kLogits, s_.stack({"cross_entropy torch/nn/functional.py:3500", at(11)}));
    if (metric != Metric::kAfterBackward) compute(metric);
    const uint64_t first = s_.alloc(kLogits, s_.node("NllLossBackward0"));
    const uint64_t second = s_.alloc(kLogits, s_.node("LogSoftmaxBackward0"));
    s_.free(first);
    s_.free(loss);
    Blocks gradients;
    s_.free(second);
    model_.backward(kept, gradients);
    if (metric == Metric::kAfterBackward) compute(Metric::kWithoutGraph);
    model_.step(gradients, true);
    s_.free(logits);
    for (const uint64_t block : held_) s_.free(block);
    held_.clear();
  }

 private:
  static std::string at(int line) { return "train train.py:" + std::to_string(line); }
  uint32_t line(int number) {
    if (!own_) return s_.stack({at(number)});
    return s_.stack({"entropy metrics.py:" + std::to_string(number), at(12)});
  }

  void compute(Metric metric) {
    if (metric == Metric::kNone) return;
    const uint64_t probabilities = s_.alloc(kLogits, line(71));
    const uint64_t logarithms = s_.alloc(kLogits, line(72));
    s_.free(s_.alloc(kLogits, line(72)));
    const uint64_t mean = s_.alloc(kScalar, line(73));
    switch (metric) {
      case Metric::kWithGraph:
        held_ = {mean, logarithms, probabilities};
        return;
      case Metric::kReturned:
        held_ = {probabilities, logarithms, mean};
        return;
      default:
        s_.free(logarithms);
        s_.free(probabilities);
        held_ = {mean};
    }
  }

  Story& s_;
  Model& model_;
  const bool own_;
  Blocks held_;
};

Trace run_of(Metric metric, bool own_function = true) {
  return Trace([&](Story& s, uint32_t) {
    Model model(s);
    Step step(s, model, own_function);
    for (int i = 0; i < 8; ++i) step.run(metric);
  });
}

TEST(SideGraphs, AMetricWithAGraph) {
  const Trace faulty = run_of(Metric::kWithGraph);
  const Finding f = faulty.finding("eval_keeps_graph");
  ASSERT_FALSE(f.id.empty());
  EXPECT_NE(f.summary.find("metrics.py:71 (96.0 MiB) and metrics.py:72 (96.0 MiB)"),
            std::string::npos)
      << f.summary;
  expect_saves(f, faulty, run_of(Metric::kAfterBackward), 0.05);
}

TEST(SideGraphs, OthersAreNone) {
  for (const Metric metric :
       {Metric::kNone, Metric::kWithoutGraph, Metric::kAfterBackward, Metric::kReturned}) {
    EXPECT_TRUE(run_of(metric).finding("eval_keeps_graph").id.empty()) << static_cast<int>(metric);
  }
  EXPECT_TRUE(run_of(Metric::kWithGraph, false).finding("eval_keeps_graph").id.empty())
      << "variables of the loop itself may hold them";
}

// The metric needs the logits, and keeps its own blocks.
TEST(SideGraphs, ALossInPartsDoesNotFreeThem) {
  const Finding alone = run_of(Metric::kNone).finding("one_operation_peak", 1 << 30);
  const Finding beside = run_of(Metric::kWithGraph).finding("one_operation_peak", 1 << 30);
  ASSERT_FALSE(alone.advice.empty());
  ASSERT_FALSE(beside.advice.empty());
  EXPECT_GE(alone.advice[0].saves_bytes, 3 * kLogits);
  EXPECT_LE(beside.advice[0].saves_bytes, 2 * kLogits);
}

}  // namespace
}  // namespace tidemark
