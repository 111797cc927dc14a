// Batches that are loaded far ahead, and what looks like them.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "analysis/names/stack_lines.h"
#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

constexpr uint64_t kBatch = 8 * kMiB;

// Each epoch fills a queue, takes a batch from it in each step, and empties it at the end. A batch
// may have several tensors.
Trace prefetching(size_t depth, uint64_t tensors = 1) {
  return Trace([=](Story& s, uint32_t) {
    Training t(s, {});
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::deque<std::vector<uint64_t>> ready;
      int loaded = 0;
      for (int i = 0; i < 90; ++i) {
        for (; loaded < 90 && ready.size() < depth; ++loaded) {
          ready.emplace_back();
          for (uint64_t k = 0; k < tensors; ++k) {
            ready.back().push_back(s.alloc(kBatch / tensors, s.user(48)));
          }
        }
        t.step();
        for (const uint64_t block : ready.front()) s.free(block);
        ready.pop_front();
      }
    }
  });
}

enum class Kept { kDataSet, kEpoch, kRecent, kAllRecent, kReplay };

// A data set, on the card once or for each epoch; or what the last 64 steps made, one block or
// eight in each; or a replay buffer, which passes of the model fill before the first step.
Trace keeping(Kept kept) {
  return Trace([=](Story& s, uint32_t) {
    Training t(s, {});
    std::deque<uint64_t> blocks;
    const auto add = [&] { blocks.push_back(s.alloc(kBatch, s.user(48))); };
    const auto drop = [&] {
      s.free(blocks.front());
      blocks.pop_front();
    };
    const bool recent = kept != Kept::kDataSet && kept != Kept::kEpoch;
    for (int i = 0; kept == Kept::kReplay && i < 64; ++i) {
      s.free(s.alloc(2 * kMiB, s.forward(1, "act train.py:30")));
      add();
    }
    const size_t each = kept == Kept::kAllRecent ? 8 : 1;
    for (int i = 0; i < 180; ++i) {
      if (!recent && (i == 0 || (kept == Kept::kEpoch && i % 18 == 0))) {
        while (!blocks.empty()) drop();
        for (int k = 0; k < 64; ++k) add();
      }
      for (size_t k = 0; recent && k < each; ++k) {
        if (blocks.size() == 64) drop();
        add();
      }
      t.step();
    }
    while (!blocks.empty()) drop();
    t.step();
  });
}

TEST(QueuedInputs, ALongQueueOfBatchesIsNoted) {
  const Trace trace = prefetching(64);
  EXPECT_TRUE(trace.alarms().empty());
  const Finding f = trace.finding("queued_inputs");
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_EQ(headline_of(f.frames), "work train.py:48");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), 60.0 * kBatch, 2.0 * kBatch);
  EXPECT_EQ(bytes_at(trace, "work train.py:48", Category::kInput), 180 * kBatch);
  const Finding pairs = prefetching(32, 2).finding("queued_inputs");
  ASSERT_FALSE(pairs.advice.empty());
  EXPECT_NEAR(static_cast<double>(pairs.advice[0].saves_bytes), 28.0 * kBatch, 2.0 * kBatch);
}

TEST(QueuedInputs, AFewBatchesAndOtherThingsThatAreKeptAreNot) {
  EXPECT_EQ(prefetching(4).finding("queued_inputs").id, "");
  for (const Kept kept :
       {Kept::kDataSet, Kept::kEpoch, Kept::kRecent, Kept::kAllRecent, Kept::kReplay}) {
    EXPECT_EQ(keeping(kept).finding("queued_inputs").id, "") << static_cast<int>(kept);
  }
}

// They are as large as the batch, unlike other things that a line holds.
TEST(QueuedInputs, ASmallerCardNamesTheirLine) {
  const uint64_t card = 1100 * kMiB;
  const Finding f = prefetching(64).finding("capacity", card);
  EXPECT_NE(f.summary.find("train.py:48 holds 512.0 MiB (64 blocks)"), std::string::npos)
      << f.summary;
  EXPECT_EQ(f.summary.find("whatever the batch is"), std::string::npos) << f.summary;
  EXPECT_EQ(headline_of(f.frames), "work train.py:48");
  const Finding other = keeping(Kept::kDataSet).finding("capacity", card);
  EXPECT_NE(other.summary.find("whatever the batch is"), std::string::npos) << other.summary;
}

}  // namespace
}  // namespace tidemark
