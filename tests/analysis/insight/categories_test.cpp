// Categories of single lines of a program.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

// A validation that keeps what it computes of each batch, between training steps.
TEST(Categories, WhatAListKeepsIsNoInput) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 4; ++step) {
        const uint64_t batch = s.alloc(8 * kMiB, s.stack({"load train.py:5"}));
        const uint64_t kept = s.alloc(16 * kMiB, s.forward(2));
        const uint64_t gradient = s.alloc(20 * kMiB, 0);
        s.free(kept);
        s.free(s.alloc(20 * kMiB, s.optimizer("_multi_tensor_adam")));
        s.free(gradient);
        s.free(batch);
      }
      std::vector<uint64_t> predictions;
      for (int i = 0; i < 8; ++i) {
        const uint64_t batch = s.alloc(8 * kMiB, s.stack({"load validate.py:5"}));
        const uint64_t result = s.alloc(16 * kMiB, s.forward(2, "validate validate.py:7"));
        predictions.push_back(s.alloc(12 * kMiB, s.stack({"validate validate.py:9"})));
        s.free(result);
        s.free(batch);
      }
      for (const uint64_t prediction : predictions) s.free(prediction);
    }
  });
  EXPECT_EQ(bytes_at(trace, "validate validate.py:9", Category::kInput), 0U);
  EXPECT_EQ(bytes_at(trace, "load validate.py:5", Category::kInput), 24 * 8 * kMiB);
  EXPECT_EQ(bytes_at(trace, "load train.py:5", Category::kInput), 12 * 8 * kMiB);
}

// A layer whose results have the size of cuBLAS's workspace, and are kept from every step.
// What is kept over many steps is neither an activation nor an input: a function's results in a
// list, and a block that each step replaces by a larger one.
TEST(Categories, WhatIsCollectedOverTheStepsIsNotOfThem) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    uint64_t bank = 0;
    for (uint64_t step = 1; step <= 12; ++step) {
      const uint64_t batch = s.alloc(8 * kMiB, s.stack({"load train.py:5"}));
      const uint64_t kept = s.alloc(16 * kMiB, s.forward(2));
      s.alloc(4 * kMiB, s.stack({"softmax torch/nn/functional.py:9", "train train.py:11"}));
      const uint64_t gradient = s.alloc(20 * kMiB, 0);
      s.free(kept);
      s.free(s.alloc(20 * kMiB, s.optimizer("_multi_tensor_adam")));
      s.free(gradient);
      s.free(batch);
      const uint64_t longer = s.alloc(step * 6 * kMiB, s.stack({"remember train.py:14"}));
      if (bank != 0) s.free(bank);
      bank = longer;
    }
    s.alloc(8 * kMiB, s.stack({"load train.py:5"}));
    s.alloc(16 * kMiB, s.forward(2));
  });
  const std::string listed = "softmax torch/nn/functional.py:9";
  for (const Category category : {Category::kActivation, Category::kInput}) {
    EXPECT_EQ(bytes_at(trace, listed, category), 0U);
    EXPECT_EQ(bytes_at(trace, "remember train.py:14", category), 0U);
  }
  EXPECT_EQ(bytes_at(trace, listed, Category::kUnknown), 12 * 4 * kMiB);
  EXPECT_EQ(bytes_at(trace, "load train.py:5", Category::kInput), 12 * 8 * kMiB);
}

// A penalty on gradients: torch.autograd.grad(create_graph=True), a second forward pass, and a
// backward pass through both. `keep`: a list keeps the loss, and the graphs are retained.
Trace penalised(bool keep, bool fails) {
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    std::vector<uint64_t> own;  // gradients that are kept from step to step
    for (int step = 0; step < 10; ++step) {
      std::vector<uint64_t> graph;
      const auto pass = [&](const std::string& line) {
        for (int i = 0; i < 5; ++i) graph.push_back(s.alloc(8 * kMiB, s.forward(i, line)));
      };
      pass("penalty train.py:5");
      for (int i = 0; i < 4; ++i) graph.push_back(s.alloc(6 * kMiB, 0));
      pass("train train.py:9");
      if (fails && step == 9) {
        s.run_out(uint64_t{1} << 34, 0, s.forward(1));
        return;
      }
      for (size_t i = 0; i < 4; ++i) {
        s.free(s.alloc(5 * kMiB, 0));
        if (step == 0) own.push_back(s.alloc(20 * kMiB, 0));
        if (!keep) s.free(graph[graph.size() - 1 - i]);
      }
      if (!keep) {
        for (size_t i = 0; i + 4 < graph.size(); ++i) s.free(graph[i]);
      }
      s.free(s.alloc(5 * kMiB, 0));
      s.optimizer_mark();
      s.free(s.alloc(20 * kMiB, s.optimizer("_multi_tensor_adam")));
    }
  });
}

