// Categories in programs that never run a backward pass.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

constexpr int kRequests = 20;

// Each request reads its input, runs a model whose first result the last layer adds, gathers
// something from a pool for each of its layers, and converts what comes out.
Trace served() {
  return Trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    s.alloc(200 * kMiB, s.stack({"__init__ serve.py:5", "main serve.py:90"}));
    const auto at = [&](const std::string& line) { return s.stack({line, "main serve.py:95"}); };
    const auto layer = [&](int line) {
      return s.stack({"forward model.py:" + std::to_string(line),
                      "_call_impl torch/nn/modules/module.py:1", "serve serve.py:12",
                      "main serve.py:95"});
    };
    uint64_t pixels = 0;
    for (int i = 0; i < kRequests; ++i) {
      const uint64_t input = s.alloc(2 * kMiB, at("serve serve.py:10"));
      const uint64_t skipped = s.alloc(8 * kMiB, layer(20));
      s.free(input);
      for (int block = 0; block < 8; ++block) {
        const uint64_t gathered = s.alloc(16 * kMiB, at("read pool.py:7"));
        for (int part = 0; part < 2; ++part) s.free(s.alloc(4 * kMiB, layer(21 + part)));
        s.free(gathered);
      }
      const uint64_t result = s.alloc(8 * kMiB, layer(29));
      s.free(skipped);
      if (pixels != 0) s.free(pixels);
      pixels = s.alloc(3 * kMiB, at("serve serve.py:14"));  // until the next ones are there
      s.free(result);
    }
  });
}

TEST(ServingCategories, WhatIsComputedIsNoInput) {
  const Trace trace = served();
  EXPECT_EQ(bytes_at(trace, "serve serve.py:10", Category::kInput), kRequests * 2 * kMiB);
  EXPECT_EQ(bytes_at(trace, "read pool.py:7", Category::kInput), 0U);
  EXPECT_EQ(bytes_at(trace, "serve serve.py:14", Category::kInput), 0U);
}

TEST(ServingCategories, NothingWaitsForABackwardPass) {
  EXPECT_EQ(bytes_at(served(), "forward model.py:20", Category::kActivation), 0U);
}

// A program may call functions of torch.nn itself, before it has any model.
TEST(ServingCategories, AFunctionIsNoPassOfAModel) {
  const Trace trace([](Story& s, uint32_t) {
    const uint64_t index = s.alloc(64 * kMiB, s.stack({"build index.py:3"}));
    for (int i = 0; i < 4; ++i) {
      const uint64_t part = s.alloc(16 * kMiB, s.stack({"build index.py:5"}));
      s.free(
          s.alloc(16 * kMiB, s.stack({"normalize torch/nn/functional.py:1", "build index.py:6"})));
      s.free(part);
    }
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int i = 0; i < 12; ++i) {
      const uint64_t input = s.alloc(2 * kMiB, s.stack({"search index.py:9"}));
      for (int layer = 0; layer < 4; ++layer) {
        s.free(s.alloc(4 * kMiB, s.forward(2 + layer, "search index.py:10")));
      }
      s.free(input);
    }
    s.free(index);
  });
  EXPECT_EQ(bytes_at(trace, "build index.py:5", Category::kInput), 0U);
  EXPECT_EQ(bytes_at(trace, "search index.py:9", Category::kInput), 12 * 2 * kMiB);
}

// Of a request that is still answered, and whose beginning the history has lost.
TEST(ServingCategories, WhatACacheCallsIsTheCache) {
  const Trace trace([](Story& s, uint32_t) {
    const auto update = [&](const std::string& inner) {
      return s.stack({inner, "update cache_utils_v2.py:20", "forward model.py:30",
                      "_call_impl torch/nn/modules/module.py:1", "main serve.py:95"});
    };
    s.free(s.alloc(512, s.user(3)));
    for (int i = 0; i < 6; ++i) s.older_block(20 * kMiB);
    for (int i = 0; i < 6; ++i) {
      s.older_block(4 * kMiB, update("append cache_utils_v2.py:12"));
      s.older_block(kMiB, update("quantize bits.py:4"));
    }
  });
  EXPECT_EQ(bytes_at(trace, "append cache_utils_v2.py:12", Category::kKvCache), 24 * kMiB);
  EXPECT_EQ(bytes_at(trace, "quantize bits.py:4", Category::kKvCache), 6 * kMiB);
}

