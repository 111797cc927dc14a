// Findings about single operations and models: the lines they name and what they advise.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "analysis/names/stack_lines.h"
#include "tests/support/finding_parts.h"
#include "tests/support/step_story.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Ids = std::vector<std::string>;
using Blocks = std::vector<uint64_t>;
using Frames = std::vector<std::string>;

const std::string kTorch = "/usr/lib/python3/site-packages/torch/";

// A value of shape (N, 1) beside returns of shape (N,), and the mask of a clamp.
TEST(Operations, ABroadcastOfTwoVectorsIsNamed) {
  constexpr uint64_t kSquare = 64 * kMiB;  // 4096 x 4096 numbers
  const auto run = [](uint64_t card) {
    return Trace::on_card(card, [](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) {
        Blocks kept = t.forward();
        const uint64_t returns = s.alloc(4096 * 4, s.user(110));
        Blocks squares;
        for (const int line : {119, 120, 121}) squares.push_back(s.alloc(kSquare, s.user(line)));
        squares.push_back(s.alloc(kSquare / 4, s.node("MaximumBackward0")));
        squares.push_back(s.alloc(kSquare, s.node("MaximumBackward0")));
        s.free(s.alloc(kMiB, s.node("MeanBackward0")));
        for (const uint64_t block : squares) s.free(block);
        s.free(returns);
        Blocks gradients;
        for (; !kept.empty(); kept.pop_back()) {
          gradients.push_back(s.alloc(2 * kMiB, s.node("MmBackward0")));
          s.free(kept.back());
        }
        s.optimizer_mark();
        s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
        for (const uint64_t gradient : gradients) s.free(gradient);
      }
    });
  };
  const Finding f = run(0).finding("one_operation_peak");
  ASSERT_FALSE(f.advice.empty());
  const std::string& text = f.advice[0].detail;
  EXPECT_NE(text.find("4096 x 4096 numbers"), std::string::npos) << text;
  EXPECT_NE(text.find("train.py:119 and train.py:120 and train.py:121 together"), std::string::npos)
      << text;
  EXPECT_TRUE(run(uint64_t{64} << 30).finding("one_operation_peak").id.empty()) << "a small part";
}

// A student and a teacher of one class whose layers are computed again in the backward pass: only
// what one layer passes to the next is kept.
class Checkpointed {
 public:
  explicit Checkpointed(Story& s) : s_(s) {
    for (const uint64_t bytes : kParameters) s_.alloc(bytes, s_.setup());
  }

  Blocks forward(const std::string& caller) {
    Blocks kept;
    for (int i = 0; i < kLayers; ++i) {
      s_.free(s_.alloc(
          24 * kMiB,
          s_.stack(layer(11, {"checkpoint " + kTorch + "utils/checkpoint.py:5", caller}))));
      kept.push_back(s_.alloc(
          8 * kMiB,
          s_.stack(layer(12, {"checkpoint " + kTorch + "utils/checkpoint.py:5", caller}))));
    }
    return kept;
  }

  void backward(Blocks kept, Blocks& gradients) {
    const bool adds = !gradients.empty();
    const Frames again = {"recompute_fn " + kTorch + "utils/checkpoint.py:60",
                          "unpack_hook " + kTorch + "utils/checkpoint.py:70"};
    for (; !kept.empty(); kept.pop_back()) {
      const Blocks computed = {s_.alloc(24 * kMiB, s_.stack(layer(11, again))),
                               s_.alloc(8 * kMiB, s_.stack(layer(12, again)))};
      for (const uint64_t bytes : kParameters) {
        const uint64_t gradient = s_.alloc(bytes, 0);
        adds ? s_.free(gradient) : gradients.push_back(gradient);
      }
      for (const uint64_t block : computed) s_.free(block);
      s_.free(kept.back());
    }
  }

 private:
  static Frames layer(int line, const Frames& callers) {
    Frames frames = {"forward model.py:" + std::to_string(line),
                     "_call_impl " + kTorch + "nn/modules/module.py:1"};
    frames.insert(frames.end(), callers.begin(), callers.end());
    return frames;
  }

  static constexpr int kLayers = 6;
  static constexpr std::array<uint64_t, 4> kParameters = {2 * kMiB, 3 * kMiB, 8192, 12288};
  Story& s_;
};

TEST(Operations, UnusedGradientsOfLayersThatAreComputedAgain) {
  const Trace taught([](Story& s, uint32_t) {
    Checkpointed student(s);
    Checkpointed teacher(s);
    Blocks added;
    for (int i = 0; i < 8; ++i) {
      Blocks gradients;
      Blocks kept = student.forward("train train.py:10");
      Blocks other = teacher.forward("train train.py:20");
      s.free(s.alloc(4, s.user(21)));
      teacher.backward(other, added);
      student.backward(kept, gradients);
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      for (const uint64_t block : gradients) s.free(block);
    }
  });
  const Finding f = taught.finding("unused_gradients");
  ASSERT_FALSE(f.id.empty());
  EXPECT_EQ(headline_of(f.frames), "train train.py:20");
}

