// Programs of functions, without nn.Modules, that sum up results of equal parts and call backward()
// once on the sum.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/finding_parts.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Blocks = std::vector<uint64_t>;

enum class Chunks {
  kSummed,
  kEach,     // a backward pass follows every chunk
  kCarried,  // each goes on with the result of the one before
};

// A simulation of several chunks of paths, as of prices.
class Simulation {
 public:
  static constexpr int kChunks = 6;
  static constexpr int kSteps = 40;
  static constexpr uint64_t kPaths = kMiB;

  explicit Simulation(Story& s) : s_(s) {
    for (int i = 0; i < 4; ++i) s_.alloc(4, at("market pricer.py:20"));
  }

  void run(Chunks chunks) {
    std::vector<Blocks> alive;
    uint64_t total = s_.alloc(4, at("run pricer.py:60"));
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      alive.push_back(forward());
      const uint64_t mean = s_.alloc(4, at("run pricer.py:62"));
      const uint64_t sum = s_.alloc(4, at("run pricer.py:62"));
      s_.free(total);
      s_.free(mean);
      total = sum;
      if (chunks == Chunks::kEach) backward(alive, false);
    }
    s_.free(s_.alloc(4, at("run pricer.py:63")));
    backward(alive, chunks == Chunks::kCarried);
  }

 private:
  uint32_t at(const std::string& line) { return s_.stack({line, "<module> pricer.py:90"}); }

  Blocks forward() {
    Blocks kept;
    for (int step = 0; step < kSteps; ++step) {
      for (const int line : {31, 32, 33}) {
        kept.push_back(s_.alloc(kPaths, s_.stack({"average_price pricer.py:" + std::to_string(line),
                                                  "run pricer.py:62", "<module> pricer.py:90"})));
      }
      s_.free(s_.alloc(kPaths, at("run pricer.py:62")));
    }
    return kept;
  }

  void backward(std::vector<Blocks>& alive, bool carries) {
    const uint32_t node = s_.node("MulBackward0");
    uint64_t state = 0;
    for (; !alive.empty(); alive.pop_back()) {
      Blocks& kept = alive.back();
      for (; !kept.empty(); kept.pop_back()) {
        const uint64_t passed = s_.alloc(kPaths, node);
        s_.free(kept.back());
        if (state != 0) s_.free(state);
        if (carries) {
          state = passed;
        } else {
          s_.free(passed);
        }
      }
    }
    if (state != 0) s_.free(state);
  }

  Story& s_;
};

Trace priced(Chunks chunks) {
  return Trace([=](Story& s, uint32_t) { Simulation(s).run(chunks); });
}

TEST(SummedFunctions, ChunksThatWaitForOneBackwardPass) {
  const Finding f = priced(Chunks::kSummed).finding("accumulated_graphs");
  ASSERT_FALSE(f.id.empty());
  EXPECT_EQ(f.severity, kInfo) << "the card has room";
  EXPECT_TRUE(says(f, "6 parts")) << f.summary;
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "run pricer.py:62");
  ASSERT_FALSE(f.advice.empty());
  const uint64_t part = Simulation::kSteps * 3 * Simulation::kPaths;
  EXPECT_GE(f.advice[0].saves_bytes, 5 * part - 2 * kMiB);
  EXPECT_LE(f.advice[0].saves_bytes, 5 * part);
}

TEST(SummedFunctions, PartsOfTheirOwnAndRecurrencesAreNone) {
  for (const Chunks chunks : {Chunks::kEach, Chunks::kCarried}) {
    EXPECT_TRUE(priced(chunks).finding("accumulated_graphs").id.empty())
        << static_cast<int>(chunks);
  }
}

// As many graphs are alive with half as much in each of twice as many chunks.
TEST(SummedFunctions, SmallerPartsAloneSaveNothing) {
  const uint64_t card = 640 * kMiB + 400 * kMiB;
  const Finding scarce = priced(Chunks::kSummed).finding("accumulated_graphs", card);
  EXPECT_EQ(scarce.severity, kWarning);
  const Finding f = priced(Chunks::kSummed).finding("capacity", card);
  ASSERT_FALSE(f.id.empty());
  for (const Advice& a : f.advice) {
    EXPECT_EQ(a.detail.find("(with twice the accumulation steps)"), std::string::npos) << a.detail;
  }
}

}  // namespace
}  // namespace tidemark
