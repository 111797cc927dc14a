#include "analysis/names/stack_lines.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

using Frames = std::vector<std::string>;

const std::string kTorch = "/usr/lib/python3/site-packages/torch/nn/modules/module.py";

Frames moved_by(const std::string& line) {
  return {"convert " + kTorch + ":1357", "_apply " + kTorch + ":" + line, "to " + kTorch + ":1369",
          "load /home/user/train.py:37", "main /home/user/train.py:80"};
}

TEST(CallerUnlike, IsTheUsersWhereItCan) {
  Frames other = moved_by("957");
  other.back() = "main /home/user/train.py:81";
  EXPECT_EQ(caller_unlike(moved_by("957"), other), "main /home/user/train.py:80");
}

TEST(CallerUnlike, IsElseALibrarysFunctionThatAllocatesAtTwoLines) {
  EXPECT_EQ(caller_unlike(moved_by("957"), moved_by("998")), "_apply " + kTorch + ":957");
}

TEST(CallerUnlike, IsNoneOfAnotherFunction) {
  Frames other = moved_by("957");
  other[1] = "_fill " + kTorch + ":12";
  EXPECT_EQ(caller_unlike(moved_by("957"), other), "");
  EXPECT_EQ(caller_unlike(moved_by("957"), moved_by("957")), "");
}

}  // namespace
}  // namespace tidemark
