// Programs that only run a model: what of a pass is alive at its end, with and without a graph.
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/names/stack_lines.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Ids = std::vector<std::string>;
using Blocks = std::vector<uint64_t>;

constexpr int kLayers = 8;
constexpr int kRequests = 12;

enum class Keeps {
  kNothing,       // torch.inference_mode()
  kGraph,         // until the result is dropped
  kGraphInLoop,   // until the next result replaces it
  kHiddenStates,  // of each layer, on purpose
  kKeysAndValues,
};

// A server whose model is a stack of equal layers of five lines each.
class Server {
 public:
  Server(Story& s, Keeps keeps) : s_(s), keeps_(keeps) {
    for (const uint64_t mib : {3U, 4U, 5U, 6U}) s_.alloc(mib * kMiB, s_.setup());
  }

  void serve(int request) {
    const uint64_t input = s_.alloc(kMiB, s_.stack({"serve serve.py:8"}));
    Blocks kept = pass(static_cast<uint64_t>(4 + request % 3));
    s_.free(input);
    if (keeps_ == Keeps::kGraphInLoop) std::swap(kept, before_);
    free_all(kept);
  }

  // The blocks that are alive after it.
  Blocks pass(uint64_t mib) {
    Blocks kept;
    uint64_t passed = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      Blocks own;
      for (int line = 1; line <= 5; ++line) own.push_back(s_.alloc(mib * kMiB, stack(line)));
      if (passed != 0 && keeps_ == Keeps::kNothing) s_.free(passed);
      passed = 0;
      for (size_t i = 0; i < own.size(); ++i) {
        const bool last = i + 1 == own.size();
        if (is_kept(i, last)) {
          kept.push_back(own[i]);
        } else if (last) {
          passed = own[i];
        } else {
          s_.free(own[i]);
        }
      }
      if (passed != 0 && keeps_ == Keeps::kKeysAndValues) {
        s_.free(std::exchange(passed, 0));
      }
    }
    if (passed != 0) kept.push_back(passed);
    return kept;
  }

 private:
  bool is_kept(size_t line, bool last) const {
    switch (keeps_) {
      case Keeps::kNothing:
        return false;
      case Keeps::kHiddenStates:
        return last;
      case Keeps::kKeysAndValues:
        return line == 1 || line == 2;
      default:
        return true;
    }
  }
  uint32_t stack(int line) {
    return s_.stack({"forward model.py:" + std::to_string(line),
                     "_call_impl torch/nn/modules/module.py:1", "forward model.py:90",
                     "_call_impl torch/nn/modules/module.py:1", "serve serve.py:10"});
  }
  void free_all(const Blocks& blocks) {
    for (const uint64_t block : blocks) s_.free(block);
  }

  Story& s_;
  Keeps keeps_;
  Blocks before_;
};

Trace served(Keeps keeps) {
  return Trace([keeps](Story& s, uint32_t) {
    Server server(s, keeps);
    for (int request = 0; request < kRequests; ++request) server.serve(request);
  });
}

uint64_t peak_of(const Trace& trace) {
  return trace.model().processes[0].framework[0].allocated_peak.bytes;
}

TEST(ServedGraphs, AGraphThatEndsWithItsPassIsFound) {
  for (const Keeps keeps : {Keeps::kGraph, Keeps::kGraphInLoop}) {
    const Trace trace = served(keeps);
    EXPECT_EQ(trace.alarms(), (Ids{"eval_keeps_graph"}));
    const Finding f = trace.finding("eval_keeps_graph");
    EXPECT_EQ(headline_of(f.frames), "serve serve.py:10");
    ASSERT_EQ(f.advice.size(), 1u);
    // Detaching the result is no help.
    EXPECT_EQ(f.advice[0].detail.find("detach"), std::string::npos) << f.advice[0].detail;
    const uint64_t truth = peak_of(trace) - peak_of(served(Keeps::kNothing));
    EXPECT_LE(f.advice[0].saves_bytes, truth);
    EXPECT_GE(f.advice[0].saves_bytes, truth - truth / 8);
  }
}

