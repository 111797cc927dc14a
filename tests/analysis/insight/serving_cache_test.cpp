// Which blocks of a program that serves are its KV cache.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

// One line calls the model and appends a result of one size to a list.
TEST(ServingCache, WhatIsNeverFreedIsALeak) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const std::string line = "serve serve.py:8";
    for (int request = 0; request < 40; ++request) {
      const uint64_t prompt = s.alloc(2 * kMiB, s.stack({line}));
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(3 * kMiB, s.forward(2, line)));
      s.free(prompt);
      s.alloc(4 * kMiB, s.stack({"scores serve.py:4", line}));
    }
  });
  EXPECT_EQ(bytes_at(trace, "scores serve.py:4", Category::kKvCache), 0U);
}

// Keys and values that each layer concatenates with those of the next token. `at_once`: the old
// ones are freed after each layer, or together when the whole pass is done.
Trace concatenating(bool at_once) {
  return Trace([at_once](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto line = [&](int number) {
      return s.stack({"forward model.py:" + std::to_string(number),
                      "_call_impl torch/nn/modules/module.py:1", "answer serve.py:40"});
    };
    for (int request = 0; request < 3; ++request) {
      const uint64_t prompt = s.alloc(2 * kMiB, s.stack({"answer serve.py:39"}));
      std::vector<uint64_t> cache;
      for (int layer = 0; layer < 4; ++layer) {
        cache.push_back(s.alloc(4 * kMiB, line(10)));
        s.free(s.alloc(6 * kMiB, line(14)));
      }
      for (uint64_t token = 1; token < 12; ++token) {
        std::vector<uint64_t> longer;
        for (size_t layer = 0; layer < 4; ++layer) {
          s.free(s.alloc(64 << 10, line(10)));
          longer.push_back(s.alloc(4 * kMiB + (token << 16), line(12)));
          if (at_once) s.free(cache[layer]);
          s.free(s.alloc(128 << 10, line(14)));
        }
        for (size_t layer = 0; layer < 4 && !at_once; ++layer) s.free(cache[layer]);
        cache = longer;
      }
      for (const uint64_t block : cache) s.free(block);
      s.free(prompt);
    }
  });
}

TEST(ServingCache, KeysAndValuesThatAreConcatenated) {
  for (const bool at_once : {true, false}) {
    const Trace trace = concatenating(at_once);
    uint64_t all = 0;
    for (uint64_t token = 1; token < 12; ++token) all += 3 * 4 * (4 * kMiB + (token << 16));
    EXPECT_EQ(bytes_at(trace, "forward model.py:12", Category::kKvCache), all) << at_once;
    // Those of the prompts, too.
    EXPECT_EQ(bytes_at(trace, "forward model.py:10", Category::kKvCache), 3 * 4 * 4 * kMiB)
        << at_once;
    EXPECT_EQ(bytes_at(trace, "forward model.py:14", Category::kKvCache), 0U) << at_once;
  }
}

// A beam search that makes a reordered copy with every token. `layers`: each has a block, which is
// freed at once, or with all others. A pass allocates `pass_bytes`.
struct BeamSearch {
  size_t layers = 1;
  bool at_once = true;
  int requests = 8;
  int tokens = 12;
  uint64_t block_bytes = 60 * kMiB;
  uint64_t pass_bytes = 12 * kMiB;
};

Trace searched(const BeamSearch& b) {
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto pass = [&](int line, uint64_t bytes) {
      const std::string caller = "search serve.py:" + std::to_string(line);
      for (int layer = 0; layer < 4; ++layer) {
        s.free(s.alloc(bytes / 4, s.forward(layer, caller)));
      }
    };
    const uint32_t reorders = s.stack({"search serve.py:73", "main serve.py:90"});
    for (int request = 0; request < b.requests; ++request) {
      const uint64_t source = s.alloc(64 << 10, s.stack({"main serve.py:89"}));
      std::vector<uint64_t> cache;
      for (size_t i = 0; i < b.layers; ++i) {
        cache.push_back(
            s.alloc(b.block_bytes, s.stack({"search serve.py:65", "main serve.py:90"})));
      }
      pass(66, 40 * b.pass_bytes);
      for (int token = 0; token < b.tokens; ++token) {
        pass(69, b.pass_bytes);
        std::vector<uint64_t> copy;
        for (size_t i = 0; i < b.layers; ++i) {
          copy.push_back(s.alloc(b.block_bytes, reorders));
          if (b.at_once) s.free(cache[i]);
        }
        for (size_t i = 0; i < b.layers && !b.at_once; ++i) s.free(cache[i]);
        cache = copy;
      }
      for (const uint64_t block : cache) s.free(block);
      s.free(source);
    }
  });
}