// A classifier over batches of different lengths, the last of which fails in its loss.
TEST(Operations, TheRequestThatFailedIsPartOfItsOperation) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    const uint32_t logits =
        s.stack({"forward torch/nn/modules/op.py:9", "_call_impl torch/nn/modules/module.py:1",
                 "train train.py:30"});
    const uint32_t loss =
        s.stack({"cross_entropy torch/nn/functional.py:3500", "train train.py:31"});
    for (const uint64_t length : {4U, 6U, 8U, 32U}) {
      for (int i = 0; i < 3; ++i) {
        Blocks kept = t.forward();
        kept.push_back(s.alloc(length * 16 * kMiB, logits));
        if (length == 32) return s.run_out(length * 16 * kMiB, 100 * kMiB, loss);
        kept.push_back(s.alloc(length * 16 * kMiB, loss));
        const uint64_t gradient = s.alloc(length * 16 * kMiB, 0);
        for (; !kept.empty(); kept.pop_back()) {
          const uint64_t passed = s.alloc(8 * kMiB, 0);
          s.free(kept.back());
          s.free(passed);
        }
        s.free(gradient);
        s.optimizer_mark();
      }
    }
  });
  const Report report = trace.report();
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.id, "one_operation_peak");
  EXPECT_EQ(f.severity, kError);
  EXPECT_NE(f.summary.find("2 blocks of up to 512.0 MiB, the last of which did not fit"),
            std::string::npos)
      << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("cross entropy"), std::string::npos) << f.advice[0].detail;
}

// The same request has fitted before. What is new is a block that stays in its memory.
TEST(Operations, HolesAreToBlameForARequestThatHasFittedBefore) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(30 * kMiB, s.setup());
    for (int i = 0; i < 20; ++i) {
      for (int line = 1; line < 6; ++line) s.free(s.alloc(2 * kMiB, s.forward(line)));
      if (i == 15) {
        s.alloc(40 * kMiB, s.user(50));
        s.run_out(600 * kMiB, 300 * kMiB, s.user(41));
        return;
      }
      s.free(s.alloc(600 * kMiB, s.user(41)));
    }
  });
  const Finding first = trace.report().findings.front();
  EXPECT_EQ(first.id, "fragmentation");
  EXPECT_EQ(headline_of(first.frames), "work train.py:50");
  EXPECT_NE(first.summary.find("1 block (40.0 MiB) of train.py:50 keeps a segment of 600.0 MiB"),
            std::string::npos)
      << first.summary;
  EXPECT_EQ(trace.finding("one_operation_peak").severity, kWarning);
}

// Requests that become longer find no segment of theirs, and each of the old ones has a block that
// stays: without it, the driver would get the segment back.
TEST(Operations, BlocksThatKeepSegmentsFromBeingGivenBack) {
  const auto run = [](uint64_t kept_bytes) {
    return Trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) s.alloc(50 * kMiB, s.setup());
      for (uint64_t i = 0; i < 16; ++i) {
        const bool fits_beside = kept_bytes < 2 * kMiB;  // in the rest of the segment
        const uint64_t segment = (300 + 20 * i) * kMiB;
        const uint64_t block =
            s.alloc(segment - (fits_beside ? kept_bytes : 0), s.stack({"prefill serve.py:33"}));
        if (!fits_beside) s.free(block);
        s.alloc(kept_bytes, s.stack({"remember session.py:19"}));
        if (fits_beside) s.free(block);
      }
      s.run_out(620 * kMiB, 100 * kMiB, s.stack({"prefill serve.py:33"}));
    });
  };
  const Finding f = run(3 * kMiB / 2).report().findings.front();
  EXPECT_EQ(f.id, "fragmentation");
  EXPECT_EQ(headline_of(f.frames), "remember session.py:19");
  EXPECT_NE(f.summary.find("16 blocks (24.0 MiB) of session.py:19 keep 16 segments"),
            std::string::npos)
      << f.summary;
  // Blocks that take much of their segments are there for a reason.
  const Finding large = run(200 * kMiB).finding("fragmentation");
  EXPECT_EQ(large.summary.find("session.py:19"), std::string::npos) << large.summary;
}

