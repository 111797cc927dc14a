// What is said about memory that grows: how much and how often, what to do, and what only delays
// the error.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/model_story.h"

namespace tidemark {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Leaks in the steps for which `leaks` says so.
Finding creep_of(const std::function<bool(int)>& leaks) {
  const Trace trace([&](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 80; ++i) {
      if (leaks(i)) s.alloc(24 * kMiB, s.user(77));
      t.step();
    }
  });
  return trace.finding("creep");
}

TEST(GrowthWords, StairsAreNotARatePerStep) {
  const std::string every = creep_of([](int) { return true; }).summary;
  EXPECT_TRUE(has(every, "grows by 24.0 MiB per step")) << every;
  const Finding regular = creep_of([](int i) { return i % 8 == 3; });
  EXPECT_TRUE(has(regular.summary, "grows by 24.0 MiB in every 8th step")) << regular.summary;
  const std::string rare = creep_of([](int i) { return i * i % 11 == 5; }).summary;
  EXPECT_TRUE(has(rare, "grows by 24.0 MiB in 1") && has(rare, " of 7")) << rare;
}

TEST(GrowthWords, NothingThatIsNeededIsThrownAway) {
  const Finding f = creep_of([](int i) { return i % 8 == 3; });
  ASSERT_FALSE(f.advice.empty());
  EXPECT_TRUE(
      f.advice[0].detail.starts_with("keep only what is still needed of what is allocated "
                                     "at train.py:77, or move it to host memory"))
      << f.advice[0].detail;
  EXPECT_FALSE(has(f.advice[0].detail, "clone()")) << "the program makes the block itself";
}

// A program that serves. A request leaves blocks of these stacks, if it is one that does.
std::string served(const std::vector<std::vector<std::string>>& stacks, int every) {
  const Trace trace([&](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) s.alloc(8 * kMiB, s.setup());
    for (int i = 0; i < 160; ++i) {
      const uint64_t input = s.alloc(kMiB, s.user(8));
      for (int layer = 0; layer < 8; ++layer) {
        s.free(s.alloc(4 * kMiB, s.forward(layer, "serve serve.py:10")));
      }
      for (const std::vector<std::string>& stack : stacks) {
        const uint64_t block = s.alloc(4 * kMiB, s.stack(stack));
        if (i % every != 0) s.free(block);
      }
      s.free(input);
      s.wait(1'000'000);
    }
  });
  const Finding f = trace.finding("creep");
  return f.advice.empty() ? "" : f.advice[0].detail;
}

const std::vector<std::string> kHidden = {"forward model.py:58",
                                          "_call_impl torch/nn/modules/module.py:1",
                                          "score serve.py:88", "handle serve.py:97"};

TEST(GrowthWords, AViewKeepsTheWholeResult) {
  const std::string text = served({kHidden}, 1);
  EXPECT_TRUE(has(text, "clone() the slice")) << text;
}

// A buffer of a call, of which a cache keeps a part. Small ones are kept as they are, and so is
// what an object has.
TEST(GrowthWords, AViewKeepsTheWholeBuffer) {
  const std::string batch = "Engine.run_batch serve.py:118";
  const auto kept = [](const std::string& line, uint64_t mib) {
    const Trace trace([&](Story& s, uint32_t) {
      for (int i = 0; i < 8; ++i) s.alloc(8 * kMiB, s.setup());
      for (int i = 0; i < 120; ++i) {
        const uint64_t buffer = s.alloc(mib * kMiB, s.stack({line, "main serve.py:179"}));
        for (int layer = 0; layer < 8; ++layer) {
          s.free(s.alloc(4 * kMiB, s.forward(layer, "run_batch serve.py:133")));
        }
        if (i % 4 != 0) s.free(buffer);
        s.wait(1'000'000);
      }
    });
    const Finding f = trace.finding("creep");
    return f.advice.empty() ? std::string("none") : f.advice[0].detail;
  };
  EXPECT_TRUE(has(kept(batch, 64), "clone() the slice")) << kept(batch, 64);
  EXPECT_FALSE(has(kept(batch, 8), "clone() the slice")) << kept(batch, 8);
  const std::string session = kept("Session.__init__ serve.py:73", 64);
  EXPECT_NE(session, "none");
  EXPECT_FALSE(has(session, "clone() the slice")) << session;
}

// A bank of bounded length that is not yet full.
TEST(GrowthWords, GrowthMayEnd) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 30; ++i) {
      t.step();
      s.alloc(16 * kMiB, s.user(40));
    }
  });
  const Finding f = trace.finding("creep");
  EXPECT_TRUE(has(f.summary, "; if it goes on like this, the card is full at about step"))
      << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_TRUE(has(f.advice[0].detail, "a cache that is still being filled looks the same"))
      << f.advice[0].detail;
}

