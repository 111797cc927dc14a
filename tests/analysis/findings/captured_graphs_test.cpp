// Pools of graphs that are captured one after the other.
#include <gtest/gtest.h>

#include "tests/support/story.h"

namespace tidemark {
namespace {

// Each graph into a pool of its own. What they need grows or shrinks from one to the next.
Trace captured(bool ascending) {
  return Trace([=](Story& s, uint32_t) {
    for (uint32_t i = 1; i <= 5; ++i) {
      s.on(7, i);
      const uint64_t unit = (ascending ? i : 6 - i) * 40 * kMiB;
      const uint64_t x = s.alloc(unit, s.forward(1));
      s.free(s.alloc(2 * unit, s.forward(2)));
      s.free(x);
      s.alloc(kMiB, s.forward(3));
    }
    s.on(0, 0);
    s.free(s.alloc(40 * kMiB, s.forward(4)));
  });
}

TEST(CapturedGraphs, TheLargestFirstLeavesRoomForTheOthers) {
  const auto advice = [](bool ascending) {
    const Finding f = captured(ascending).finding("graph_private_pool");
    return f.advice.empty() ? std::string() : f.advice[0].detail;
  };
  EXPECT_NE(advice(true).find("if the largest is captured first"), std::string::npos)
      << advice(true);
  EXPECT_FALSE(advice(false).empty());
  EXPECT_EQ(advice(false).find("captured first"), std::string::npos) << "it is";
}

}  // namespace
}  // namespace tidemark