// A server that copies the caches of its batch into new ones in every step.
TEST(Operations, CachesThatAreRebuiltAreNotAnOperation) {
  const auto run = [](size_t caches) {
    return Trace::on_card(2600 * kMiB, [=](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) s.alloc(40 * kMiB, s.setup());
      std::vector<uint64_t> batch;
      for (int i = 0; i < 60; ++i) {
        std::vector<uint64_t> grown;
        for (size_t k = 0; k < caches; ++k) {
          grown.push_back(s.alloc(768 / caches * kMiB, s.stack({"rebatch serve.py:33"})));
        }
        for (const uint64_t block : batch) s.free(block);
        batch = grown;
        for (int k = 0; k < 12; ++k) s.free(s.alloc(2 * kMiB, s.forward(k % 6)));
      }
    });
  };
  EXPECT_EQ(run(8).finding("one_operation_peak").id, "");
  EXPECT_EQ(run(1).finding("one_operation_peak").id, "one_operation_peak") << "the last result";
}

// A decoder that builds an image from one a quarter as large: no more than a hidden layer does, but
// two of them are most of a card that is nearly full.
TEST(Operations, AFewBlocksThatFillTheCard) {
  const auto run = [](uint64_t card, int others = 0) {
    return Trace::on_card(card, [others](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) s.alloc(20 * kMiB, s.setup());
      for (int i = 0; i < 12; ++i) {
        for (int k = 0; k < 60; ++k) s.free(s.alloc(4 * kMiB, s.forward(k % 4)));
        const uint64_t small = s.alloc(100 * kMiB, s.forward(10, "decode serve.py:88"));
        const uint64_t image = s.alloc(400 * kMiB, s.forward(11, "decode serve.py:88"));
        s.free(small);
        s.free(s.alloc(400 * kMiB, s.forward(11, "decode serve.py:88")));
        s.free(image);
      }
      for (int i = 0; i < others; ++i) s.alloc(20 * kMiB, s.user(7));
    });
  };
  EXPECT_EQ(run(1400 * kMiB).alarms(), (Ids{"one_operation_peak"}));
  EXPECT_EQ(run(1400 * kMiB, 39).finding("one_operation_peak").id, "") << "others are as high";
  EXPECT_EQ(run(2800 * kMiB).finding("one_operation_peak").id, "");
}

// A server whose request 30 has a length of its own, as has each `every`-th one. 0: none else.
Trace serves(uint64_t length, uint64_t every, bool fails) {
  return Trace::on_card(2048 * kMiB, [=](Story& s, uint32_t) {
    for (int i = 0; i < 20; ++i) s.alloc(40 * kMiB, s.setup());
    for (uint64_t i = 0; i < 60; ++i) {
      const bool is_long = i == 30 || (every != 0 && i % every == 0);
      const uint64_t bytes = (is_long ? length : 1 + i % 3) * 2 * kMiB;
      const uint64_t first = s.alloc(bytes, s.forward(1, "prefill serve.py:22"));
      if (i == 30 && fails)
        return s.run_out(2 * bytes, 20 * kMiB, s.forward(2, "prefill serve.py:22"));
      const uint64_t second = s.alloc(2 * bytes, s.forward(2, "prefill serve.py:22"));
      s.free(first);
      s.free(second);
    }
  });
}

TEST(Operations, OneLongRequestMakesThePeak) {
  const Trace trace = serves(100, 0, false);
  EXPECT_EQ(trace.alarms(), Ids{});
  const Finding f = trace.finding("one_operation_peak");
  EXPECT_EQ(headline_of(f.frames), "prefill serve.py:22");
  EXPECT_EQ(f.summary,
            "one request asked for 50 times the usual size (400.0 MiB, usually 8.0 MiB), and made "
            "the peak");
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].action, "bound_request");
  EXPECT_EQ(f.advice[0].saves_bytes, (600 - 18) * kMiB);  // the next highest request
  // Every sixth is as long: that is what the program is asked for.
  EXPECT_TRUE(serves(100, 6, false).finding("one_operation_peak").id.empty());
}

// A prompt is read by the line that adds the tokens after it, which are many and small: it is as
// long as other prompts.
TEST(Operations, APromptIsNoUnusualRequest) {
  const auto run = [](uint64_t longest) {
    return Trace::on_card(2048 * kMiB, [=](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) s.alloc(20 * kMiB, s.setup());
      for (uint64_t i = 0; i < 60; ++i) {
        const uint64_t prompt = i == 30 ? longest : (60 + i % 30) * kMiB;
        s.free(s.alloc(prompt, s.forward(1, "reply serve.py:22")));
        for (int token = 0; token < 30; ++token) {
          s.free(s.alloc(2 * kMiB, s.forward(1, "reply serve.py:22")));
        }
      }
    });
  };
  EXPECT_EQ(run(200 * kMiB).finding("one_operation_peak").id, "");
  EXPECT_EQ(run(800 * kMiB).finding("one_operation_peak").summary,
            "one request asked for 11 times the usual size (800.0 MiB, usually 75.0 MiB), and made "
            "the peak");
}