// A tensor that a model of convolutions is given in each of its passes, of different lines.
TEST(ServingCategories, AConstantInputIsNoCache) {
  const auto told = [](const std::string& layers) {
    return Trace([=](Story& s, uint32_t) {
      const auto pass = [&](int line) {
        for (int layer = 0; layer < 4; ++layer) {
          s.free(s.alloc(4 * kMiB, s.stack({"_conv_forward torch/nn/modules/conv.py:5",
                                            "forward " + layers + ".py:7",
                                            "_call_impl torch/nn/modules/module.py:1",
                                            "work train.py:" + std::to_string(line)})));
        }
      };
      pass(20);
      const uint64_t constant = s.alloc(40 * kMiB, s.user(8));
      for (int i = 0; i < 12; ++i) {
        pass(30 + i);
        s.free(s.alloc(kMiB, s.user(50 + i)));
      }
      s.free(constant);
      s.free(s.alloc(kMiB, s.user(12)));
    });
  };
  const std::string line = "work train.py:8";
  EXPECT_EQ(bytes_at(told("filters"), line, Category::kInput), 40 * kMiB);
  EXPECT_EQ(bytes_at(told("attention"), line, Category::kKvCache), 40 * kMiB);
}

// An engine with weights of its own, requests with keys and values for each layer, and the recorded
// sound that each of them begins with.
Trace engine() {
  return Trace([](Story& s, uint32_t) {
    for (const uint64_t mib : {12U, 4U, 16U}) {
      for (int layer = 0; layer < 4; ++layer) {
        s.alloc(mib * kMiB, s.stack({"Engine.__init__.<locals>.<lambda> serve.py:4",
                                     "Engine.__init__ serve.py:5", "main serve.py:90"}));
      }
    }
    for (int request = 0; request < 6; ++request) {
      std::vector<uint64_t> of_request = {
          s.alloc(30 * kMiB, s.stack({"answer serve.py:8", "main serve.py:91"}))};
      for (int part = 0; part < 8; ++part) {
        of_request.push_back(
            s.alloc(10 * kMiB, s.stack({"answer serve.py:9", "main serve.py:91"})));
      }
      for (int token = 0; token < 12; ++token) {
        for (int layer = 0; layer < 4; ++layer) {
          s.free(s.alloc(2 * kMiB, s.stack({"attend torch/nn/functional.py:1", "layer serve.py:20",
                                            "answer serve.py:12"})));
        }
        s.free(s.alloc(kMiB, s.stack({"answer serve.py:13", "main serve.py:91"})));
      }
      for (const uint64_t block : of_request) s.free(block);
    }
  });
}

TEST(ServingCategories, WeightsOfManySizesAreNoCache) {
  EXPECT_EQ(
      bytes_at(engine(), "Engine.__init__.<locals>.<lambda> serve.py:4", Category::kParameter),
      4 * 32 * kMiB);
}

TEST(ServingCategories, ASingleBlockBesideCachesOfLayersIsNone) {
  EXPECT_EQ(bytes_at(engine(), "answer serve.py:8", Category::kKvCache), 0U);
  EXPECT_EQ(bytes_at(engine(), "answer serve.py:9", Category::kKvCache), 6 * 80 * kMiB);
}

// Sessions that are never freed, of which the first come from another caller.
TEST(ServingCategories, OneLineHasOneCategory) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto open = [&](int line) {
      s.alloc(9 * kMiB, s.stack({"open session.py:3", "serve serve.py:" + std::to_string(line)}));
    };
    for (int i = 0; i < 4; ++i) open(10);
    for (int round = 0; round < 30; ++round) {
      for (int layer = 0; layer < 4; ++layer) {
        s.free(s.alloc(2 * kMiB,
                       s.stack({"attention torch/nn/functional.py:1", "serve serve.py:11"})));
      }
      s.free(s.alloc(kMiB, s.stack({"serve serve.py:12"})));
      if (round < 28) open(13);
    }
  });
  EXPECT_EQ(bytes_at(trace, "open session.py:3", Category::kKvCache), 0U);
}

