#include "analysis/report/stack_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tidemark {
namespace {

using Frames = std::vector<std::string>;

std::string text(const StackPairs& pairs) {
  std::vector<std::string> lines;
  for (const PairedStack& p : pairs.pair()) {
    const auto place = [](const Frames& frames) {
      const auto own = std::find_if(frames.begin(), frames.end(), [](const std::string& frame) {
        return frame.find(".py:") != std::string::npos;
      });
      return own == frames.end() ? frames.back() : *own;
    };
    std::string line = place(p.frames) + " " + std::to_string(p.before_bytes) + "->" +
                       std::to_string(p.after_bytes);
    if (!p.before_frames.empty() && place(p.before_frames) != place(p.frames)) {
      line += " was " + place(p.before_frames);
    }
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

const std::string kExp = "at::_ops::exp::call(at::Tensor const&) ??:0";
const std::string kCat = "at::_ops::cat::call(at::Tensor const&) ??:0";
const std::string kAutocast = "at::autocast::wrap(at::Tensor const&) ??:0";

TEST(StackPairs, OtherNativeFramesAndAMovedCallerAreTheSameLine) {
  StackPairs pairs;
  pairs.add_before({kExp, "softmax net.py:138", "main train.py:222"}, 256);
  pairs.add_after({kExp, kAutocast, "softmax net.py:138", "main train.py:224"}, 256);
  EXPECT_EQ(text(pairs), "softmax net.py:138 256->256\n");
}

TEST(StackPairs, StacksOfOneLineThroughOtherNativeFramesAreAddedUp) {
  StackPairs pairs;
  pairs.add_before({kExp, "softmax net.py:138", "main train.py:222"}, 256);
  pairs.add_after({kExp, kAutocast, "softmax net.py:138", "main train.py:224"}, 100);
  pairs.add_after({kAutocast, kExp, "softmax net.py:138", "main train.py:224"}, 30);
  EXPECT_EQ(text(pairs), "softmax net.py:138 256->130\n");
}

TEST(StackPairs, ALineWithCallersInOtherFilesMovesWithWhatItCalls) {
  StackPairs pairs;
  pairs.add_before({kCat, "f net.py:95", "step /tmp/cell_1.py:7"}, 28);
  pairs.add_before({kExp, "f net.py:92", "step /tmp/cell_1.py:7"}, 11);
  pairs.add_after({kCat, "f net.py:87", "step /tmp/other.py:9"}, 28);
  pairs.add_after({kExp, "f net.py:85", "step /tmp/other.py:9"}, 11);
  EXPECT_EQ(text(pairs),
            "f net.py:85 11->11 was f net.py:92\nf net.py:87 28->28 was f net.py:95\n");
}

TEST(StackPairs, ALineThatAnotherFunctionCallsIsNotTheSame) {
  StackPairs pairs;
  pairs.add_before({"make helper.py:10", "forward train.py:5"}, 64);
  pairs.add_after({"make helper.py:10", "collect train.py:21"}, 300);
  EXPECT_EQ(text(pairs), "make helper.py:10 0->300\nmake helper.py:10 64->0\n");
}

TEST(StackPairs, AStackAtALineThatBothHaveIsNotPairedWithAnotherLine) {
  StackPairs pairs;
  pairs.add_before({kExp, "f net.py:10", "main train.py:7"}, 5);
  pairs.add_before({kExp, kAutocast, "f net.py:10", "main train.py:7"}, 3);
  pairs.add_after({kExp, "f net.py:10", "main train.py:7"}, 5);
  pairs.add_after({kExp, "f net.py:30", "main train.py:7"}, 4);
  EXPECT_EQ(text(pairs), "f net.py:10 3->0\nf net.py:10 5->5\nf net.py:30 0->4\n");
}

TEST(StackPairs, CallersOfALineThatOneRunHasStayApart) {
  StackPairs pairs;
  pairs.add_before({kExp, "weight net.py:30", "layer net.py:165", "main train.py:7"}, 30);
  pairs.add_before({kExp, "weight net.py:30", "layer net.py:168", "main train.py:7"}, 11);
  pairs.add_after({kCat, "f net.py:87", "step train.py:9"}, 28);
  EXPECT_EQ(text(pairs), "f net.py:87 0->28\nweight net.py:30 11->0\nweight net.py:30 30->0\n");
}

TEST(StackPairs, AnotherProgramThatCallsTheModelChangesNothing) {
  StackPairs pairs;
  for (const char* name : {"q", "k", "v"}) {  // so that the files are known to be the same
    const std::string line = std::string(name) + " /a/model.py:5";
    pairs.add_before({kCat, line, "run /a/bench.py:7"}, 1);
    pairs.add_after(
        {kCat, std::string(name) + " /b/model.py:5", "remote /b/cloud.py:3", "main /b/start.py:8"},
        2);
  }
  EXPECT_EQ(text(pairs),
            "k /b/model.py:5 1->2 was k /a/model.py:5\nq /b/model.py:5 1->2 was q /a/model.py:5\n"
            "v /b/model.py:5 1->2 was v /a/model.py:5\n");
}

TEST(StackPairs, WhatMovedWithItsLineIsPairedWithTheOthersOfThatLine) {
  StackPairs pairs;
  pairs.add_before({kExp, "f net.py:10", "main train.py:7"}, 5);
  pairs.add_before({kExp, kAutocast, "f net.py:10", "main train.py:7"}, 3);
  pairs.add_after({kExp, "f net.py:12", "main train.py:7"}, 5);
  pairs.add_after({kAutocast, kExp, "f net.py:12", "main train.py:7"}, 4);
  EXPECT_EQ(text(pairs), "f net.py:12 3->4 was f net.py:10\nf net.py:12 5->5 was f net.py:10\n");
}

TEST(StackPairs, WithoutALineOfPythonOnlyTheSameStacksArePaired) {
  StackPairs pairs;
  pairs.add_before({"(no stack)"}, 5);
  pairs.add_before({"before the recording"}, 7);
  pairs.add_after({"before the recording"}, 8);
  pairs.add_after({"train.py", "main ??"}, 3);
  EXPECT_EQ(text(pairs), "(no stack) 5->0\nbefore the recording 7->8\nmain ?? 0->3\n");
}

TEST(StackPairs, FullNamesAreComparedByTheirLastPartIfOnlyOneRunHasThem) {
  StackPairs pairs;
  pairs.add_before({kExp, "Engine.run chat.py:118", "<module> chat.py:200"}, 8);
  pairs.add_before({kCat, "Engine.__init__ chat.py:40", "<module> chat.py:198"}, 5);
  pairs.add_before({kCat, "main.<locals>.<lambda> chat.py:150", "main chat.py:151"}, 3);
  pairs.add_after({kExp, "run chat.py:118", "<module> chat.py:200"}, 8);
  pairs.add_after({kCat, "__init__ chat.py:44", "<module> chat.py:202"}, 6);
  pairs.add_after({kAutocast, kCat, "<lambda> chat.py:150", "main chat.py:151"}, 3);
  EXPECT_EQ(text(pairs),
            "<lambda> chat.py:150 3->3 was main.<locals>.<lambda> chat.py:150\n"
            "__init__ chat.py:44 5->6 was Engine.__init__ chat.py:40\nrun chat.py:118 8->8\n");
}

TEST(StackPairs, OperationsAreAddedUpIfOnlyOneRunNamesThem) {
  StackPairs pairs;
  pairs.add_before({"Engine.run chat.py:118", "main chat.py:200"}, 8);
  pairs.add_after({kExp, "run chat.py:118", "main chat.py:200"}, 5);
  pairs.add_after({kCat, "run chat.py:118", "main chat.py:200"}, 3);
  pairs.add_before({"MulBackward0"}, 4);
  pairs.add_after({kExp, "torch::autograd::generated::MulBackward0::apply(x) ??"}, 4);
  EXPECT_EQ(text(pairs),
            "run chat.py:118 8->8 was Engine.run chat.py:118\n"
            "torch::autograd::generated::MulBackward0::apply(x) ?? 4->4 was MulBackward0\n");
}

TEST(StackPairs, MethodsOfTwoClassesStayApartIfBothRunsNameThemInFull) {
  StackPairs pairs;
  pairs.add_before({kExp, "Old.run chat.py:118", "Old.serve chat.py:90"}, 8);
  pairs.add_after({kExp, "New.run chat.py:118", "New.serve chat.py:90"}, 8);
  EXPECT_EQ(text(pairs), "New.run chat.py:118 0->8\nOld.run chat.py:118 8->0\n");
}

TEST(StackPairs, FilesOfAnotherNameAreFoundByTheLastPartOfFullNames) {
  StackPairs pairs;
  for (const char* name : {"q", "k", "v"}) {
    pairs.add_before({kCat, "Net." + std::string(name) + " /a/model.py:5"}, 1);
    pairs.add_after({kCat, std::string(name) + " /b/model.py:5"}, 2);
  }
  ASSERT_EQ(pairs.renamed().size(), 1U);
  EXPECT_EQ(text(pairs),
            "k /b/model.py:5 1->2 was Net.k /a/model.py:5\n"
            "q /b/model.py:5 1->2 was Net.q /a/model.py:5\n"
            "v /b/model.py:5 1->2 was Net.v /a/model.py:5\n");
}

}  // namespace
}  // namespace tidemark