TEST(ServingCache, ACacheThatIsCopiedWithEveryToken) {
  const BeamSearch kinds[] = {
      {},
      {.layers = 8, .at_once = true, .block_bytes = 9 * kMiB},
      {.layers = 8, .at_once = false, .block_bytes = 9 * kMiB},
      {.requests = 1, .tokens = 30},
      {.requests = 20, .tokens = 5},
      {.block_bytes = 900 * kMiB, .pass_bytes = 40 * kMiB},
  };
  for (const BeamSearch& b : kinds) {
    const Trace trace = searched(b);
    const uint64_t each = b.layers * static_cast<uint64_t>(b.requests) * b.block_bytes;
    EXPECT_EQ(bytes_at(trace, "search serve.py:73", Category::kKvCache),
              each * static_cast<uint64_t>(b.tokens));
    EXPECT_EQ(bytes_at(trace, "search serve.py:65", Category::kKvCache), each);
    EXPECT_EQ(bytes_at(trace, "main serve.py:89", Category::kKvCache), 0U);
  }
  // Images that are denoised are the input of each pass, and smaller than what it computes.
  EXPECT_EQ(bytes_at(searched({.block_bytes = 8 * kMiB}), "search serve.py:73", Category::kKvCache),
            0U);
}

// A variable holds a batch until it has the next one.
TEST(ServingCache, BatchesOneAfterTheOtherAreNoCopies) {
  for (const uint64_t bytes : {uint64_t{2}, uint64_t{100}}) {
    const Trace trace([&](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
      uint64_t batch = 0;
      for (int i = 0; i < 40; ++i) {
        const uint64_t next = s.alloc(bytes * kMiB, s.stack({"score serve.py:7"}));
        if (i != 0) s.free(batch);
        batch = next;
        for (int layer = 0; layer < 4; ++layer) {
          s.free(s.alloc(4 * kMiB, s.forward(layer, "score serve.py:8")));
        }
      }
    });
    EXPECT_EQ(bytes_at(trace, "score serve.py:7", Category::kKvCache), 0U) << bytes;
  }
}

// The logits of a prompt live until those of the first token, and with ever longer prompts they
// have ever more bytes.
TEST(ServingCache, LogitsOfPromptsAreNone) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto line = [&](int number, int caller) {
      return s.stack({"forward model.py:" + std::to_string(number),
                      "_call_impl torch/nn/modules/module.py:1",
                      "answer serve.py:" + std::to_string(caller)});
    };
    for (uint64_t request = 0; request < 6; ++request) {
      const uint64_t prompt = s.alloc(2 * kMiB, s.stack({"answer serve.py:38"}));
      const uint64_t bytes = (4 + request) * kMiB;
      std::vector<uint64_t> cache;
      for (int layer = 0; layer < 4; ++layer) cache.push_back(s.alloc(bytes, line(10, 39)));
      uint64_t logits = s.alloc(8 * bytes, line(20, 39));
      for (uint64_t token = 1; token < 12; ++token) {
        s.free(s.alloc(4096, s.stack({"answer serve.py:40"})));
        for (uint64_t& of_layer : cache) {
          const uint64_t longer = s.alloc(bytes + (token << 16), line(12, 41));
          s.free(of_layer);
          of_layer = longer;
        }
        const uint64_t next = s.alloc(128 << 10, line(20, 41));
        s.free(logits);
        logits = next;
      }
      s.free(logits);
      for (const uint64_t block : cache) s.free(block);
      s.free(prompt);
    }
  });
  EXPECT_EQ(bytes_at(trace, "forward model.py:20", Category::kKvCache), 0U);
  EXPECT_NE(bytes_at(trace, "forward model.py:10", Category::kKvCache), 0U);
  EXPECT_NE(bytes_at(trace, "forward model.py:12", Category::kKvCache), 0U);
}

// Images whose steps of denoising are kept and stacked at the end. `together`: requests whose
// buffers are filled one after the other, before all of them are decoded.
Trace denoises(int steps, bool together, int images = 8) {
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto pass = [&](const std::string& line) {
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(4 * kMiB, s.forward(layer, line)));
    };
    const auto line = [&](int number) {
      return s.stack({"run serve.py:" + std::to_string(number), "main serve.py:90"});
    };
    for (int image = 0; image < images; ++image) {
      uint64_t noise = s.alloc(3 * kMiB, s.stack({"main serve.py:89"}));
      std::vector<uint64_t> frames;
      for (int i = 0; i < steps; ++i) {
        pass("run serve.py:67");
        const uint64_t scaled = s.alloc(3 * kMiB, line(69));
        frames.push_back(s.alloc(3 * kMiB, line(69)));
        s.free(scaled);
        const uint64_t next = s.alloc(3 * kMiB, line(73));
        s.free(noise);
        noise = next;
      }
      for (int i = 0; i < 3 * steps && together; ++i) {
        pass("run serve.py:71");
        s.free(s.alloc(4096, line(72)));
      }
      const uint64_t all = s.alloc(frames.size() * 3 * kMiB, line(74));
      for (const uint64_t frame : frames) s.free(frame);
      s.free(noise);
      s.free(all);
    }
  });
}

