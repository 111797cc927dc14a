// Lists of the program that keep results of several steps until they are cleared.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr int kPeriod = 10;
constexpr int kSteps = 60;

uint64_t evidence_of(const Finding& f, std::string_view name) {
  for (const auto& [key, value] : f.evidence) {
    if (key == name) return value;
  }
  return 0;
}

// Each step adds a block to each list. A report reads and clears one list after the other.
// `validates`: after every second report.
Trace with_lists(int lists, bool validates) {
  return Trace([=](Story& s, uint32_t) {
    Training t(s, {});
    std::vector<std::vector<uint64_t>> kept(static_cast<size_t>(lists));
    for (int i = 1; i <= kSteps; ++i) {
      for (auto& list : kept) list.push_back(s.alloc(6 * kMiB, s.forward(21)));
      t.step();
      if (i % kPeriod != 0) continue;
      for (auto& list : kept) {
        s.free(s.alloc(2 * kMiB, s.user(58)));
        for (const uint64_t block : list) s.free(block);
        list.clear();
      }
      if (validates && i % (2 * kPeriod) == 0) {
        s.free(s.alloc(4 * kMiB, s.stack({"validate train.py:90"})));
      }
    }
  });
}

TEST(ClearedLists, AreNoReferenceCycles) {
  for (const int lists : {1, 3}) {
    for (const bool validates : {false, true}) {
      const Finding f = with_lists(lists, validates).finding("creep");
      EXPECT_EQ(f.severity, kInfo);
      ASSERT_EQ(f.advice.size(), 1U);
      EXPECT_EQ(f.advice[0].action, "keep_less") << lists << validates;
      EXPECT_NE(f.advice[0].detail.find("cleared every 10 steps"), std::string::npos)
          << f.advice[0].detail;
      EXPECT_EQ(evidence_of(f, "bursts"), static_cast<uint64_t>(kSteps / kPeriod));
      EXPECT_EQ(evidence_of(f, "period_steps"), static_cast<uint64_t>(kPeriod));
    }
  }
}

// What the lists hold may shrink with the batch as well.
TEST(ClearedLists, MakeTheSavingOfASmallerBatchALeastOne) {
  const Trace trace = with_lists(3, false);
  const uint64_t peak = trace.model().processes[0].framework[0].allocated_peak.bytes;
  const Finding f = trace.finding("capacity", peak);
  const auto half = std::find_if(f.advice.begin(), f.advice.end(),
                                 [](const Advice& a) { return a.action == "halve_batch"; });
  ASSERT_NE(half, f.advice.end()) << f.summary;
  EXPECT_NE(half->detail.find("saves at least "), std::string::npos) << half->detail;
  EXPECT_EQ(half->detail.find("the rest stays"), std::string::npos) << half->detail;
}

}  // namespace
}  // namespace tidemark