TEST(GrowthWords, VariablesOfFunctionsThatRaised) {
  const std::vector<std::string> scores = {"score serve.py:89", "handle serve.py:97"};
  const std::string raised = served({kHidden, scores}, 5);
  EXPECT_TRUE(has(raised, "its traceback keeps them")) << raised;
  // Two results of every request are in some list.
  EXPECT_FALSE(has(served({kHidden, scores}, 1), "traceback"));
}

TEST(GrowthWords, BothCallersOfOneFunction) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 20; ++i) {
      t.step();
      for (const char* caller : {"main play.py:127", "main play.py:133"}) {
        s.alloc(4 * kMiB, s.stack({"to_state play.py:103", caller}));
      }
    }
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_TRUE(has(f.advice[0].detail, "play.py:103 (called at play.py:127 and play.py:133)"))
      << f.advice[0].detail;
}

// A state that goes from one pass into the next, in steps of several passes.
class Days {
 public:
  Days(Story& s, bool carried) : s_(s), carried_(carried), model_(s) {}

  void week() {
    std::vector<Blocks> past;
    Blocks gradients;
    for (int day = 0; day < 5; ++day) {
      past.push_back(model_.forward("train train.py:75"));
      for (size_t k = carried_ ? past.size() : 1; k-- > 0;) {
        for (int i = 0; i < 10; ++i) s_.free(s_.alloc(8 * kMiB, s_.node("AddmmBackward0")));
      }
      if (gradients.empty()) gradients.push_back(s_.alloc(2 * kMiB, s_.node("AddmmBackward0")));
    }
    s_.optimizer_mark();
    s_.free(s_.alloc(kMiB, s_.optimizer("_single_tensor_sgd")));
    for (const uint64_t g : gradients) s_.free(g);
    if (!last_.empty()) free_all(last_);
    last_ = past;
  }

 private:
  void free_all(const std::vector<Blocks>& graphs) {
    for (const Blocks& graph : graphs) {
      for (const uint64_t block : graph) s_.free(block);
    }
  }

  Story& s_;
  const bool carried_;
  Model model_;
  std::vector<Blocks> last_;
};

TEST(GrowthWords, AStateThatGoesIntoTheNextPass) {
  const auto found = [](bool carried) {
    const Trace trace([&](Story& s, uint32_t) {
      Days days(s, carried);
      for (int i = 0; i < 8; ++i) days.week();
    });
    return trace.finding("retained_graph");
  };
  const Finding carried = found(true);
  ASSERT_FALSE(carried.advice.empty());
  EXPECT_TRUE(carried.advice[0].detail.starts_with("detach() the state that goes into the next"))
      << carried.advice[0].detail;
  EXPECT_TRUE(has(carried.summary, "at the peak, of ")) << carried.summary;
  const Finding held = found(false);
  ASSERT_FALSE(held.advice.empty());
  EXPECT_TRUE(held.advice[0].detail.starts_with("call backward() without retain_graph=True"))
      << held.advice[0].detail;
}

TEST(GrowthWords, MoreMemoryOnlyDelaysALeak) {
  const auto run = [](bool leaks) {
    return Trace([leaks](Story& s, uint32_t) {
      s.setting("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.05");
      Training t(s, {});
      for (int i = 0; i < 40; ++i) {
        if (leaks) s.alloc(12 * kMiB, s.user(77));
        t.step();
      }
      s.run_out(400 * kMiB, uint64_t{15} << 30, s.user(8));
      s.report_limit(800 * kMiB);
    });
  };
  const Trace leaking = run(true);
  for (const char* id : {"capacity", "memory_fraction"}) {
    const Finding f = leaking.finding(id);
    ASSERT_FALSE(f.advice.empty()) << id;
    EXPECT_TRUE(has(f.advice[0].detail, "as creep says, and more of it only delays the error"))
        << f.advice[0].detail;
  }
  const Finding alone = run(false).finding("memory_fraction");
  ASSERT_FALSE(alone.advice.empty());
  EXPECT_TRUE(alone.advice[0].detail.starts_with("raise torch.cuda.set_per_process"));
}

TEST(GrowthWords, OnlySequencesHaveALength) {
  const auto advice = [](const std::string& function, uint64_t bytes) {
    const Trace trace = Trace::on_card(1024 * kMiB, [&](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 4; ++i) {
        const uint64_t first = s.alloc(
            bytes, s.stack({function + " torch/nn/functional.py:2",
                            "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}));
        t.step();
        s.free(first);
      }
      s.alloc(16 * kMiB, s.user(8));
      t.forward(4);
      s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
    });
    std::string text;
    const Report report = trace.report();
    for (const Finding& f : report.findings) {
      for (const Advice& a : f.advice) text += a.action == "halve_batch" ? a.detail : "";
    }
    EXPECT_FALSE(text.empty());
    return text;
  };
  EXPECT_TRUE(has(advice("embedding", 4 * kMiB), "or the sequence length"));
  EXPECT_FALSE(has(advice("embedding", 8192), "sequence")) << "of the classes";
  EXPECT_FALSE(has(advice("conv2d", 4 * kMiB), "sequence"));
}

}  // namespace
}  // namespace tidemark