TEST(ServedGraphs, WhatIsKeptOnPurposeIsNoGraph) {
  for (const Keeps keeps : {Keeps::kNothing, Keeps::kHiddenStates, Keeps::kKeysAndValues}) {
    const Trace trace = served(keeps);
    EXPECT_EQ(trace.alarms(), Ids{});
    EXPECT_TRUE(trace.finding("eval_keeps_graph").id.empty());
  }
}

// A history of one pass, which is freed from its end to its beginning or from its beginning to its
// end.
Trace served_once(Keeps keeps, bool backwards) {
  return Trace([=](Story& s, uint32_t) {
    Server server(s, keeps);
    Blocks kept = server.pass(4);
    if (backwards) std::reverse(kept.begin(), kept.end() - 1);  // the result goes last
    for (const uint64_t block : kept) s.free(block);
  });
}

TEST(ServedGraphs, AGraphOfTheOnlyPassIsFreedBackwards) {
  EXPECT_EQ(served_once(Keeps::kGraph, true).alarms(), (Ids{"eval_keeps_graph"}));
  EXPECT_EQ(served_once(Keeps::kGraph, false).alarms(), Ids{});
  for (const Keeps keeps : {Keeps::kNothing, Keeps::kHiddenStates, Keeps::kKeysAndValues}) {
    EXPECT_EQ(served_once(keeps, true).alarms(), Ids{});
  }
}

// One function that has all results in variables of its own: they are alive until it returns.
// Under autocast, say: most of what a pass computes is freed at once. A result frees what its graph
// holds, and goes then.
TEST(ServedGraphs, AGraphMayBeLessThanHalfOfItsPass) {
  const Trace trace([](Story& s, uint32_t) {
    for (const uint64_t mib : {3U, 4U, 5U, 6U}) s.alloc(mib * kMiB, s.setup());
    for (int pass = 0; pass < 3; ++pass) {
      const uint64_t input = s.alloc(kMiB, s.user(8));
      Blocks kept = {s.alloc(8 * kMiB, s.forward(9))};
      for (int layer = 0; layer < kLayers; ++layer) {
        s.free(s.alloc(60 * kMiB, s.forward(4)));
        for (int line = 1; line < 4; ++line) kept.push_back(s.alloc(8 * kMiB, s.forward(line)));
      }
      for (size_t k = kept.size() - 1; k-- > 0;) s.free(kept[k]);
      s.free(kept.back());
      s.free(input);
    }
  });
  EXPECT_EQ(trace.alarms(), (Ids{"eval_keeps_graph"}));
}

TEST(ServedGraphs, VariablesOfOneFunctionAreNoGraph) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(4 * kMiB, s.setup());
    for (int request = 0; request < kRequests; ++request) {
      const uint64_t input = s.alloc(kMiB, s.user(8));
      Blocks variables;
      for (int line = 1; line <= 12; ++line)
        variables.push_back(s.alloc(4 * kMiB, s.forward(line)));
      for (const uint64_t block : variables) s.free(block);
      s.free(input);
    }
  });
  EXPECT_EQ(trace.alarms(), Ids{});
}

// Memory ran out in the first forward passes of what may be a training: nothing shows whether a
// backward pass would have used them.
TEST(ServedGraphs, PassesThatNothingFreedBeforeAnErrorMayBeTrained) {
  const Trace trace([](Story& s, uint32_t) {
    Server server(s, Keeps::kGraph);
    for (int pass = 0; pass < 3; ++pass) server.pass(4);
    s.run_out(64 * kMiB, 0, s.user(3));
  });
  EXPECT_TRUE(trace.finding("eval_keeps_graph").id.empty());
}

// How the results of a pass end: with the next operation, as a graph, as the variables of a
// function, or as a tuple that the model returns.
enum class Freed { kSoon, kAsGraph, kAsVariables, kAsTuple };

