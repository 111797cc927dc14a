#include "proto/read/unrecorded.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

Mark mark(int64_t time_ns, MarkPhase phase, MarkKind kind = MarkKind::kNotRecorded) {
  Mark m{};
  m.time_ns = time_ns;
  m.phase = phase;
  m.kind = kind;
  return m;
}
constexpr auto kBegin = MarkPhase::kBegin;
constexpr auto kEnd = MarkPhase::kEnd;
using Stretches = std::vector<Stretch>;

TEST(UnrecordedTest, BeginningsAndEndsMakeStretches) {
  const std::vector<Mark> marks = {mark(30, kBegin), mark(10, kBegin),
                                   mark(12, kEnd, MarkKind::kUser), mark(20, kEnd), mark(40, kEnd)};
  const Stretches stretches = unrecorded_stretches(marks, 0, 100);
  EXPECT_EQ(stretches, (Stretches{{10, 20}, {30, 40}}));
  EXPECT_EQ(total_ns(stretches), 20U);
}

TEST(UnrecordedTest, WhatIsCutOffLastsUntilTheEndOfTheRecording) {
  EXPECT_EQ(unrecorded_stretches(std::vector<Mark>{mark(20, kEnd), mark(90, kBegin)}, 5, 100),
            (Stretches{{5, 20}, {90, 100}}));
  EXPECT_TRUE(unrecorded_stretches({}, 0, 100).empty());
}

TEST(UnrecordedTest, ALongOneThatIsMarkedInPartsIsOne) {
  const std::vector<Mark> marks = {mark(10, kBegin), mark(20, kEnd), mark(20, kBegin),
                                   mark(30, kEnd)};
  EXPECT_EQ(unrecorded_stretches(marks, 0, 100), (Stretches{{10, 30}}));
}

TEST(UnrecordedTest, TimesMeetStretches) {
  const Stretches stretches = {{10, 20}, {30, 40}};
  EXPECT_FALSE(meets(stretches, 0, 9));
  EXPECT_TRUE(meets(stretches, 0, 10));
  EXPECT_TRUE(meets(stretches, 15, 16));
  EXPECT_FALSE(meets(stretches, 21, 29));
  EXPECT_TRUE(meets(stretches, 21, 35));
  EXPECT_FALSE(meets(stretches, 41, 50));
}

}  // namespace
}  // namespace tidemark