TEST(Operations, OneLongRequestDoesNotFit) {
  const Finding f = serves(200, 0, true).finding("capacity");
  EXPECT_EQ(headline_of(f.frames), "prefill serve.py:22");
  EXPECT_NE(f.summary.find("one request asked for 100 times the usual size"), std::string::npos)
      << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "bound_request");
}

// A line that makes results of several sizes. Usual requests differ, and their largest needs what
// it needs: bounding others does not help there.
TEST(Operations, BoundingARequestLeavesTheUsualOnes) {
  const auto run = [](uint64_t largest, bool fails) {
    return Trace::on_card((fails ? 3072 : 16384) * kMiB, [=](Story& s, uint32_t) {
      const auto in_request = [&s](const std::string& frame) {
        return s.stack({frame, "_call_impl torch/nn/modules/module.py:1", "transcribe serve.py:22",
                        "main serve.py:60"});
      };
      const uint32_t attends = in_request("forward model.py:22");
      const uint32_t normalizes = in_request("forward model.py:23");
      for (int i = 0; i < 20; ++i) s.alloc(4 * kMiB, s.setup());
      for (uint64_t i = 0; i < 70; ++i) {
        const uint64_t length = i == 60 ? 90 : i % 30 == 7 ? largest : 6 + i % 5;
        const uint64_t bytes = length * length * kMiB / 4;
        const uint64_t input = s.alloc(2 * kMiB, s.stack({"load serve.py:9", "main serve.py:59"}));
        const uint64_t half = s.alloc(bytes, attends);
        if (i == 60 && fails) return s.run_out(2 * bytes, 20 * kMiB, normalizes);
        const uint64_t whole = s.alloc(2 * bytes, normalizes);
        s.free(half);
        const uint64_t softmax = s.alloc(2 * bytes, normalizes);
        s.free(whole);
        for (int k = 0; k < 3; ++k) s.free(s.alloc(bytes / 8, normalizes));
        s.free(softmax);
        s.free(input);
      }
    });
  };
  for (const uint64_t largest : {16U, 20U, 24U}) {
    for (const bool fails : {false, true}) {
      const Trace trace = run(largest, fails);
      const Finding f = trace.finding(fails ? "capacity" : "one_operation_peak");
      const auto bound = std::find_if(f.advice.begin(), f.advice.end(),
                                      [](const Advice& a) { return a.action == "bound_request"; });
      ASSERT_NE(bound, f.advice.end()) << largest << fails << f.summary;
      const uint64_t peak = trace.model().processes[0].framework[0].allocated_peak.bytes;
      const uint64_t usual = (20 * 4 + 2) * kMiB + largest * largest * kMiB;  // two results
      EXPECT_LE(bound->saves_bytes, peak - usual) << largest << fails;
      EXPECT_GE(bound->saves_bytes, (peak - usual) / 4 * 3) << largest << fails;
    }
  }
}

// The request that failed would have fitted without the holes, but not the rest of its pass.
TEST(Operations, OneLongRequestDoesNotFailForHoles) {
  const auto run = [](uint64_t length, uint64_t free_bytes) {
    return Trace::on_card(2048 * kMiB, [=](Story& s, uint32_t) {
      const std::string line = "prefill serve.py:22";
      for (int i = 0; i < 20; ++i) s.alloc(20 * kMiB, s.setup());
      for (uint64_t i = 0; i < 40; ++i) {
        const uint64_t bytes = (i == 39 ? length : 20) * 2 * kMiB;
        const uint64_t prompt = s.alloc(kMiB, s.user(5));
        const uint64_t first = s.alloc(bytes, s.forward(1, line));
        if (i == 39) return s.run_out(2 * bytes, free_bytes, s.forward(2, line));
        const uint64_t second = s.alloc(2 * bytes, s.forward(2, line));
        s.free(first);
        s.free(s.alloc(2 * bytes, s.forward(3, line)));
        s.free(second);
        s.free(prompt);
      }
    });
  };
  EXPECT_EQ(run(100, 260 * kMiB).alarms(), (Ids{"capacity"}));
  EXPECT_EQ(run(20, 40 * kMiB).alarms(), (Ids{"fragmentation"})) << "as long as others";
}

TEST(Operations, ARequestThatNeedsMoreThanEverythingElse) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3; ++i) s.alloc(100 * kMiB, s.user(1));
    s.run_out(2000 * kMiB, 10240 * kMiB, s.user(9));  // a memory fraction refused
  });
  const Finding f = trace.finding("capacity");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "split_request");
  EXPECT_NE(f.advice[0].detail.find("train.py:9"), std::string::npos) << f.advice[0].detail;
}

const Frames kLayer = {"forward model.py:40", "_call_impl torch/nn/modules/module.py:1"};

