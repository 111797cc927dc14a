// What a finding promises of matrices of attention.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/finding_parts.h"
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

constexpr uint64_t kMask = 192 * kMiB;

// Layers that each make a mask, first in 32 and then in 16 bits, and keep it. `kernel`: of
// attention. Memory runs out when layer 5 of 8 converts its own. `modules`: the nn.Modules are
// known.
Trace masked_layers(const std::string& kernel, bool modules) {
  return Trace::on_card(1400 * kMiB, [=](Story& s, uint32_t) {
    if (!kernel.empty()) s.range(kernel, MarkPhase::kBegin);
    const auto in_layer = [&](int layer, const std::string& line) {
      const std::vector<std::string> frames = {line,
                                               "_call_impl torch/nn/modules/module.py:1",
                                               "Layer.forward model.py:60",
                                               "_call_impl torch/nn/modules/module.py:1",
                                               "Model.forward model.py:80",
                                               "_call_impl torch/nn/modules/module.py:1",
                                               "train train.py:10"};
      if (!modules) return s.stack(frames);
      return s.stack_in("layers." + std::to_string(layer) + ".attention", frames);
    };
    for (int layer = 0; layer < 8; ++layer) {
      const uint64_t weight = s.alloc(2 * kMiB, s.setup());
      if (modules) {
        s.tag(weight, Category::kParameter, "layers." + std::to_string(layer) + ".attention");
      }
    }
    for (int layer = 0; layer < 5; ++layer) {
      const auto make = [&](uint64_t bytes, const std::string& line) {
        return s.alloc(bytes, in_layer(layer, line));
      };
      for (int k = 0; k < 40; ++k) s.free(make(kMiB, "Attention.forward model.py:41"));
      make(kToken, "Attention.forward model.py:42");
      s.free(make(kMask / 2, "Attention.bias model.py:30"));
      const uint64_t wide = make(2 * kMask, "Attention.bias model.py:31");
      if (layer == 4)
        return s.run_out(kMask, 60 * kMiB, in_layer(layer, "Attention.forward model.py:44"));
      make(kMask, "Attention.forward model.py:44");
      s.free(wide);
      make(kMask / 12, "Attention.forward model.py:46");
    }
  });
}

TEST(AttentionScores, AMaskOfEachLayerIsShared) {
  for (const bool modules : {true, false}) {
    const Finding f = masked_layers("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", modules)
                          .finding("one_operation_peak");
    ASSERT_FALSE(f.id.empty()) << modules;
    EXPECT_EQ(f.severity, kError);
    EXPECT_TRUE(says(f, "5 layers each make 192.0 MiB of their own")) << f.summary;
    EXPECT_TRUE(says(f, "that would have been in use: 6 blocks of up to 384.0 MiB")) << f.summary;
    ASSERT_FALSE(f.advice.empty());
    EXPECT_TRUE(f.advice[0].detail.find("make it once in each forward pass") != std::string::npos)
        << f.advice[0].detail;
    EXPECT_EQ(f.advice[0].detail.find("use torch.nn.functional"), std::string::npos);
    EXPECT_GE(f.advice[0].saves_bytes, 3 * kMask);
    EXPECT_EQ(f.frames[0], "Attention.forward model.py:44");
  }
  // Scores that no fused kernel does without.
  const Finding scores = masked_layers("", true).finding("one_operation_peak");
  for (const Advice& a : scores.advice) {
    EXPECT_EQ(a.detail.find("make it once"), std::string::npos) << a.detail;
  }
}

TEST(AttentionScores, AdviceOnLayersTellsWhereMemoryRanOut) {
  const Finding f = masked_layers("", true).finding("capacity");
  const Advice* const checkpoint = advice_of(f, "checkpoint");
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_NE(checkpoint->detail.find("each of the 8 repeated layers (memory ran out in layer 5)"),
            std::string::npos)
      << checkpoint->detail;
}

}  // namespace
}  // namespace tidemark
