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

// Two encoders share their layers: only the line of the model around them tells which one ran.
TEST(CallersOf, NamesTheOutermostModule) {
  const Frames frames = {"Layer.forward /home/user/model.py:29",   "_call_impl " + kTorch + ":1",
                         "Encoder.forward /home/user/model.py:40", "_call_impl " + kTorch + ":1",
                         "MoCo.forward /home/user/model.py:57",    "_call_impl " + kTorch + ":1",
                         "train /home/user/train.py:108",          "main /home/user/train.py:120"};
  EXPECT_EQ(callers_of(frames, 2), (Frames{"MoCo.forward model.py:57", "train train.py:108"}));
}

}  // namespace
}  // namespace tidemark
