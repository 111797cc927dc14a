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

}  // namespace
}  // namespace tidemark
