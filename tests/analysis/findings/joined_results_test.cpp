// Results that a program collects pass by pass and then joins.
#include <gtest/gtest.h>

#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr int kPasses = 20;

// `bytes`: of a result. `joined`: of the block that all of them become, at a line of its own.
struct Sampler {
  uint64_t bytes = 16 * kMiB;
  uint64_t joined = kPasses * 16 * kMiB;
  bool keeps = true;  // else each result is freed before the next one
  bool in_model = false;
};

Trace sampled(const Sampler& how) {
  return Trace([how](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    for (int job = 0; job < 6; ++job) {
      const auto line = [&](int number) {
        std::vector<std::string> frames = {"run sample.py:" + std::to_string(number),
                                           "main sample.py:90"};
        if (how.in_model) frames.insert(frames.begin(), "_call_impl torch/nn/modules/module.py:1");
        if (how.in_model) frames.insert(frames.begin(), "forward model.py:5");
        return s.stack(frames);
      };
      std::vector<uint64_t> results;
      for (int i = 0; i < kPasses; ++i) {
        for (int layer = 0; layer < 4; ++layer) {
          s.free(s.alloc(24 * kMiB, s.forward(2 + layer, "run sample.py:62")));
        }
        const uint64_t scaled = s.alloc(how.bytes, line(64));
        results.push_back(s.alloc(how.bytes, line(64)));
        s.free(scaled);
        if (how.keeps || i == 0) continue;
        s.free(results.front());
        results.erase(results.begin());
      }
      const uint64_t all = s.alloc(how.joined, line(70));
      for (const uint64_t block : results) s.free(block);
      s.free(s.alloc(kMiB, s.stack({"main sample.py:91"})));
      s.free(all);
    }
  });
}

TEST(JoinedResults, AreThereTwice) {
  const Finding f = sampled({}).finding("joined_results");
  ASSERT_FALSE(f.id.empty());
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_EQ(f.summary,
            "results of 20 passes are kept until they are joined into one block of as much: twice "
            "320.0 MiB");
  ASSERT_EQ(f.advice.size(), 2U);
  // What is left is a pass and the result of the one before.
  EXPECT_EQ(f.advice[0].saves_bytes, (640 - 24 - 16) * kMiB);
  EXPECT_EQ(f.advice[1].saves_bytes, (320 - 24 - 16) * kMiB);
  EXPECT_NE(f.advice[0].detail.find("sample.py:64"), std::string::npos) << f.advice[0].detail;
}

TEST(JoinedResults, OthersAreNone) {
  const auto id = [](const Sampler& how) { return sampled(how).finding("joined_results").id; };
  EXPECT_EQ(id({.bytes = kMiB, .joined = kPasses * kMiB}), "") << "small results";
  EXPECT_EQ(id({.joined = 400 * kMiB}), "") << "of another size";
  EXPECT_EQ(id({.joined = 16 * kMiB, .keeps = false}), "") << "only the last one";
  EXPECT_EQ(id({.in_model = true}), "") << "parts of a pass";
}

}  // namespace
}  // namespace tidemark
