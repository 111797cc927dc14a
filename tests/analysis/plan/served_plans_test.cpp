// Plans of programs that only run a model: what they prepare, and what they keep of past requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

// Loads a model, then answers requests of three passes each.
class Server {
 public:
  explicit Server(Story& s) : s_(s) {
    for (const uint64_t mib : {3U, 4U, 5U, 6U}) s_.alloc(mib * kMiB, s_.setup());
  }
  // `requests`: that share each pass.
  void answer(uint64_t requests = 8) {
    const uint64_t input = s_.alloc(kMiB, s_.stack({"answer serve.py:8"}));
    for (int pass = 0; pass < 3; ++pass) {
      for (int line = 1; line <= 3; ++line) s_.free(s_.alloc(requests * kMiB, in_model(line)));
    }
    s_.free(input);
  }

 private:
  uint32_t in_model(int line) {
    return s_.stack({"forward model.py:" + std::to_string(line),
                     "_call_impl torch/nn/modules/module.py:1", "answer serve.py:10"});
  }
  Story& s_;
};

PlanOutcome with_batch(double factor, const Trace& trace) {
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner) << (planner ? "" : planner.error().message);
  if (!planner) return {};
  PlanChange change;
  change.batch = factor;
  Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome);
  return outcome ? *outcome : PlanOutcome{};
}

uint64_t peak_of(const Trace& trace) {
  return trace.model().processes[0].framework[0].allocated_peak.bytes;
}

// An index is built with a function of torch.nn, which is no call of a model.
TEST(ServedPlans, WhatIsPreparedDoesNotGrow) {
  const Trace trace([](Story& s, uint32_t) {
    Server server(s);
    s.alloc(64 * kMiB, s.stack({"build serve.py:3"}));
    for (int part = 0; part < 4; ++part) {
      const uint64_t rows = s.alloc(256 * kMiB, s.stack({"build serve.py:4"}));
      s.free(
          s.alloc(256 * kMiB, s.stack({"normalize torch/nn/functional.py:5", "build serve.py:5"})));
      s.free(rows);
    }
    for (int request = 0; request < 8; ++request) server.answer();
  });
  const PlanOutcome outcome = with_batch(2, trace);
  EXPECT_EQ(outcome.likely.allocated_peak, peak_of(trace));
}

// Packed weights have the sizes of a model's layers; a buffer of keys and values has one.
TEST(ServedPlans, OwnWeightsDoNotGrowAsACacheDoes) {
  const auto run = [](bool weights) {
    return Trace([weights](Story& s, uint32_t) {
      Server server(s);
      for (uint64_t layer = 0; layer < 4; ++layer) {
        for (const uint64_t mib : {20U, 30U, 40U}) {
          s.alloc((weights ? mib : 30) * kMiB, s.stack({"pack serve.py:5", "load serve.py:6"}));
        }
      }
      for (int request = 0; request < 8; ++request) server.answer();
    });
  };
  const PlanOutcome weights = with_batch(2, run(true));
  EXPECT_LT(weights.high_reserved, 2 * 360 * kMiB);
  EXPECT_GT(with_batch(2, run(false)).high_reserved, 2 * 360 * kMiB);
}

// Where passes have batches of many sizes, a cache from before them has a size of its own.
TEST(ServedPlans, APoolThatBatchesOfManySizesShareStays) {
  const auto run = [](bool varies) {
    return Trace([varies](Story& s, uint32_t) {
      Server server(s);
      for (int layer = 0; layer < 8; ++layer) s.alloc(100 * kMiB, s.stack({"pool kv_cache.py:5"}));
      for (uint64_t request = 0; request < 8; ++request) server.answer(varies ? 2 + request : 8);
    });
  };
  const PlanOutcome shared = with_batch(2, run(true));
  EXPECT_LT(shared.likely.allocated_peak, 900 * kMiB);
  EXPECT_GT(shared.high_allocated, 1600 * kMiB);
  const auto tells_pool = [](const PlanOutcome& plan) {
    return std::any_of(plan.assumptions.begin(), plan.assumptions.end(), [](const std::string& a) {
      return a.find("pool of a fixed size") != a.npos;
    });
  };
  EXPECT_TRUE(tells_pool(shared));
  EXPECT_FALSE(tells_pool(with_batch(2, run(false))));
}

