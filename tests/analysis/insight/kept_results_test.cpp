// What a program keeps from one request to the next, and copies of its models.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

// Each request has a cache, and the last one fails before it has run.
TEST(KeptResults, ACacheOfARequestThatFailsIsLikeThoseBefore) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto pass = [&](int line, uint64_t bytes) {
      const std::string caller = "answer serve.py:" + std::to_string(line);
      for (int layer = 0; layer < 6; ++layer) s.free(s.alloc(bytes, s.forward(layer, caller)));
    };
    const uint32_t buffer = s.stack({"answer serve.py:70"});
    for (int request = 0; request < 12; ++request) {
      const uint64_t cache = s.alloc(64 * kMiB, buffer);
      pass(71, 8 * kMiB);
      for (int token = 0; token < 8; ++token) {
        s.free(s.alloc(512, s.stack({"answer serve.py:73"})));
        pass(74, kMiB);
      }
      s.free(cache);
    }
    s.alloc(128 * kMiB, buffer);
    s.run_out(512 * kMiB, 2 * kMiB, s.forward(0, "answer serve.py:71"));
  });
  EXPECT_EQ(bytes_at(trace, "answer serve.py:70", Category::kKvCache), (12 * 64 + 128) * kMiB);
}

// A result of each pass, of one line of the model, is kept for some more or for ever. Nothing waits
// for a backward pass.
TEST(KeptResults, WhatOutlivesPassesIsNoActivation) {
  for (const size_t kept : {size_t{6}, size_t{100}}) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
      std::vector<uint64_t> results;
      for (int request = 0; request < 40; ++request) {
        const uint64_t input = s.alloc(2 * kMiB, s.stack({"serve serve.py:8"}));
        for (int layer = 0; layer < 12; ++layer) {
          s.free(s.alloc(3 * kMiB, s.forward(2, "serve serve.py:9")));
        }
        results.push_back(s.alloc(9 * kMiB, s.forward(7, "serve serve.py:9")));
        s.free(input);
        if (results.size() <= kept) continue;
        s.free(results.front());
        results.erase(results.begin());
      }
    });
    const auto is_result = [](const AllocationHistory& model, size_t i) {
      return model.allocations.block_bytes(i) == 9 * kMiB;
    };
    // No passes follow the last ones.
    EXPECT_LE(bytes_where(trace, Category::kActivation, is_result), 3 * 9 * kMiB) << kept;
    EXPECT_LE(bytes_where(trace, Category::kTemporary, is_result), 3 * 9 * kMiB) << kept;
  }
}

// A norm has statistics beside its result, which a bank of the program keeps a view of.
TEST(KeptResults, WhatStepsKeepOfALineWithStatisticsIsNoActivation) {
  constexpr int kSteps = 12;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(4 * kMiB, s.setup());
    for (int step = 0; step < kSteps; ++step) {
      std::vector<uint64_t> graph;
      const uint64_t input = s.alloc(3 * kMiB, s.user(3));
      for (int layer = 0; layer < 6; ++layer) {
        graph.push_back(s.alloc(8 * kMiB, s.forward(layer)));
      }
      for (int statistic = 0; statistic < 2; ++statistic) {
        graph.push_back(s.alloc(4096, s.forward(9)));
      }
      s.alloc(16 * kMiB, s.forward(9));
      std::vector<uint64_t> gradients;
      for (auto block = graph.rbegin(); block != graph.rend(); ++block) {
        gradients.push_back(s.alloc(kMiB, s.node("AddmmBackward0")));
        s.free(*block);
      }
      s.free(input);
      s.free(s.alloc(4 * kMiB, s.optimizer("_multi_tensor_adam")));
      for (const uint64_t gradient : gradients) s.free(gradient);
    }
  });
  const auto is_result = [](const AllocationHistory& model, size_t i) {
    return model.allocations.block_bytes(i) == 16 * kMiB;
  };
  EXPECT_LE(bytes_where(trace, Category::kActivation, is_result), 2 * 16 * kMiB);
}

// Each batch is larger than the one before, and replaces it when it is there.
TEST(KeptResults, BatchesSortedByLengthAreInput) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(4 * kMiB, s.setup());
    uint64_t batch = 0;
    for (uint64_t step = 0; step < 12; ++step) {
      const uint64_t next = s.alloc((2 + step) * kMiB, s.user(3));
      if (batch != 0) s.free(batch);
      batch = next;
      std::vector<uint64_t> graph;
      for (int layer = 0; layer < 6; ++layer) graph.push_back(s.alloc(8 * kMiB, s.forward(layer)));
      std::vector<uint64_t> gradients;
      for (; !graph.empty(); graph.pop_back()) {
        gradients.push_back(s.alloc(kMiB, s.node("AddmmBackward0")));
        s.free(graph.back());
      }
      s.free(s.alloc(4 * kMiB, s.optimizer("_multi_tensor_adam")));
      for (const uint64_t gradient : gradients) s.free(gradient);
    }
  });
  // What the last one is for does not show.
  EXPECT_LE(bytes_at(trace, "work train.py:3", Category::kUnknown), 13 * kMiB);
}

