#include "proto/base/in_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tidemark {
namespace {

TEST(InParallel, DoesEachPieceOnce) {
  for (const size_t workers : {1U, 3U}) {
    std::vector<std::atomic<int>> calls(100);
    in_parallel(calls.size(), [&](size_t i) { ++calls[i]; }, workers);
    for (const std::atomic<int>& n : calls) EXPECT_EQ(n, 1);
  }
  in_parallel(0, [](size_t) { FAIL(); });
}

TEST(InParallel, PassesAnExceptionOnAfterTheOthersEnded) {
  std::atomic<int> running{0};
  const auto fail_at_5 = [&](size_t i) {
    ++running;
    if (i == 5) {
      --running;
      throw std::runtime_error("five");
    }
    --running;
  };
  EXPECT_THROW(in_parallel(1000, fail_at_5, 4), std::runtime_error);
  EXPECT_EQ(running, 0);
}

}  // namespace
}  // namespace tidemark
