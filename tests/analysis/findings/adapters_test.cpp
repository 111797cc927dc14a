// Weights that are trained beside low-rank adapters, and networks that only look like it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/model_story.h"

namespace tidemark {
namespace {

constexpr uint64_t kWidth = 512;

struct Weight {
  std::string module;
  uint64_t numbers = 0;
  bool trained = true;
};

// A run of AdamW on these weights, in float32.
Trace run_of(const std::vector<Weight>& weights) {
  return Trace([&](Story& s, uint32_t) {
    Blocks parameters;
    for (const Weight& w : weights) parameters.push_back(s.alloc(4 * w.numbers, s.setup()));
    bool has_states = false;
    for (int step = 0; step < 6; ++step) {
      Blocks kept;
      for (int layer = 0; layer < 6; ++layer) kept.push_back(s.alloc(2 * kMiB, s.forward(layer)));
      Blocks gradients;
      for (size_t i = weights.size(); i-- > 0;) {
        if (!kept.empty()) s.free(kept.back());
        if (!kept.empty()) kept.pop_back();
        if (weights[i].trained) gradients.push_back(s.alloc(4 * weights[i].numbers, 0));
      }
      s.optimizer_mark();
      for (size_t i = 0; i < weights.size() && !has_states; ++i) {
        if (!weights[i].trained) continue;
        s.tag(parameters[i], Category::kParameter, weights[i].module);
        for (int k = 0; k < 2; ++k) {
          s.tag(s.alloc(4 * weights[i].numbers, s.optimizer("_init_group")),
                Category::kOptimizerState, weights[i].module);
        }
      }
      has_states = true;
      for (const uint64_t g : gradients) s.free(g);
    }
  });
}

// Attention with adapters of this rank on two of its products.
struct Tuned {
  uint64_t rank = 8;
  bool base = true;     // is trained
  bool others = false;  // the rest of the layers is, too
  bool embedding = false;
  std::string down = ".lora_A.default";
  std::string up = ".lora_B.default";
  std::string matrix = ".base_layer";
};

std::vector<Weight> tuned_layers(const Tuned& t) {
  std::vector<Weight> weights = {{"embed", 8000 * kWidth, t.embedding}};
  for (int i = 0; i < 6; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    for (const char* name : {".attention.q", ".attention.v"}) {
      weights.push_back({layer + name + t.matrix, kWidth * kWidth, t.base});
      weights.push_back({layer + name + t.down, t.rank * kWidth});
      weights.push_back({layer + name + t.up, kWidth * t.rank});
    }
    weights.push_back({layer + ".attention.k", kWidth * kWidth, t.base});
    weights.push_back({layer + ".up", 4 * kWidth * kWidth, t.others});
  }
  weights.push_back({"head", 40 * kWidth});
  return weights;
}

TEST(Adapters, TheirWeightsAreTrainedToo) {
  const Trace faulty = run_of(tuned_layers({}));
  const Finding f = faulty.finding("trained_base");
  ASSERT_FALSE(f.id.empty());
  EXPECT_EQ(f.severity, kWarning);
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "make train.py:2");
  EXPECT_EQ(f.evidence[0], (std::pair<std::string, uint64_t>{"weight_bytes", 18 * kMiB}));
  expect_saves(f, faulty, run_of(tuned_layers({.base = false})), 0.05);
  const Report report = faulty.report();
  EXPECT_EQ(report.ranks[0].devices[0].trained.all_bytes - report.ranks[0].devices[0].trained.bytes,
            4 * kWidth * (8000 + 6 * 4 * kWidth));
}

// As in one class with both, whose names say nothing.
TEST(Adapters, InTheModuleOfTheWeight) {
  const Trace faulty = run_of(tuned_layers({.down = "", .up = "", .matrix = ""}));
  EXPECT_EQ(faulty.alarms(), std::vector<std::string>{"trained_base"});
}

TEST(Adapters, NothingIsFrozen) {
  const Trace named = run_of(tuned_layers({.others = true, .embedding = true}));
  const Finding f = named.finding("trained_base");
  ASSERT_FALSE(f.id.empty());
  EXPECT_EQ(f.evidence[0], (std::pair<std::string, uint64_t>{"weight_bytes", 42 * kMiB}))
      << "the embedding may be trained on purpose";
}

TEST(Adapters, TrainedAlone) {
  EXPECT_TRUE(run_of(tuned_layers({.base = false})).alarms().empty());
  EXPECT_TRUE(run_of(tuned_layers({.base = false, .embedding = true})).alarms().empty());
}

std::vector<Weight> repeated(const std::vector<Weight>& layer, bool frozen_part = false) {
  std::vector<Weight> weights = {{"embed", 8000 * kWidth, !frozen_part}};
  for (int i = 0; i < 8; ++i) {
    for (const Weight& w : layer) {
      weights.push_back({"layers." + std::to_string(i) + "." + w.module, w.numbers});
    }
  }
  return weights;
}

TEST(Adapters, OrdinaryNetworksHaveNone) {
  constexpr uint64_t kSquare = kWidth * kWidth;
  for (const bool frozen_part : {false, true}) {
    // A transformer.
    EXPECT_TRUE(run_of(repeated({{"norm", kWidth},
                                 {"norm", kWidth},
                                 {"q", kSquare},
                                 {"q", kWidth},
                                 {"up", 4 * kSquare},
                                 {"up", 4 * kWidth},
                                 {"down", 4 * kSquare},
                                 {"down", kWidth}},
                                frozen_part))
                    .alarms()
                    .empty());
    // Attention with queries, keys and values of low rank.
    EXPECT_TRUE(run_of(repeated({{"attention.q_down", 16 * kWidth},
                                 {"attention.q_up", 16 * kWidth},
                                 {"attention.kv_down", 16 * kWidth},
                                 {"attention.kv_up", 32 * kWidth},
                                 {"attention.out", kSquare},
                                 {"up", 4 * kSquare}},
                                frozen_part))
                    .alarms()
                    .empty());
    // A decay of low rank beside several products.
    EXPECT_TRUE(run_of(repeated({{"mix", 16 * kWidth},
                                 {"mix", 16 * kWidth},
                                 {"mix.key", kSquare},
                                 {"mix.value", kSquare},
                                 {"mix.out", kSquare}},
                                frozen_part))
                    .alarms()
                    .empty());
  }
  // Squeeze and excitation: its rank follows the width.
  EXPECT_TRUE(run_of(repeated({{"block.conv", kSquare},
                               {"block.norm", kWidth},
                               {"block.norm", kWidth},
                               {"block.squeeze", kSquare / 16},
                               {"block.excite", kSquare / 16}}))
                  .alarms()
                  .empty());
  // An autoencoder.
  EXPECT_TRUE(run_of(repeated({{"encode.0", 4 * kSquare},
                               {"encode.1", 64 * kWidth},
                               {"decode.0", 64 * kWidth},
                               {"decode.1", 4 * kSquare}}))
                  .alarms()
                  .empty());
}

}  // namespace
}  // namespace tidemark