// Two convolutions, each with an activation and a pooling with indices, and a linear layer: no line
// runs twice.
class SmallNet {
 public:
  SmallNet(Story& s, Freed freed) : s_(s), freed_(freed) {
    for (const uint64_t mib : {2U, 3U, 4U}) s_.alloc(mib * kMiB, s_.setup());
  }

  // What is alive after it, the result last.
  Blocks pass(uint64_t scale, const std::string& caller) {
    Blocks kept;
    Blocks before;
    for (int layer = 0; layer < 2; ++layer) {
      const uint64_t bytes = scale * (layer == 0 ? 8 : 4) * kMiB;
      const auto line = [&](int i) { return s_.forward(3 * layer + i, caller); };
      const uint64_t convolved = s_.alloc(bytes, line(1));
      leave(before, kept);
      const uint64_t active = s_.alloc(bytes, line(2));
      s_.free(convolved);
      const uint64_t pooled = s_.alloc(bytes / 4, line(3));
      const uint64_t indices = s_.alloc(bytes / 2, line(3));
      Blocks used = {active};
      leave(used, kept);
      before = {pooled, indices};
    }
    const uint64_t result = s_.alloc(64 * 1024, s_.forward(7, caller));
    leave(before, kept);
    kept.push_back(result);
    return kept;
  }

  void free_pass(Blocks& kept) {
    if (kept.empty()) return;
    const uint64_t result = kept.back();
    kept.pop_back();
    if (freed_ == Freed::kAsTuple) s_.free(result);
    if (freed_ != Freed::kAsVariables) std::reverse(kept.begin(), kept.end());
    for (const uint64_t block : kept) s_.free(block);
    if (freed_ != Freed::kAsTuple) s_.free(result);
    kept.clear();
  }

  void train() {
    const uint64_t input = s_.alloc(kMiB, s_.user(8));
    Blocks kept = pass(1, "train train.py:10");
    Blocks gradients;
    for (; !kept.empty(); kept.pop_back()) {
      const uint64_t passed = s_.alloc(kMiB, 0);
      s_.free(kept.back());
      gradients.push_back(s_.alloc(kMiB, 0));
      s_.free(passed);
    }
    s_.optimizer_mark();
    for (const uint64_t block : gradients) s_.free(block);
    s_.free(input);
  }

  void keep_graph(bool keeps) { freed_ = keeps ? Freed::kAsGraph : Freed::kSoon; }

 private:
  void leave(Blocks& used, Blocks& kept) {
    for (const uint64_t block : used)
      freed_ == Freed::kSoon ? s_.free(block) : kept.push_back(block);
    used.clear();
  }

  Story& s_;
  Freed freed_;
};

// `in_loop`: a variable of the loop has the result until the next one. `views`: passes whose
// results are added up.
Trace served_by_small_net(Freed freed, bool in_loop, int views = 1) {
  return Trace([=](Story& s, uint32_t) {
    SmallNet net(s, freed);
    std::vector<Blocks> before;
    for (int request = 0; request < kRequests; ++request) {
      std::vector<Blocks> now;
      for (int view = 0; view < views; ++view) {
        const uint64_t input = s.alloc(kMiB, s.stack({"serve serve.py:8"}));
        now.push_back(net.pass(static_cast<uint64_t>(2 + request % 3), "serve serve.py:10"));
        s.free(input);
      }
      if (in_loop) std::swap(now, before);
      std::reverse(now.begin(), now.end());
      for (Blocks& kept : now) net.free_pass(kept);
    }
  });
}