// Scores of which one layer makes a softmax, by a function of the library or in C++.
std::string advice_on_scores(const Frames& inner, const Frames& outer = kLayer) {
  const Trace trace([&](Story& s, uint32_t) {
    Training t(s, {});
    Frames frames = inner;
    for (const std::string& frame : outer) frames.push_back(frame);
    frames.push_back("train train.py:10");
    const uint32_t scores = s.stack(frames);
    for (int i = 0; i < 6; ++i) {
      Blocks kept = t.forward();
      for (int k = 0; k < 2; ++k) kept.push_back(s.alloc(400 * kMiB, scores));
      for (; !kept.empty(); kept.pop_back()) {
        const uint64_t passed = s.alloc(8 * kMiB, 0);
        s.free(kept.back());
        s.free(passed);
      }
      s.optimizer_mark();
    }
  });
  const Finding f = trace.finding("one_operation_peak");
  return f.advice.empty() ? "" : f.advice[0].detail;
}

// The request that failed has no line of its own: it is the gradient of a result that has one.
TEST(Operations, TheGradientOfALargeResultThatDoesNotFit) {
  const auto fails = [](uint64_t bytes) {
    const Trace trace([bytes](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) t.step();
      t.forward();
      s.alloc(400 * kMiB, s.forward(40));
      s.run_out(bytes, 10 * kMiB, 0);
    });
    return trace.finding("one_operation_peak");
  };
  const Finding f = fails(400 * kMiB);
  EXPECT_EQ(f.severity, kError);
  EXPECT_EQ(headline_of(f.frames).find("forward"), 0U) << headline_of(f.frames);
  EXPECT_NE(fails(90 * kMiB).severity, kError);
}

// What torch.compile tries kernels with is no operation of the program.
TEST(Operations, AutotuningIsNotAnOperation) {
  const std::string advice =
      advice_on_scores({"bench " + kTorch + "_inductor/runtime/triton_heuristics.py:840"});
  EXPECT_NE(advice.find("max-autotune"), std::string::npos) << advice;
  EXPECT_EQ(advice.find("in parts"), std::string::npos) << advice;
}

// Messages along the edges of graphs, which have another number of them in every step.
// `operations`: lines that compute something in this shape; 0: a fused one does not.
Trace graphs(int operations, const std::string& kernel = "") {
  return Trace::on_card(0, [operations, kernel](Story& s, uint32_t) {
    // Names of kernels are among the strings of a trace, as those of ranges are.
    if (!kernel.empty()) s.range(kernel, MarkPhase::kBegin);
    for (int i = 0; i < 4; ++i) s.alloc(2 * kMiB, s.setup());
    for (uint64_t step = 0; step < 12; ++step) {
      const uint64_t nodes = (8 + step % 4) * kMiB;
      Blocks kept;
      for (int layer = 0; layer < 5; ++layer) kept.push_back(s.alloc(nodes, s.forward(layer)));
      Blocks messages;
      for (int i = 0; i < operations; ++i) {
        messages.push_back(s.alloc(10 * nodes, s.forward(20 + i)));
      }
      kept.push_back(s.alloc(nodes, s.forward(30)));
      for (const uint64_t block : messages) s.free(block);
      Blocks gradients;
      for (; !kept.empty(); kept.pop_back()) {
        gradients.push_back(s.alloc(2 * kMiB, 0));
        s.free(kept.back());
      }
      s.optimizer_mark();
      for (const uint64_t block : gradients) s.free(block);
    }
  });
}

TEST(Operations, AnOperationHasOtherSizesInOtherSteps) {
  const auto peak = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  const Trace one = graphs(1);
  const Finding f = one.finding("one_operation_peak");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_TRUE(f.summary.starts_with("one operation holds")) << f.summary;
  EXPECT_EQ(f.advice[0].saves_bytes, peak(one) - peak(graphs(0)));
}

// The first layers of a network are as large; they are many.
TEST(Operations, ManyLayersAreNoOperation) {
  EXPECT_NE(graphs(6).finding("one_operation_peak").id, "");
  EXPECT_EQ(graphs(7).finding("one_operation_peak").id, "");
}

TEST(Operations, DoublePrecisionIsNamed) {
  const auto saves = [](const std::string& kernel) {
    const Trace trace = graphs(1, kernel);
    for (const Advice& a : trace.finding("one_operation_peak").advice) {
      if (a.action == "single_precision") return a.saves_bytes;
    }
    return uint64_t{0};
  };
  const Trace single = graphs(1);
  const uint64_t peak = single.model().processes[0].framework[0].allocated_peak.bytes;
  const uint64_t saved = saves("sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16");
  EXPECT_GT(saved, peak / 3);
  EXPECT_LE(saved, peak / 2);
  EXPECT_EQ(saves("ampere_dgemm_64x64_nn"), saved);
  EXPECT_EQ(saves("sm80_xmma_gemm_f32f32_f32f32_f32_nn"), 0U);
  EXPECT_EQ(saves("nvjet_tst_128x256"), 0U);
  EXPECT_EQ(saves("void at::native::reduce_kernel<512, 1, ReduceOp<double>>"), 0U);
}