// `limit`: of entries, the oldest of which makes room; 0: they stay.
Trace with_cache(size_t limit) {
  return Trace([limit](Story& s, uint32_t) {
    Server server(s);
    std::deque<uint64_t> entries;
    for (int request = 0; request < 60; ++request) {
      server.answer();
      entries.push_back(s.alloc(
          32 * kMiB, s.stack({"forward model.py:20", "_call_impl torch/nn/modules/module.py:1",
                              "answer serve.py:10"})));
      if (limit == 0 || entries.size() <= limit) continue;
      s.free(entries.front());
      entries.pop_front();
    }
  });
}

TEST(ServedPlans, AFullCacheOfPastRequestsKeepsItsLimit) {
  const PlanOutcome outcome = with_batch(2, with_cache(10));
  // Twice the batch is more input and results, and a range that ends with twice the cache.
  EXPECT_LT(outcome.likely.allocated_peak, peak_of(with_cache(10)) + 48 * kMiB);
  EXPECT_GT(outcome.high_reserved, 20 * 32 * kMiB);
}

// What only grows never was full.
TEST(ServedPlans, EntriesThatStayAreNoFullCache) {
  const PlanOutcome outcome = with_batch(2, with_cache(0));
  EXPECT_GT(outcome.likely.allocated_peak, peak_of(with_cache(0)) + 20 * 32 * kMiB);
}

TEST(ServedPlans, AFractionOfTheSettingsIsALimit) {
  constexpr uint64_t kCard = uint64_t{8} << 30;
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    Server server(s);
    for (int request = 0; request < 8; ++request) server.answer();
  });
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  ASSERT_TRUE(planner);
  PlanChange change;
  change.has_conf = true;
  change.alloc_conf = "per_process_memory_fraction:0.25";
  EXPECT_EQ((*planner)->capacity_for(change), kCard / 4);
  EXPECT_EQ((*planner)->capacity_for({}), (*planner)->capacity());
  EXPECT_GT((*planner)->capacity(), kCard / 2);
}

// Without kernels, nothing tells whether the model has 16 bits already.
TEST(ServedPlans, WidthsThatNothingTellsAreARange) {
  const Trace trace([](Story& s, uint32_t) {
    Server server(s);
    for (int request = 0; request < 8; ++request) server.answer();
  });
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  ASSERT_TRUE(planner);
  PlanChange change;
  change.precision = PlanPrecision::kHalf;
  const Result<PlanOutcome> outcome = (*planner)->plan(change);
  ASSERT_TRUE(outcome);
  EXPECT_LT(outcome->likely.allocated_peak, peak_of(trace) * 6 / 10);
  EXPECT_GE(outcome->high_reserved, peak_of(trace));
}

// Nor do its steps tell lengths.
TEST(ServedPlans, SaysWhatIsNotKnown) {
  const Trace trace = with_cache(10);
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  ASSERT_TRUE(planner);
  PlanChange change;
  change.seq = 2;
  const Result<PlanOutcome> outcome = (*planner)->plan(change);
  ASSERT_TRUE(outcome);
  const auto says = [&](std::string_view words) {
    return std::any_of(outcome->assumptions.begin(), outcome->assumptions.end(),
                       [&](const std::string& text) { return text.find(words) != text.npos; });
  };
  EXPECT_TRUE(says("the inputs of the steps do not tell which are longer"));
  EXPECT_TRUE(says("set_per_process_memory_fraction is recorded only when"));
}

}  // namespace
}  // namespace tidemark