TEST(ServedGraphs, AGraphOfAModelWhoseLayersDifferIsFreedBackwards) {
  for (const bool in_loop : {false, true}) {
    for (const int views : {1, 4}) {
      const Trace trace = served_by_small_net(Freed::kAsGraph, in_loop, views);
      EXPECT_EQ(trace.alarms(), (Ids{"eval_keeps_graph"})) << in_loop << views;
      const Finding f = trace.finding("eval_keeps_graph");
      EXPECT_EQ(headline_of(f.frames), "serve serve.py:10");
      ASSERT_EQ(f.advice.size(), 1u);
      const uint64_t truth =
          peak_of(trace) - peak_of(served_by_small_net(Freed::kSoon, in_loop, views));
      EXPECT_LE(f.advice[0].saves_bytes, truth) << in_loop << views;
      EXPECT_GE(f.advice[0].saves_bytes, truth / 2) << in_loop << views;
    }
  }
  for (const Freed freed : {Freed::kSoon, Freed::kAsVariables, Freed::kAsTuple}) {
    EXPECT_EQ(served_by_small_net(freed, false).alarms(), Ids{});
    EXPECT_EQ(served_by_small_net(freed, true).alarms(), Ids{});
  }
}

// A recommender, whose embeddings are freed as a list is, from the last to the first.
TEST(ServedGraphs, AListOfResultsOfOneLineIsNoGraph) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(4 * kMiB, s.setup());
    for (int request = 0; request < kRequests; ++request) {
      const uint64_t input = s.alloc(kMiB, s.user(8));
      Blocks embedded;
      for (int i = 0; i < 8; ++i) embedded.push_back(s.alloc(8 * kMiB, s.forward(1)));
      const uint64_t product = s.alloc(16 * kMiB, s.forward(2));
      const uint64_t active = s.alloc(16 * kMiB, s.forward(3));
      s.free(product);
      const uint64_t result = s.alloc(8 * kMiB, s.forward(4));
      s.free(active);
      const uint64_t joined = s.alloc(72 * kMiB, s.user(29));
      s.free(result);
      s.free(joined);
      for (; !embedded.empty(); embedded.pop_back()) s.free(embedded.back());
      s.free(input);
    }
  });
  EXPECT_EQ(trace.alarms(), Ids{});
}

// Rollouts of a policy, of which only detached results are kept, between updates with smaller
// batches.
TEST(ServedGraphs, GraphsOfRolloutsThatEndWithTheirStep) {
  const auto run = [](bool graph) {
    return Trace([graph](Story& s, uint32_t) {
      SmallNet net(s, Freed::kSoon);
      for (int update = 0; update < 5; ++update) {
        net.keep_graph(graph);
        for (int step = 0; step < 6; ++step) {
          const uint64_t seen = s.alloc(kMiB, s.user(28));
          Blocks kept = net.pass(8, "act ppo.py:30");
          net.free_pass(kept);
          s.free(seen);
        }
        net.keep_graph(true);
        for (int step = 0; step < 4; ++step) net.train();
      }
    });
  };
  EXPECT_EQ(run(true).alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = run(true).finding("eval_keeps_graph");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "act ppo.py:30");
  EXPECT_EQ(run(false).alarms(), Ids{});
}

// A profile of a single pass. The result before it had a graph of the same blocks, and is replaced.
TEST(ServedGraphs, AProfileOfOnePassThatReplacesAnOlderGraph) {
  const auto finding = [](bool replaces) {
    const Trace trace([=](Story& s, uint32_t) {
      s.alloc(2 * kMiB, s.forward(0, "run run.py:9"));  // the embedding
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int line = 1; line <= 4; ++line) s.alloc(4 * kMiB, s.forward(line, "run run.py:9"));
        for (int k = 0; k < 6; ++k) s.free(s.alloc(kMiB, s.forward(5, "run run.py:9")));
      }
      for (int i = 0; replaces && i < kLayers * 4; ++i) s.free_older(4 * kMiB);
    });
    return trace.finding("eval_keeps_graph");
  };
  const Finding f = finding(true);
  EXPECT_EQ(headline_of(f.frames), "run run.py:9");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_GE(f.advice[0].saves_bytes, (kLayers * 4 + 16) * 4 * kMiB);
  EXPECT_TRUE(finding(false).id.empty());
}

}  // namespace
}  // namespace tidemark