// Without a graph, the result is what is left of a pass.
TEST(KeptResults, TheResultOfAValidationIsNoActivation) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    uint64_t result = 0;
    for (int batch = 0; batch < 2; ++batch) {
      for (int layer = 0; layer < 12; ++layer) s.free(s.alloc(3 * kMiB, s.forward(layer)));
      const uint64_t logits = s.alloc(90 * kMiB, s.forward(12));
      s.free(s.alloc(2 * kMiB, s.user(9)));
      if (result != 0) s.free(result);
      result = logits;
    }
  });
  EXPECT_EQ(bytes_at(trace, "forward torch/nn/modules/op.py:12", Category::kActivation), 0U);
}

// Each forward pass copies the weights to every other device, and gives each a part of the batch.
TEST(KeptResults, CopiesOfDataParallelAreWeightsAndItsPartsAreInput) {
  const std::string parallel = " torch/nn/parallel/";
  const Trace trace([&](Story& s, uint32_t) {
    const std::vector<std::string> outer = {"forward" + parallel + "data_parallel.py:180",
                                            "_call_impl torch/nn/modules/module.py:1",
                                            "train train.py:10"};
    const auto inside = [&](std::vector<std::string> frames) {
      frames.insert(frames.end(), outer.begin(), outer.end());
      return s.stack(frames);
    };
    const uint32_t copies = inside({"broadcast_coalesced" + parallel + "comm.py:66",
                                    "replicate" + parallel + "replicate.py:95"});
    const uint32_t parts = inside(
        {"to" + parallel + "scatter_gather.py:20", "scatter" + parallel + "data_parallel.py:109"});
    for (int step = 0; step < 4; ++step) {
      std::vector<uint64_t> blocks = {s.alloc(6 * kMiB, parts)};
      for (int i = 0; i < 5; ++i) blocks.push_back(s.alloc(7 * kMiB, copies));
      for (int i = 0; i < 20; ++i) blocks.push_back(s.alloc(kMiB, s.forward(i)));
      for (int i = 0; i < 20; ++i) s.free(s.alloc(kMiB, 0));
      for (const uint64_t block : blocks) s.free(block);
      s.optimizer_mark();
    }
  });
  const std::string copy = "broadcast_coalesced" + parallel + "comm.py:66";
  EXPECT_EQ(bytes_at(trace, copy, Category::kParameter), 4 * 35 * kMiB);
  EXPECT_EQ(bytes_at(trace, "to" + parallel + "scatter_gather.py:20", Category::kInput), 24 * kMiB);
}

// PyTorch's own function says so, also where the block is freed or was there before.
TEST(KeptResults, AWorkspaceThatIsNamedIsOne) {
  const Trace trace([](Story& s, uint32_t) {
    const uint32_t named = s.stack({"at::cuda::getNewWorkspace() CUDABlasHandlePool.cpp:10",
                                    "forward torch/nn/modules/op.py:3",
                                    "_call_impl torch/nn/modules/module.py:1", "run run.py:3"});
    const uint64_t first = s.alloc(32 * kMiB, named);
    for (int i = 0; i < 20; ++i) s.free(s.alloc(kMiB, s.forward(i)));
    s.free(first);
    s.alloc(4 * kMiB, named);
  });
  EXPECT_EQ(bytes_at(trace, "at::cuda::getNewWorkspace() CUDABlasHandlePool.cpp:10",
                     Category::kWorkspace),
            36 * kMiB);
}

// Before the first step a copy is a model, later it may be a checkpoint.
TEST(KeptResults, ACopyOfAModelBeforeTheFirstStepIsOne) {
  const Trace trace([](Story& s, uint32_t) {
    const auto copied = [&](int line) {
      const std::string caller = "main train.py:" + std::to_string(line);
      for (const uint64_t mib : {20U, 30U, 40U}) {
        s.alloc(mib * kMiB, s.stack({"Parameter.__deepcopy__ torch/nn/parameter.py:79",
                                     "deepcopy python3.12/copy.py:143", caller}));
      }
    };
    for (const uint64_t mib : {20U, 30U, 40U}) s.alloc(mib * kMiB, s.setup());
    copied(12);
    for (int step = 0; step < 8; ++step) {
      const uint64_t a = s.alloc(8 * kMiB, s.forward(1, "main train.py:20"));
      s.free(s.alloc(8 * kMiB, 0));
      s.free(a);
      s.optimizer_mark();
      if (step == 5) copied(30);
    }
  });
  const Dictionary& names = trace.model().processes[0].names;
  const auto copied_at = [&](std::string_view line) {
    return bytes_where(trace, Category::kParameter, [&](const AllocationHistory& model, size_t i) {
      const std::vector<std::string> frames = names.stack_text(model.allocations.stack(i));
      return frames.size() == 3 && frames.back() == line;
    });
  };
  EXPECT_EQ(copied_at("main train.py:12"), 90 * kMiB);
  EXPECT_EQ(copied_at("main train.py:30"), 0U);
}

}  // namespace
}  // namespace tidemark