// The pass that memory ran out in is like the ones before, which kept nothing.
TEST(ServingCategories, WhatAFailedPassHadIsTemporary) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int request = 0; request < 5; ++request) {
      std::vector<uint64_t> held;
      const uint64_t input = s.alloc(kMiB, s.stack({"serve serve.py:8"}));
      for (int layer = 0; layer < 12; ++layer) {
        held.push_back(s.alloc(4 * kMiB, s.forward(layer, "serve serve.py:9")));
        if (layer % 2 == 0) continue;
        if (request == 4 && layer > 3) break;
        for (const uint64_t block : held) s.free(block);
        held.clear();
      }
      if (request == 4) s.run_out(900 * kMiB, 2 * kMiB, s.forward(6, "serve serve.py:9"));
      s.free(input);
    }
  });
  const auto in_model = [](const AllocationHistory& model, size_t i) {
    return model.allocations.block_bytes(i) == 4 * kMiB;
  };
  EXPECT_EQ(bytes_where(trace, Category::kActivation, in_model), 0U);
}

// Two requests fail; one error is stored, and with it what its pass had computed. It is no graph,
// and nothing as large is a library's workspace.
TEST(ServingCategories, WhatAStoredErrorKeepsOfAPassIsNoActivation) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int request = 0; request < 10; ++request) {
      const bool fails = request >= 6;
      const uint64_t input = s.alloc(kMiB, s.stack({"serve serve.py:8"}));
      uint64_t last = 0;
      for (int layer = 0; layer < 12; ++layer) {
        const bool keeps = fails && layer >= 4;
        const uint64_t block =
            s.alloc((keeps ? 600 : 4) * kMiB, s.forward(layer, "serve serve.py:9"));
        if (last != 0) s.free(last);
        last = keeps && request == 6 ? 0 : block;
        if (keeps && layer >= 8) break;
      }
      if (fails) s.run_out(9000 * kMiB, 2 * kMiB, s.forward(9, "serve serve.py:9"));
      if (last != 0) s.free(last);
      s.free(input);
    }
  });
  const auto kept = [](const AllocationHistory& model, size_t i) {
    return model.allocations.block_bytes(i) == 600 * kMiB;
  };
  EXPECT_EQ(bytes_where(trace, Category::kActivation, kept), 0U);
  EXPECT_EQ(bytes_where(trace, Category::kWorkspace, kept), 0U);
}

// A program that resamples images with functions of torch.nn has no keys and values.
TEST(ServingCategories, WithoutAModelThereIsNoCache) {
  const auto told = [](const std::string& function) {
    return Trace([=](Story& s, uint32_t) {
      const uint64_t volume =
          s.alloc(40 * kMiB, s.stack({"__init__ scan.py:5", "main scan.py:60"}));
      const uint64_t other = s.alloc(40 * kMiB, s.stack({"__init__ scan.py:6", "main scan.py:60"}));
      for (int part = 0; part < 48; ++part) {
        if (part % 4 == 0) s.free(s.alloc(kMiB, s.stack({"main scan.py:61"})));
        const uint64_t grid = s.alloc(2 * kMiB, s.stack({"project scan.py:20", "main scan.py:62"}));
        s.free(s.alloc(4 * kMiB, s.stack({function + " torch/nn/functional.py:9",
                                          "project scan.py:21", "main scan.py:62"})));
        s.free(grid);
      }
      s.free(volume);
      s.free(other);
    });
  };
  EXPECT_EQ(bytes_at(told("grid_sample"), "__init__ scan.py:5", Category::kKvCache), 0U);
  EXPECT_NE(bytes_at(told("layer_norm"), "__init__ scan.py:5", Category::kKvCache), 0U);
}

}  // namespace
}  // namespace tidemark
