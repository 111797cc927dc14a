// What a finding promises of matrices of attention.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr uint64_t kToken = 4 * kMiB;
constexpr uint64_t kScores = 96 * kMiB;

// Layers of a model whose hidden ones have half the size of the scores of attention.
Trace layers() {
  return Trace([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) s.alloc(kMiB, s.setup());
    const auto in_model = [&](const std::string& function, int line) {
      return s.stack({function + " model.py:" + std::to_string(line), "Layer.forward model.py:60",
                      "_call_impl torch/nn/modules/module.py:1", "Model.forward model.py:80",
                      "_call_impl torch/nn/modules/module.py:1", "train train.py:10"});
    };
    for (int i = 0; i < 24; ++i) {
      std::vector<uint64_t> tokens;
      for (int k = 0; k < 8; ++k) tokens.push_back(s.alloc(kToken, in_model("project", 10 + k)));
      const uint64_t products = s.alloc(kScores, in_model("attention", 20));
      const uint64_t exponents = s.alloc(kScores, in_model("attention", 21));
      const uint64_t weights = s.alloc(kScores, in_model("attention", 22));
      s.free(products);
      s.free(exponents);
      s.free(weights);
      for (const uint64_t token : tokens) s.free(token);
      tokens.clear();
      for (int k = 0; k < 8; ++k) tokens.push_back(s.alloc(kToken, in_model("project", 30 + k)));
      const uint64_t hidden = s.alloc(kScores / 2, in_model("feed", 40));
      const uint64_t gate = s.alloc(kScores / 2, in_model("feed", 41));
      const uint64_t result = s.alloc(kToken, in_model("feed", 42));
      s.free(hidden);
      s.free(gate);
      s.free(result);
      for (const uint64_t token : tokens) s.free(token);
    }
  });
}

TEST(AttentionScores, WithoutThemHiddenLayersRemain) {
  const Finding f = layers().finding("one_operation_peak");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("scaled_dot_product_attention"), std::string::npos);
  EXPECT_EQ(f.advice[0].saves_bytes, 3 * kScores - (kScores + kToken));
}

}  // namespace
}  // namespace tidemark
