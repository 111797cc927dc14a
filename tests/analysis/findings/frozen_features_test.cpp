// A loss on features: a network that no optimizer steps computes those of a prediction and of its
// target, and its parameters ask for gradients.
#include <gtest/gtest.h>

#include "tests/support/model_story.h"

namespace tidemark {
namespace {

enum class Features { kWithGradients, kFrozen };

void compute_without_graph(Story& s, const std::string& caller) {
  Blocks alive;
  for (int k = 0; k < 12; ++k) {
    alive.push_back(s.alloc(8 * kMiB, s.forward(k % 2 == 0 ? 1 : 3, caller)));
    if (alive.size() < 2) continue;
    s.free(alive.front());
    alive.erase(alive.begin());
  }
  for (const uint64_t block : alive) s.free(block);
}

// `one_line`: both calls are in one line.
Trace with_features(Features features, bool one_line) {
  return Trace([=](Story& s, uint32_t) {
    Model generator(s);
    Model network(s);
    Blocks added;
    const std::string of_prediction = "embed loss.py:54";
    const std::string of_target = one_line ? of_prediction : "embed loss.py:55";
    for (int i = 0; i < 8; ++i) {
      const Blocks made = generator.forward("train train.py:10");
      const Blocks prediction = network.forward(of_prediction);
      Blocks target;
      if (features == Features::kFrozen) {
        compute_without_graph(s, of_target);
      } else {
        target = network.forward(of_target);
      }
      s.free(s.alloc(kScalar, s.user(21)));
      Blocks none = {0};  // gradients that are not kept
      if (features == Features::kWithGradients) network.backward(target, added);
      network.backward(prediction, features == Features::kFrozen ? none : added);
      const uint64_t passed_on = s.alloc(3 * kMiB / 2, 0);
      Blocks gradients;
      generator.backward(made, gradients);
      s.free(passed_on);
      generator.step(gradients, true);
    }
  });
}

TEST(FrozenFeatures, OnlyThoseOfTheTargetAreKeptForNothing) {
  for (const bool one_line : {false, true}) {
    const Trace faulty = with_features(Features::kWithGradients, one_line);
    const Finding f = faulty.finding("unused_gradients");
    ASSERT_FALSE(f.advice.empty());
    EXPECT_EQ(f.evidence.at(2).first, "activation_bytes");
    EXPECT_LE(f.evidence[2].second, (12 * 8 + 6) * kMiB);
    expect_saves(f, faulty, with_features(Features::kFrozen, one_line), 0.25);
  }
}

// Under no_grad() in the line of both, nothing would be trained by the loss any more.
TEST(FrozenFeatures, ALineThatPassesGradientsOnMustNotRunWithoutThem) {
  const auto starts_with_no_grad = [](bool one_line) {
    const Finding f = with_features(Features::kWithGradients, one_line).finding("unused_gradients");
    return !f.advice.empty() && f.advice[0].detail.starts_with("run the part");
  };
  EXPECT_FALSE(starts_with_no_grad(true));
  EXPECT_TRUE(starts_with_no_grad(false));
}

}  // namespace
}  // namespace tidemark