TEST(Categories, TheGraphOfAGradientIsAnActivation) {
  const auto of = [](const Trace& trace, uint64_t size, Category category) {
    return bytes_where(trace, category, [&](const AllocationHistory& model, size_t i) {
      return model.allocations.stack(i) == 0 && model.allocations.block_bytes(i) == size;
    });
  };
  for (const bool keep : {false, true}) {
    for (const bool fails : {false, true}) {
      const Trace trace = penalised(keep, fails);
      const uint64_t steps = fails && !keep ? 9 : 10;  // of which it is known
      EXPECT_EQ(of(trace, 6 * kMiB, Category::kActivation), steps * 4 * 6 * kMiB) << keep << fails;
      EXPECT_EQ(of(trace, 5 * kMiB, Category::kActivation), 0U);
      EXPECT_EQ(of(trace, 20 * kMiB, Category::kGradient), 4 * 20 * kMiB) << keep << fails;
    }
  }
}

// A gradient waits while its layer is computed again: it is passed on in one backward pass.
TEST(Categories, WhatWaitsForARecomputedLayerIsNoActivation) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    const uint32_t again = s.stack({"forward model.py:3", "_call_impl torch/nn/modules/module.py:1",
                                    "recompute_fn torch/utils/checkpoint.py:7"});
    for (int step = 0; step < 8; ++step) {
      std::vector<uint64_t> inputs;
      for (int i = 0; i < 4; ++i) inputs.push_back(s.alloc(8 * kMiB, s.forward(i)));
      uint64_t passed = s.alloc(6 * kMiB, 0);
      for (size_t i = 4; i-- > 0;) {
        const uint64_t layer = s.alloc(9 * kMiB, again);
        const uint64_t next = s.alloc(6 * kMiB, 0);
        s.free(passed);
        s.free(layer);
        s.free(inputs[i]);
        passed = next;
      }
      s.free(s.alloc(kMiB, 0));
      s.free(passed);
      s.free(s.alloc(20 * kMiB, s.optimizer("_multi_tensor_adam")));
    }
  });
  EXPECT_EQ(bytes_where(trace, Category::kActivation,
                        [](const AllocationHistory& model, size_t i) {
                          return model.allocations.stack(i) == 0;
                        }),
            0U);
}

TEST(Categories, KeptResultsOfAWorkspacesSizeAreNone) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int step = 0; step < 8; ++step) {
      s.alloc(32 * kMiB, s.forward(3));
      const uint64_t gradient = s.alloc(20 * kMiB, 0);
      s.free(s.alloc(20 * kMiB, s.optimizer("_multi_tensor_adam")));
      s.free(gradient);
    }
  });
  EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:3", Category::kWorkspace), 0U);
}

// Native frames say what a block is, whatever its size.
TEST(Categories, WorkspacesThatNativeFramesName) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int token = 0; token < 40; ++token) {
      if (token == 3) {
        s.alloc(kMiB, s.stack({"at::cuda::getCUDABlasLtWorkspace() CublasHandlePool.cpp:1",
                               "forward torch/nn/modules/op.py:3",
                               "_call_impl torch/nn/modules/module.py:1", "serve serve.py:10"}));
      }
      s.free(s.alloc(3 * kMiB, s.forward(3)));
    }
  });
  EXPECT_EQ(bytes_at(trace, "at::cuda::getCUDABlasLtWorkspace() CublasHandlePool.cpp:1",
                     Category::kWorkspace),
            kMiB);
}