// NumPy's default doubles what a model needs, also where there is room for it.
TEST(Operations, TrainingInDoublePrecisionIsNoted) {
  const auto advice = [](const std::string& kernel) {
    const Trace trace = Trace::on_card(uint64_t{80} << 30, [&](Story& s, uint32_t) {
      s.range(kernel, MarkPhase::kBegin);
      for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
      for (int step = 0; step < 4; ++step) {
        Blocks kept;
        for (int layer = 0; layer < 12; ++layer)
          kept.push_back(s.alloc(256 * kMiB, s.forward(layer)));
        Blocks gradients;
        for (; !kept.empty(); kept.pop_back()) {
          gradients.push_back(s.alloc(8 * kMiB, s.node("AddmmBackward0")));
          s.free(kept.back());
        }
        s.free(s.alloc(8 * kMiB, s.optimizer("_multi_tensor_adam")));
        for (const uint64_t block : gradients) s.free(block);
      }
    });
    const Finding f = trace.finding("activation_peak");
    return f.advice.empty() ? std::string() : f.severity + (" " + f.advice.front().action);
  };
  EXPECT_EQ(advice("sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16"),
            "info single_precision");
  EXPECT_EQ(advice("sm80_xmma_gemm_f32f32_f32f32_f32_nn"), "");
}

TEST(Operations, SeveralOperationsAreNotCalledOne) {
  const Finding f = graphs(2).finding("one_operation_peak");
  EXPECT_TRUE(f.summary.starts_with("2 operations with results of one shape hold")) << f.summary;
}

TEST(Operations, AttentionScoresNameTheFusedFunction) {
  const std::string named = advice_on_scores({"softmax " + kTorch + "nn/functional.py:2100"});
  EXPECT_TRUE(named.starts_with("use torch.nn.functional.scaled_dot_product_attention")) << named;
  // A large result of a layer is not always of attention.
  EXPECT_EQ(advice_on_scores({}).find("attention"), std::string::npos);
  const std::string loss = advice_on_scores({"log_softmax " + kTorch + "nn/functional.py:2200"});
  EXPECT_NE(loss.find("cross entropy"), std::string::npos) << loss;
}

// A loss may take the softmax over classes.
TEST(Operations, ASoftmaxAloneIsNotAttention) {
  const auto is_of_attention = [](const Frames& outer) {
    return advice_on_scores({"softmax " + kTorch + "nn/functional.py:2100"}, outer)
        .starts_with("use torch.nn.functional.scaled_dot_product_attention");
  };
  const std::string call = "_call_impl torch/nn/modules/module.py:1";
  EXPECT_TRUE(is_of_attention({"scores attend.py:3", "forward model.py:40", call}));
  EXPECT_TRUE(is_of_attention({"attention model.py:3"}));
  EXPECT_FALSE(is_of_attention({"overlap train.py:7"}));
  EXPECT_FALSE(is_of_attention({"forward losses.py:7", call}));
  EXPECT_FALSE(is_of_attention({"forward torch/nn/modules/activation.py:7", call, "f train.py:7"}));
}

// A server that makes a pool for keys and values after a pass that warms it up.
TEST(Operations, APoolThatDoesNotFitIsNotAnOperation) {
  const auto serve = [](int lines, int attempts) {
    return Trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
      for (int i = 0; i < 12; ++i)
        s.free(s.alloc(2 * kMiB, s.forward(i % 6, "warm_up serve.py:6")));
      for (int attempt = 0; attempt < attempts; ++attempt) {
        Blocks pool;
        for (int i = 0; i < 7; ++i) pool.push_back(s.alloc(128 * kMiB, s.user(40 + i % lines)));
        s.run_out(128 * kMiB, 20 * kMiB, s.user(40 + 7 % lines));
        for (const uint64_t block : pool) s.free(block);
      }
    });
  };
  for (const Trace& trace : {serve(1, 1), serve(2, 1), serve(1, 2)}) {
    EXPECT_EQ(trace.finding("one_operation_peak").id, "");
    EXPECT_EQ(trace.finding("capacity").id, "capacity");
  }
}

// Lines whose results were freed before compute something, however many the last run makes.
TEST(Operations, ResultsOfALineThatDoNotFitAreNoPool) {
  const auto serve = [](uint64_t results) {
    return Trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
      for (int request = 0; request < 6; ++request) {
        for (int i = 0; i < 12; ++i) s.free(s.alloc(2 * kMiB, s.forward(i % 6)));
        Blocks scores;
        for (uint64_t i = 0; i < results; ++i) {
          scores.push_back(s.alloc((request == 5 ? 512 : 128) * kMiB, s.user(40)));
        }
        if (request == 5) return s.run_out(512 * kMiB, 20 * kMiB, s.user(40));
        for (const uint64_t block : scores) s.free(block);
      }
    });
  };
  EXPECT_EQ(serve(1).finding("one_operation_peak").severity, kError);
  EXPECT_EQ(serve(3).finding("one_operation_peak").severity, kError);
}

