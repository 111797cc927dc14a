// Copies of weights in 16 bits that autocast makes and keeps.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

constexpr int kLayers = 8;
constexpr uint64_t kWeight = 64 * kMiB;
constexpr uint64_t kResult = 40 * kMiB;

enum class Runs { kForward, kForwardWithGraph, kTraining };

// Products of layers under autocast. `native`: with native frames.
class Program {
 public:
  Program(Story& s, Runs runs, bool native) : s_(s), runs_(runs), native_(native) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
  }

  void step() {
    const uint64_t input = s_.alloc(kMiB, s_.user(8));
    pass();
    s_.free(s_.alloc(kMiB, s_.user(9)));
    if (runs_ == Runs::kTraining) train();
    if (!results_.empty()) results_.insert(results_.begin(), results_.back());  // is dropped last
    for (; results_.size() > 1; results_.pop_back()) {
      if (results_.back() != results_.front()) s_.free(results_.back());
    }
    if (!results_.empty()) s_.free(results_.front());
    results_.clear();
    for (const uint64_t copy : copies_) s_.free(copy);
    copies_.clear();
    s_.free(input);
  }

  void pass() {
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto line = layer + 1;
      copies_.push_back(s_.alloc(kWeight / 2, stack(line, true)));
      results_.push_back(s_.alloc(kResult, stack(line, false)));
      if (runs_ != Runs::kForward && results_.size() > 1) continue;
      if (results_.size() < 2) continue;
      s_.free(results_.front());
      results_.erase(results_.begin());
    }
  }

 private:
  uint32_t stack(int line, bool casts) {
    std::vector<std::string> frames;
    if (native_ && casts) {
      frames = {"at::_ops::_to_copy::call(x) b.cpp:2", "at::autocast::cached_cast(x) c.cpp:3"};
    } else if (native_) {
      frames = {"at::_ops::mm::call(x) b.cpp:4"};
    }
    const std::string place = "forward model.py:" + std::to_string(line);
    for (const std::string& frame : {place, std::string("_call_impl torch/nn/modules/module.py:1"),
                                     std::string("run train.py:10")}) {
      frames.push_back(frame);
    }
    return s_.stack(frames);
  }

  void train() {
    std::vector<uint64_t> gradients;
    for (int layer = 0; layer < kLayers; ++layer) {
      gradients.push_back(s_.alloc(kWeight, s_.node("MmBackward0")));
      s_.free(results_.back());
      results_.pop_back();
      s_.free(copies_.back());
      copies_.pop_back();
    }
    s_.optimizer_mark();
    s_.free(s_.alloc(kMiB, s_.optimizer("_single_tensor_sgd")));
    for (const uint64_t gradient : gradients) s_.free(gradient);
  }

  Story& s_;
  const Runs runs_;
  const bool native_;
  std::vector<uint64_t> copies_;
  std::vector<uint64_t> results_;
};

Trace autocast(Runs runs, bool native) {
  return Trace([=](Story& s, uint32_t) {
    Program program(s, runs, native);
    for (int step = 0; step < 4; ++step) program.step();
  });
}

// In all steps, of blocks of a copy's size.
uint64_t copies_in(const Trace& trace, Category category) {
  return bytes_where(trace, category, [](const AllocationHistory& model, size_t i) {
    return model.allocations.block_bytes(i) == kWeight / 2;
  });
}

TEST(AutocastCopies, AreTemporariesAndNoGraph) {
  for (const Runs runs : {Runs::kForward, Runs::kForwardWithGraph, Runs::kTraining}) {
    for (const bool native : {true, false}) {
      if (!native && runs == Runs::kForwardWithGraph) continue;
      const Trace trace = autocast(runs, native);
      if (native) {
        EXPECT_EQ(copies_in(trace, Category::kTemporary), 4 * kLayers * kWeight / 2);
      }
      EXPECT_EQ(copies_in(trace, Category::kActivation), 0U) << native;
      EXPECT_EQ(trace.finding("eval_keeps_graph").id.empty(), runs != Runs::kForwardWithGraph);
    }
  }
}

TEST(AutocastCopies, InferenceNeedsNoWeightsIn32Bits) {
  const Trace trace = autocast(Runs::kForward, true);
  const Finding f = trace.finding("autocast_copies", kMiB << 10);
  EXPECT_EQ(f.evidence.at(0).second, kLayers * kWeight / 2);
  ASSERT_EQ(f.advice.size(), 2U);
  EXPECT_EQ(f.advice[0].action, "load_in_16_bits");
  EXPECT_EQ(f.advice[0].saves_bytes, kLayers * kWeight);
  EXPECT_EQ(f.advice[1].action, "no_autocast_cache");
  EXPECT_EQ(f.advice[1].saves_bytes, (kLayers - 1) * kWeight / 2);
  EXPECT_TRUE(trace.finding("autocast_copies", 64 * 1024 * kMiB).id.empty());  // there is room
}