TEST(ServingCache, ResultsOfEachPassThatAreStackedAreNone) {
  for (const int steps : {10, 25, 60}) {
    for (const int images : {2, 8}) {
      const Trace trace = denoises(steps, false, images);
      for (const Category category : {Category::kKvCache, Category::kInput}) {
        EXPECT_EQ(bytes_at(trace, "run serve.py:69", category), 0U) << steps << " " << images;
      }
    }
    EXPECT_NE(bytes_at(denoises(steps, true), "run serve.py:69", Category::kKvCache), 0U);
  }
}

// What a server makes at its start: pools for keys and values, or the data that it searches.
TEST(ServingCache, ASingleBlockFromTheStartMayBeData) {
  const auto pools = [](int blocks) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
      std::vector<uint64_t> pool;
      for (int i = 0; i < blocks; ++i) {
        pool.push_back(s.alloc(300 * kMiB, s.stack({"__init__ serve.py:38", "main serve.py:80"})));
      }
      for (int query = 0; query < 40; ++query) {  // each of another line: there are no steps
        const std::string line = "ask serve.py:" + std::to_string(50 + query);
        const uint64_t ids = s.alloc(4096, s.stack({line}));
        for (int k = 0; k < 4; ++k) s.free(s.alloc(4 * kMiB, s.forward(k, line)));
        s.free(ids);
      }
      for (const uint64_t block : pool) s.free(block);
    });
    EXPECT_EQ(bytes_at(trace, "__init__ serve.py:38", Category::kInput), 0U);
    return bytes_at(trace, "__init__ serve.py:38", Category::kKvCache);
  };
  EXPECT_EQ(pools(1), 0U);
  EXPECT_EQ(pools(2), 600 * kMiB);
}

// Requests that wait for their turn, four of them in each batch.
TEST(ServingCache, AQueueIsNone) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    std::vector<uint64_t> queue;
    for (int tick = 0; tick < 120; ++tick) {
      for (int k = 0; k < (tick % 30 == 10 ? 60 : 2); ++k) {
        queue.push_back(s.alloc(2 * kMiB, s.stack({"receive serve.py:11"})));
      }
      for (size_t k = 0; k < 4 && !queue.empty(); ++k) {
        s.free(queue.front());
        queue.erase(queue.begin());
      }
      for (int layer = 0; layer < 4; ++layer) {
        s.free(s.alloc(8 * kMiB, s.forward(layer + 1, "serve serve.py:17")));
      }
    }
  });
  EXPECT_EQ(bytes_at(trace, "receive serve.py:11", Category::kKvCache), 0U);
}

// Without a model, blocks that become longer are no keys and values.
TEST(ServingCache, AProgramWithoutModulesHasNone) {
  const Trace trace([](Story& s, uint32_t) {
    std::vector<uint64_t> before;
    for (uint64_t i = 0; i < 20; ++i) {
      std::vector<uint64_t> longer;
      for (int k = 0; k < 2; ++k) {
        longer.push_back(
            s.alloc(4 * kMiB + (i << 16), s.stack({"join work.py:5", "main work.py:9"})));
      }
      for (const uint64_t block : before) s.free(block);
      before = longer;
    }
  });
  EXPECT_EQ(bytes_at(trace, "join work.py:5", Category::kKvCache), 0U);
}

// Each stream has a workspace of cuBLAS and one of cublasLt, which stay.
TEST(ServingCache, WorkspacesOfStreamsAreNone) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const std::string line = "serve serve.py:8";
    for (uint64_t request = 0; request < 12; ++request) {
      s.on(request / 3, 0);
      const uint64_t prompt = s.alloc(2 * kMiB, s.stack({line}));
      for (int layer = 0; layer < 4; ++layer) {
        const uint64_t result = s.alloc(3 * kMiB, s.forward(2, line));
        if (request % 3 == 0 && layer == 0) {
          s.alloc(32 * kMiB, s.forward(2, line));
          s.alloc(kMiB, s.forward(2, line));
        }
        s.free(result);
      }
      s.free(prompt);
    }
  });
  const std::string_view line = "forward torch/nn/modules/op.py:2";
  EXPECT_EQ(bytes_at(trace, line, Category::kKvCache), 0U);
  EXPECT_EQ(bytes_at(trace, line, Category::kWorkspace), 4 * 33 * kMiB);
}

}  // namespace
}  // namespace tidemark