// A buffer that stays through many passes, and is replaced by a larger one when it is full.
TEST(Operations, ABufferThatGrowsIsNotAnOperation) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    uint64_t buffer = s.alloc(128 * kMiB, s.user(52));
    for (const uint64_t size : {256U, 512U, 1024U}) {
      for (int i = 0; i < 240; ++i) s.free(s.alloc(2 * kMiB, s.forward(i % 6)));
      if (size == 1024) return s.run_out(size * kMiB, 20 * kMiB, s.user(52));
      const uint64_t larger = s.alloc(size * kMiB, s.user(52));
      s.free(buffer);
      buffer = larger;
    }
  });
  EXPECT_EQ(trace.finding("one_operation_peak").id, "");
  EXPECT_EQ(trace.finding("capacity").id, "capacity");
}

// A search that keeps the best beams copies the caches of all layers between two passes. A result
// that is used at once and freed before the next pass is an operation's.
TEST(Operations, CachesThatAreCopiedBetweenPasses) {
  const auto search = [](bool caches) {
    return Trace([caches](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
      for (int request = 0; request < 8; ++request) {
        std::vector<uint64_t> held;
        for (int pass = 0; pass < 12; ++pass) {
          for (int i = 0; i < 8; ++i) s.free(s.alloc(2 * kMiB, s.forward(i, "search beam.py:36")));
          std::vector<uint64_t> copies;
          for (int i = 0; i < 6; ++i) {
            copies.push_back(s.alloc(64 * kMiB, s.stack({"reorder beam.py:44"})));
          }
          for (const uint64_t block : held) s.free(block);
          held = copies;
          if (caches) continue;
          for (const uint64_t block : held) s.free(block);
          held.clear();
        }
        for (const uint64_t block : held) s.free(block);
      }
    });
  };
  EXPECT_TRUE(search(true).finding("one_operation_peak").id.empty());
  EXPECT_EQ(search(false).finding("one_operation_peak").id, "one_operation_peak");
}

// A decoder that computes logits for each position of a prompt and converts them: in every request,
// whatever the length, and without steps that could be told apart.
Trace decodes(bool all_positions, const Frames& layers = {}) {
  return Trace([=](Story& s, uint32_t) {
    const auto in_model = [&](int line, int caller) {
      Frames frames = layers;
      frames.push_back("CachedLM.forward serve.py:" + std::to_string(line));
      frames.push_back("_call_impl torch/nn/modules/module.py:1");
      frames.push_back("generate serve.py:" + std::to_string(caller));
      return s.stack(frames);
    };
    for (int i = 0; i < 10; ++i) s.alloc(20 * kMiB, s.setup());
    const auto pass = [&](uint64_t tokens, int caller) {
      for (int i = 0; i < 12; ++i) {
        const uint64_t query = s.alloc(tokens * 4096, in_model(20 + i % 6, caller));
        s.free(s.alloc(tokens * 4096, in_model(30 + i % 6, caller)));
        s.free(query);
      }
      const uint64_t positions = all_positions ? tokens : 1;
      const uint64_t logits = s.alloc(positions * 128000, in_model(53, caller));
      const uint64_t converted = s.alloc(positions * 256000, in_model(54, caller));
      s.free(logits);
      s.free(converted);
    };
    for (const uint64_t length : {6000U, 8000U, 7600U}) {
      pass(length, 76);
      pass(length, 77);
      for (int i = 0; i < 40 + static_cast<int>(length % 7); ++i) pass(i % 2 == 0 ? 1 : 5, 81);
    }
  });
}

TEST(Operations, LogitsOfAllPositionsOfEveryPrompt) {
  const auto peak = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  const Trace all = decodes(true);
  const Finding f = all.finding("one_operation_peak");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes),
              static_cast<double>(peak(all) - peak(decodes(false))), 2.0 * kMiB);
  EXPECT_TRUE(f.advice[0].detail.starts_with(
      "compute this in parts, or only for the positions that are used (of logits, often the last)"))
      << f.advice[0].detail;
  EXPECT_EQ(decodes(false).finding("one_operation_peak").id, "");
  const Trace scores = decodes(true, {"Layer.forward serve.py:30"});
  ASSERT_FALSE(scores.finding("one_operation_peak").advice.empty());
  const std::string in_layer = scores.finding("one_operation_peak").advice[0].detail;
  EXPECT_EQ(in_layer.find("attention"), std::string::npos) << in_layer;
  EXPECT_EQ(in_layer.find("positions"), std::string::npos) << in_layer;
}