// A graph keeps the copies, too.
TEST(AutocastCopies, WithAGraphTheCacheIsNotTheOnlyOneToKeepThem) {
  const Finding f = autocast(Runs::kForwardWithGraph, true).finding("autocast_copies", kMiB << 10);
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].action, "load_in_16_bits");
}

// One pass whose graph is there at the end: whether a backward pass would follow is not known.
TEST(AutocastCopies, ARecordingThatEndsWithAGraphMayKeepThem) {
  const Trace trace([](Story& s, uint32_t) {
    Program program(s, Runs::kForwardWithGraph, true);
    program.pass();
  });
  const Finding f = trace.finding("autocast_copies", kMiB << 10);
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].action, "load_in_16_bits");
}

TEST(AutocastCopies, TrainingNeedsBoth) {
  const Finding f = autocast(Runs::kTraining, true).finding("autocast_copies", kMiB << 10);
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_TRUE(f.advice.empty());
}

// Layers cast their inputs, too, which have the size of a weight's copy and wait for the backward
// pass.
TEST(AutocastCopies, CastsOfActivationsOfTheSameSizeAreNone) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    for (int step = 0; step < 4; ++step) {
      std::vector<uint64_t> graph;
      for (int layer = 1; layer <= kLayers; ++layer) {
        for (const uint64_t bytes : {kWeight / 2, kWeight / 2, kResult}) {
          graph.push_back(s.alloc(bytes, s.forward(layer)));
        }
      }
      s.free(s.alloc(kMiB, s.user(9)));
      for (int layer = 0; layer < kLayers; ++layer) {
        s.free(s.alloc(kWeight, s.node("MmBackward0")));
        for (int block = 0; block < 3; ++block) {
          s.free(graph.back());
          graph.pop_back();
        }
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
    }
  });
  EXPECT_EQ(copies_in(trace, Category::kTemporary), 4 * kLayers * kWeight / 2);
  const auto is_second = [](const AllocationHistory& model, size_t i) {
    return i != 0 && model.allocations.block_bytes(i) == kWeight / 2 &&
           model.allocations.block_bytes(i - 1) == kWeight / 2;
  };
  EXPECT_EQ(bytes_where(trace, Category::kActivation, is_second), 4 * kLayers * kWeight / 2);
}

// Queries, keys and values are computed in one line, each with a bias, and in the sizes of their
// weights' copies. So is what attention makes of them, after the state of its random numbers.
TEST(AutocastCopies, OperationsOfOneLineBeginWithTheirBiases) {
  constexpr int kProducts = 3;
  constexpr uint64_t kBias = 4096;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers * kProducts; ++i) {
      s.alloc(kWeight, s.setup());
      s.alloc(2 * kBias, s.setup());
    }
    for (int step = 0; step < 4; ++step) {
      std::vector<uint64_t> graph;
      const auto make = [&](uint32_t stack, std::vector<uint64_t> sizes) {
        for (const uint64_t bytes : sizes) graph.push_back(s.alloc(bytes, stack));
      };
      const uint32_t attention = s.stack(
          {"forward model.py:7", "_call_impl torch/nn/modules/module.py:1", "t train.py:1"});
      for (int layer = 1; layer <= kLayers; ++layer) {
        for (int product = 0; product < kProducts; ++product) {
          make(s.forward(7), {kBias, kWeight / 2, kWeight / 2, kWeight / 2});
        }
        make(attention, {8, 8, kWeight / 2, kMiB});
      }
      s.free(s.alloc(kMiB, s.user(9)));
      for (; !graph.empty(); graph.pop_back()) {
        if (graph.size() % 16 == 0) s.free(s.alloc(kWeight, s.node("MmBackward0")));
        s.free(graph.back());
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
    }
  });
  EXPECT_EQ(copies_in(trace, Category::kTemporary), 4 * kLayers * kProducts * kWeight / 2);
  EXPECT_EQ(bytes_at(trace, "forward model.py:7", Category::kTemporary), 0U);
}

// A workspace of half a weight's size, which the first product takes.
TEST(AutocastCopies, AWorkspaceIsNone) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    for (int step = 0; step < 4; ++step) {
      for (int layer = 1; layer <= kLayers; ++layer) {
        if (step == 0 && layer == 1) s.alloc(kWeight / 2, s.forward(layer));
        s.free(s.alloc(kResult, s.forward(layer)));
      }
      s.free(s.alloc(kMiB, s.user(9)));
    }
  });
  EXPECT_EQ(copies_in(trace, Category::kWorkspace), kWeight / 2);
}

}  // namespace
}  // namespace tidemark
