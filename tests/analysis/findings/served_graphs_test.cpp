// Programs that only run a model: what of a pass is alive at its end, with and without a graph.
#include <gtest/gtest.h>

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

// One function that has all results in variables of its own: they are alive until it returns.
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

}  // namespace
}  // namespace tidemark