// The workspaces of a backward pass, in a model with weights of the size of cublasLt's. Gradients
// that are set to zero stay as workspaces do.
TEST(Categories, WorkspacesOfABackwardPass) {
  const auto run = [](bool workspace, bool zeroed) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(kMiB, s.setup());
      for (int step = 0; step < 4; ++step) {
        const uint64_t kept = s.alloc(16 * kMiB, s.forward(2));
        const uint64_t passed = s.alloc(16 * kMiB, 0);
        if (step == 0) s.alloc(32 * kMiB, 0);
        if (step == 0 && workspace) s.alloc(kMiB, 0);
        std::vector<uint64_t> gradients;
        for (int i = 0; i < 4 && (step == 0 || !zeroed); ++i) {
          gradients.push_back(s.alloc(kMiB, 0));
        }
        s.free(kept);
        s.free(passed);
        s.free(s.alloc(4 * kMiB, s.optimizer("_multi_tensor_adam")));
        for (size_t i = 0; i < gradients.size() && !zeroed; ++i) s.free(gradients[i]);
      }
    });
    return bytes_where(trace, Category::kWorkspace, [](const AllocationHistory& model, size_t i) {
      return model.allocations.block_bytes(i) == kMiB;
    });
  };
  EXPECT_EQ(run(true, false), kMiB);
  EXPECT_EQ(run(false, false), 0U);
  EXPECT_EQ(run(false, true), 0U);
}

// Buffers that a layer makes one after the other, keeps, and uses in turn; another line keeps one
// more result of every step.
TEST(Categories, BuffersTakenInTurnAreWorkspaces) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int step = 0; step < 16; ++step) {
      const uint64_t batch = s.alloc(8 * kMiB, s.stack({"load train.py:5"}));
      if (step < 3) s.alloc(6 * kMiB, s.forward(3));
      s.alloc(5 * kMiB, s.forward(4));
      const uint64_t kept = s.alloc(16 * kMiB, s.forward(2));
      const uint64_t gradient = s.alloc(20 * kMiB, 0);
      s.free(kept);
      s.free(s.alloc(20 * kMiB, s.optimizer("_multi_tensor_adam")));
      s.free(gradient);
      s.free(batch);
    }
  });
  EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:3", Category::kWorkspace), 18 * kMiB);
  EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:4", Category::kWorkspace), 0U);
  EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:4", Category::kActivation),
            16 * 5 * kMiB);
}

// A module computes something without a gradient and keeps it, as masks by their lengths are; or
// the program keeps one layer's results of past steps.
TEST(Categories, WhatACacheKeepsOfPastStepsIsNoActivation) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 20; ++i) {
      s.alloc(6 * kMiB, s.forward(24));
      t.step();
    }
  });
  const std::string mask = "forward torch/nn/modules/op.py:24";
  EXPECT_EQ(bytes_at(trace, mask, Category::kActivation), 0U);
  EXPECT_EQ(bytes_at(trace, mask, Category::kUnknown), 20 * 6 * kMiB);
  EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:1", Category::kActivation),
            20 * 6 * 8 * kMiB);
}

// model.to() of a model whose last backward pass left gradients.
Trace moved(bool gradients, bool buffers, bool alike) {
  return Trace([=](Story& s, uint32_t) {
    const auto line = [&](int of_apply) {
      return s.stack({"convert torch/nn/modules/module.py:1300",
                      "_apply torch/nn/modules/module.py:" + std::to_string(of_apply),
                      "_apply torch/nn/modules/module.py:900", "to torch/nn/modules/module.py:1340",
                      "main train.py:4"});
    };
    for (int layer = 0; layer < 4; ++layer) {
      for (const uint64_t bytes : {6 * kMiB, 2 * kMiB}) {
        s.alloc(bytes, line(930));
        if (gradients) s.alloc(bytes, line(970));
      }
      if (buffers) s.alloc(alike ? 2 * kMiB : 3 * kMiB, line(990));
    }
    for (int i = 0; i < 30; ++i) s.free(s.alloc(kMiB, s.user(9)));
  });
}