// Layers of one class with three large tensors each: messages along the edges of a graph. `layers`:
// how many; each line of a single one makes as many blocks. `modules`: the nn.Modules are known.
Trace messages(int layers, bool modules) {
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, s.setup());
    for (int step = 0; step < 6; ++step) {
      Blocks kept;
      const auto add = [&](uint64_t bytes, int line, int layer) {
        const Frames frames = {"forward model.py:" + std::to_string(line),
                               "_call_impl " + kTorch + "nn/modules/module.py:1",
                               "train train.py:10"};
        const std::string module = "rounds." + std::to_string(layer % layers);
        kept.push_back(s.alloc(bytes, modules ? s.stack_in(module, frames) : s.stack(frames)));
      };
      for (int layer = 0; layer < 5; ++layer) {
        for (const int line : {11, 12, 13}) {
          if (layers == 1) kept.push_back(s.alloc(8, s.user(20)));
          add(48 * kMiB, layers == 1 ? 11 : line, layer);
        }
        for (const int line : {14, 15, 16, 17, 18}) add(4 * kMiB, line, layer);
      }
      Blocks gradients;
      for (; !kept.empty(); kept.pop_back()) {
        gradients.push_back(s.alloc(kMiB / 4, s.node("MmBackward0")));
        s.free(kept.back());
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      for (const uint64_t gradient : gradients) s.free(gradient);
    }
  });
}

TEST(Operations, WhatEachLayerComputesIsNoOperation) {
  for (const bool modules : {true, false}) {
    EXPECT_TRUE(messages(5, modules).finding("one_operation_peak").id.empty()) << modules;
  }
  EXPECT_FALSE(messages(1, true).finding("one_operation_peak").id.empty()) << "one line, one layer";
}

// Differences of all rows of two batches, of 64 numbers each, beside the distances.
Trace distances(bool fails) {
  return Trace::on_card(fails ? 320 * kMiB : uint64_t{16} << 30, [=](Story& s, uint32_t) {
    constexpr uint64_t kSamples = 512;
    constexpr uint64_t kDifferences = kSamples * kSamples * 64 * 4;
    for (int i = 0; i < 4; ++i) s.alloc(3 * kMiB, s.setup());
    const auto own = [&](int line) {
      return s.stack({"forward matcher.py:" + std::to_string(line),
                      "_call_impl torch/nn/modules/module.py:1", "train train.py:10"});
    };
    for (int step = 0; step < 7; ++step) {
      const uint64_t input = s.alloc(kSamples * 768 * 4, s.user(8));
      Blocks kept;
      for (const int line : {1, 2, 3, 4}) {
        for (int tower = 0; tower < 2; ++tower) {
          kept.push_back(s.alloc(2 * kMiB + 4096, s.forward(line)));
        }
      }
      kept.push_back(s.alloc(kSamples * 64 * 4, s.forward(5)));
      kept.push_back(s.alloc(kDifferences, own(46)));
      s.free(s.alloc(kDifferences, own(47)));
      kept.push_back(s.alloc(kSamples * kSamples * 4, own(48)));
      kept.push_back(s.alloc(kSamples * 4, s.user(30)));
      Blocks passed;
      for (int k = 0; k < 3; ++k) passed.push_back(s.alloc(kDifferences, s.node("PowBackward0")));
      if (fails && step == 6) return s.run_out(kDifferences, 0, s.node("PowBackward0"));
      for (const uint64_t block : passed) s.free(block);
      Blocks gradients;
      for (; !kept.empty(); kept.pop_back()) {
        gradients.push_back(s.alloc(3 * kMiB, s.node("MmBackward0")));
        s.free(kept.back());
        if (gradients.size() > 4) s.free(gradients.back());
        if (gradients.size() > 4) gradients.pop_back();
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      for (const uint64_t gradient : gradients) s.free(gradient);
      s.free(input);
    }
  });
}

TEST(Operations, VectorsOfAllPairsGrowWithTheSquareOfTheBatch) {
  const Finding f = distances(false).finding("one_operation_peak");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("a row and a column for each of 512 samples"),
            std::string::npos)
      << f.advice[0].detail;
  const Trace failed = distances(true);
  const Finding capacity = failed.finding("capacity");
  const Advice* const half = advice_of(capacity, "halve_batch");
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(half->detail.find("twice the accumulation"), std::string::npos) << half->detail;
  EXPECT_NE(half->detail.find("changes a loss over pairs"), std::string::npos) << half->detail;
  const uint64_t peak = framework(failed).allocated_peak.bytes;
  EXPECT_GT(half->saves_bytes, peak / 100 * 65) << "three quarters of the differences";
}

}  // namespace
}  // namespace tidemark
