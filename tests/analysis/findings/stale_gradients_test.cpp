// Gradients that are cleared after the forward pass.
#include <gtest/gtest.h>

#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr uint64_t kGradient = 48 * kMiB;
constexpr uint64_t kResult = 64 * kMiB;
constexpr int kLayers = 6;

enum class Clears { kBeforeForward, kBeforeBackward, kNever };

// A backward pass frees more than it makes, so that the peak is in the forward pass.
Trace trained(Clears clears) {
  return Trace([clears](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kGradient, s.setup());
    std::vector<uint64_t> gradients;
    const auto clear = [&] {
      for (const uint64_t block : gradients) s.free(block);
      gradients.clear();
    };
    for (int step = 0; step < 5; ++step) {
      if (clears == Clears::kBeforeForward) clear();
      const uint64_t batch = s.alloc(kMiB, s.user(8));
      std::vector<uint64_t> kept;
      for (int i = 1; i <= kLayers; ++i) kept.push_back(s.alloc(kResult, s.forward(i)));
      if (clears == Clears::kBeforeBackward) clear();
      std::vector<uint64_t> made;
      for (; !kept.empty(); kept.pop_back()) {
        s.free(kept.back());
        made.push_back(s.alloc(kGradient, s.node("MmBackward0")));
      }
      if (gradients.empty()) {
        gradients = made;
      } else {
        for (const uint64_t block : made) s.free(block);
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      s.free(batch);
    }
  });
}

TEST(StaleGradients, AreThoseFreedAfterTheForwardPass) {
  const Finding f = trained(Clears::kBeforeBackward).finding("stale_gradients", kMiB << 11);
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_EQ(f.evidence.at(0).second, kLayers * kGradient);
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].saves_bytes, kLayers * kGradient);
  for (const Clears clears : {Clears::kBeforeForward, Clears::kNever}) {
    EXPECT_TRUE(trained(clears).finding("stale_gradients", kMiB << 11).id.empty());
  }
}

}  // namespace
}  // namespace tidemark
