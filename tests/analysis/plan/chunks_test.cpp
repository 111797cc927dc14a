// Plans of programs that go through their tokens in chunks of a fixed size.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/planned.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr uint64_t kChunk = 128 * kMiB;

// A loss over chunks, after layers: each step has as many as its length needs, and the last may be
// smaller.
PlanOutcome half_of(bool varies) {
  const Trace trace([=](Story& s, uint32_t) {
    for (const uint64_t mib : {3U, 5U, 6U}) s.alloc(mib * kMiB, s.setup());
    for (uint64_t step = 0; step < 6; ++step) {
      const uint64_t chunks = varies && step < 4 ? 2 + step % 2 : 4;
      std::vector<uint64_t> kept = {s.alloc(chunks * kMiB, s.user(3))};
      for (int layer = 1; layer < 4; ++layer) {
        kept.push_back(s.alloc(chunks * 4 * kMiB, s.forward(layer)));
      }
      const uint32_t loss = s.stack_in(
          "head",
          {"forward model.py:40", "_call_impl torch/nn/modules/module.py:1", "train train.py:11"});
      for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
        s.free(s.alloc(kChunk, loss));
        s.free(s.alloc(kMiB, s.stack_in("head", {"forward model.py:41",
                                                 "_call_impl torch/nn/modules/module.py:1",
                                                 "train train.py:11"})));
      }
      for (; !kept.empty(); kept.pop_back()) {
        s.free(s.alloc(kMiB, s.node("AddmmBackward0")));
        s.free(kept.back());
      }
      s.free(s.alloc(3 * kMiB, s.optimizer("_multi_tensor_adam")));
    }
  });
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner);
  PlanChange change;
  change.batch = 0.5;
  const Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome);
  return outcome ? *outcome : PlanOutcome{};
}

TEST(Chunks, StayInStepsOfOtherLengths) {
  EXPECT_GE(half_of(true).likely.allocated_peak, kChunk);
}

// Where all steps have as many, there may be as many smaller ones.
TEST(Chunks, AreARangeWhereNothingTells) {
  const PlanOutcome plan = half_of(false);
  EXPECT_LT(plan.low_allocated, kChunk);
  EXPECT_GE(plan.high_allocated, kChunk);
}

}  // namespace
}  // namespace tidemark