TEST(Categories, AModelIsMovedWithItsGradients) {
  const auto bytes = [](const Trace& trace, Category category) {
    return bytes_where(trace, category, [](const AllocationHistory&, size_t) { return true; });
  };
  for (const bool buffers : {false, true}) {
    const Trace trace = moved(true, buffers, true);
    EXPECT_EQ(bytes(trace, Category::kGradient), 32 * kMiB) << buffers;
    EXPECT_EQ(bytes(trace, Category::kParameter), (buffers ? 40 : 32) * kMiB) << buffers;
  }
  EXPECT_EQ(bytes(moved(false, true, false), Category::kGradient), 0U);
}

// A program that clears its gradients between the backward pass and the optimizer's step. `all`:
// each parameter has one, else only the smallest.
Trace cleared(bool all) {
  return Trace([all](Story& s, uint32_t) {
    for (const uint64_t mib : {6U, 4U, 3U, 1U}) s.alloc(mib * kMiB, s.setup());
    for (int step = 0; step < 4; ++step) {
      std::vector<uint64_t> kept;
      for (int layer = 1; layer <= 4; ++layer) kept.push_back(s.alloc(16 * kMiB, s.forward(layer)));
      std::vector<uint64_t> gradients;
      for (const uint64_t mib : {1U, 3U, 4U, 6U}) {
        const uint64_t gradient = s.alloc(mib * kMiB, s.node("MmBackward0"));
        if (all || mib == 1) {
          gradients.push_back(gradient);
        } else {
          s.free(gradient);
        }
      }
      for (const uint64_t block : kept) s.free(block);
      for (const uint64_t block : gradients) s.free(block);
      s.optimizer_mark();
    }
  });
}

TEST(Categories, GradientsMayBeClearedBeforeTheOptimizer) {
  EXPECT_EQ(bytes_at(cleared(true), "MmBackward0", Category::kGradient), 4 * 14 * kMiB);
  EXPECT_EQ(bytes_at(cleared(false), "MmBackward0", Category::kGradient), 0U);
}

// Attention by plain functions: its results are freed in the backward pass, or by the next step.
TEST(Categories, ResultsOfFunctionsAreNoInput) {
  const Trace trace([](Story& s, uint32_t) {
    const auto line = [&](const std::string& operation, int number) {
      return s.stack({"at::_ops::" + operation + "::call(x) ops.cpp:1",
                      "attention attention.py:" + std::to_string(number), "run run.py:7"});
    };
    const uint32_t loss =
        s.stack({"mse_loss torch/nn/functional.py:9", "forward torch/nn/modules/loss.py:3",
                 "_call_impl torch/nn/modules/module.py:1", "run run.py:8"});
    uint64_t result = 0;
    for (int step = 0; step < 6; ++step) {
      const uint64_t batch = s.alloc(8 * kMiB, line("randn", 1));
      const uint64_t scaled = s.alloc(16 * kMiB, line("div_Tensor", 2));
      const uint64_t weights = s.alloc(16 * kMiB, line("exp", 3));
      if (result != 0) s.free(result);
      result = s.alloc(8 * kMiB, line("matmul", 4));
      const uint64_t error = s.alloc(kMiB, loss);
      for (const uint64_t block : {weights, scaled}) {
        s.free(s.alloc(16 * kMiB, s.node("MmBackward0")));
        s.free(block);
      }
      s.free(s.alloc(8 * kMiB, s.node("MmBackward0")));
      s.free(error);
      for (int i = 0; i < 4; ++i) s.free(s.alloc(kMiB, s.user(20)));
      s.free(batch);
    }
    for (int i = 0; i < 4; ++i) s.older_block(8 * kMiB);
  });
  const auto bytes = [&](Category category) {
    return bytes_where(trace, category, [](const AllocationHistory&, size_t) { return true; });
  };
  EXPECT_EQ(bytes(Category::kInput), 6 * 8 * kMiB);
  EXPECT_EQ(bytes(Category::kOptimizerState), 0U);
}

}  // namespace
}  // namespace tidemark
