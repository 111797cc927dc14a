// Plans of programs that go through their tokens in chunks of a fixed size.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr uint64_t kChunk = 64 * kMiB;

struct ChunkedLoss {
  std::vector<int> chunks = {4, 4, 4, 4};  // of each step
  bool keeps = false;                      // what each chunk leaves is as large as the chunk
  uint64_t bytes_of_one = 0;               // in the second step, instead of kChunk
};

// Layers, and a loss outside of them that goes through its tokens one chunk after another.
PlanOutcome with_batch(double factor, const ChunkedLoss& loss) {
  const Trace trace([&](Story& s, uint32_t) {
    const auto in = [&](const std::string& module, int line) {
      return s.stack_in(module, {"forward model.py:" + std::to_string(line),
                                 "_call_impl torch/nn/modules/module.py:1", "train train.py:10"});
    };
    for (const uint64_t mib : {3U, 5U, 6U}) s.alloc(mib * kMiB, s.setup());
    for (size_t step = 0; step < loss.chunks.size(); ++step) {
      const int chunks = loss.chunks[step];
      const auto tokens = static_cast<uint64_t>(chunks);
      std::vector<uint64_t> kept = {s.alloc(tokens * kMiB, s.user(3))};
      for (int layer = 0; layer < 4; ++layer) {
        const std::string path = "layers." + std::to_string(layer);
        kept.push_back(s.alloc(tokens * kMiB, in(path + ".up", 1)));
        kept.push_back(s.alloc(tokens * kMiB, in(path + ".down", 2)));
      }
      const uint64_t bytes = step == 1 && loss.bytes_of_one != 0 ? loss.bytes_of_one : kChunk;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const uint64_t logits = s.alloc(bytes, in("head", 9));
        if (loss.keeps) kept.push_back(s.alloc(bytes, in("head", 10)));
        s.free(logits);
      }
      for (; !kept.empty(); kept.pop_back()) {
        s.free(s.alloc(tokens * kMiB, s.node("AddmmBackward0")));
        s.free(kept.back());
      }
      s.free(s.alloc(3 * kMiB, s.optimizer("_multi_tensor_adam")));
    }
  });
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner);
  PlanChange change;
  change.batch = factor;
  const Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome);
  return outcome ? *outcome : PlanOutcome{};
}

// Equal steps do not tell whether the size of a chunk is fixed or their number.
TEST(Chunks, OfEqualStepsTheRangeHasBoth) {
  const PlanOutcome one = with_batch(1, {});
  const PlanOutcome twice = with_batch(2, {});
  EXPECT_LT(twice.likely.allocated_peak, one.likely.allocated_peak + kChunk);
  EXPECT_GE(twice.high_allocated, twice.likely.allocated_peak + kChunk);
  const PlanOutcome half = with_batch(0.5, {});
  EXPECT_GE(half.likely.allocated_peak, kChunk);
  EXPECT_LE(half.low_allocated, half.likely.allocated_peak - kChunk / 2);
}

TEST(Chunks, StepsWithMoreOfTheSameSizeTellThatItIsFixed) {
  const PlanOutcome twice = with_batch(2, {{4, 8, 4, 6}});
  EXPECT_LT(twice.high_allocated, 4 * kChunk);
  EXPECT_EQ(twice.high_allocated, twice.likely.allocated_peak);
}

// With an eighth of the batch, the four chunks are less than one.
TEST(Chunks, ABatchSmallerThanOneShrinksIt) {
  EXPECT_LT(with_batch(0.125, {}).likely.allocated_peak, kChunk);
}

TEST(Chunks, StepsWithOtherSizesTellThatTheirNumberIsFixed) {
  const PlanOutcome twice = with_batch(2, {{4, 4, 4, 4}, false, kChunk / 2});
  EXPECT_GE(twice.low_allocated, 2 * kChunk);
}

// As the steps of a recurrent layer do.
TEST(Chunks, BlocksThatLeaveAsMuchGrow) {
  const PlanOutcome twice = with_batch(2, {{4, 4, 4, 4}, true});
  EXPECT_GE(twice.low_allocated, 2 * 5 * kChunk);
}

}  // namespace
}  // namespace tidemark
