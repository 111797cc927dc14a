// Validation that keeps its graph: what it holds, wherever it is kept, and errors in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "analysis/names/stack_lines.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Ids = std::vector<std::string>;
using Blocks = std::vector<uint64_t>;

const std::string kValidate = "validate train.py:30";

void free_all(Story& s, Blocks& blocks) {
  for (const uint64_t block : blocks) s.free(block);
  blocks.clear();
}

uint64_t evidence_of(const Finding& f, std::string_view name) {
  for (const auto& [key, value] : f.evidence) {
    if (key == name) return value;
  }
  return 0;
}

bool advises(const Finding& f, std::string_view action) {
  return std::any_of(f.advice.begin(), f.advice.end(),
                     [&](const Advice& a) { return a.action == action; });
}

// What a graph of the validation holds at the peak, by the lines that keep it.
uint64_t graph_at_peak(const Trace& trace, const std::vector<std::string>& lines) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  uint64_t bytes = 0;
  for (const Allocation& a : model.allocations) {
    const std::vector<std::string> frames = process.names.stack_text(a.stack);
    if (frames.empty() || frames.back() != kValidate) continue;
    const bool kept = std::find(lines.begin(), lines.end(), frames.front()) != lines.end();
    if (kept && a.alive_at(model.allocated_peak.event)) bytes += a.block_bytes;
  }
  return bytes;
}

// A variable keeps the graph of a batch until the next batch has been computed, also over the
// training steps between two validations.
TEST(Validation, AGraphThatIsKeptUntilTheNextOne) {
  const Trace carried([](Story& s, uint32_t) {
    Training t(s, {});
    Blocks last;
    for (int i = 0; i < 12; ++i) {
      t.step();
      if (i % 4 != 3) continue;
      for (int batch = 0; batch < 2; ++batch) {
        const uint64_t input = s.alloc(4 * kMiB, s.user(29));
        Blocks graph = t.forward(2, kValidate);
        free_all(s, last);
        last = std::move(graph);
        s.free(input);
      }
    }
    t.step();
  });
  EXPECT_EQ(carried.alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = carried.finding("eval_keeps_graph");
  EXPECT_EQ(headline_of(f.frames), kValidate);
  const uint64_t kept = graph_at_peak(
      carried, {"forward torch/nn/modules/op.py:1", "forward torch/nn/modules/op.py:2",
                "forward torch/nn/modules/op.py:4"});
  EXPECT_GT(kept, 6 * 80 * kMiB / 2);  // of more than one batch
  EXPECT_EQ(evidence_of(f, "peak_bytes"), kept);
  const Report report = carried.report();
  const std::vector<PhaseReport>& phases = report.ranks[0].devices[0].phases;
  EXPECT_TRUE(std::any_of(phases.begin(), phases.end(),
                          [](const PhaseReport& p) { return p.kind == PhaseKind::kValidation; }));
}

// A rollout keeps its observations for the training steps after it, which stack them. `trains`: or
// its list is as long as the steps are many, and each rollout frees the one before.
Trace rollouts(const std::string& line, bool trains, bool graph) {
  return Trace([=](Story& s, uint32_t) {
    Training t(s, {});
    const std::string main = "iterate train.py:70";
    const uint32_t observe = s.stack({"observe env.py:9", line, main});
    Blocks kept;
    for (int round = 0; round < 4; ++round) {
      Blocks before = std::move(kept);
      kept.clear();
      for (int i = 0; i < 8; ++i) {
        kept.push_back(s.alloc(24 * kMiB, observe));
        for (int layer = 0; layer < 12; ++layer) {
          const uint32_t stack = s.stack({"forward model.py:" + std::to_string(layer),
                                          "_call_impl torch/nn/modules/module.py:1", line, main});
          const uint64_t result = s.alloc(6 * kMiB, stack);
          graph ? kept.push_back(result) : s.free(result);
        }
        if (!trains && i == 0) free_all(s, before);
      }
      Blocks stacked;
      for (const char* at : {"update train.py:83", "update train.py:84"}) {
        stacked.push_back(s.alloc(8 * 24 * kMiB, s.stack({at, "iterate train.py:71"})));
      }
      for (int i = 0; i < 4; ++i) t.step();
      if (trains) free_all(s, kept);
      free_all(s, stacked);
    }
  });
}

TEST(Validation, WhatARolloutKeepsForTrainingIsNoCreep) {
  EXPECT_EQ(rollouts("collect train.py:55", true, false).finding("creep").id, "");
  EXPECT_EQ(rollouts("sample_rollout train.py:55", true, false).finding("creep").id, "");
  EXPECT_EQ(rollouts("validate train.py:55", true, false).finding("creep").id, "creep");
  const Finding f = rollouts("collect train.py:55", false, false).finding("creep");
  EXPECT_TRUE(f.summary.starts_with("forward passes without a backward pass keep what they"))
      << f.summary;
}

// A buffer of the last observations, filled by a loop without training at first, then one by one.
TEST(Validation, ABufferOfBoundedLengthIsNoCreep) {
  const auto run = [](bool bounded) {
    return Trace([=](Story& s, uint32_t) {
      Training t(s, {});
      const std::string main = "main train.py:70";
      const uint32_t observe = s.stack({"observe env.py:9", main});
      std::deque<uint64_t> buffer;
      for (int i = 0; i < 64; ++i) {
        const uint64_t hidden =
            s.alloc(6 * kMiB, s.stack({"forward model.py:1", "act train.py:60", main}));
        buffer.push_back(s.alloc(24 * kMiB, observe));
        s.free(hidden);
        if (bounded && buffer.size() > 16) {
          s.free(buffer.front());
          buffer.pop_front();
        }
        if (i >= 24 && i % 4 == 0) t.step();
      }
    });
  };
  EXPECT_EQ(run(true).finding("creep").id, "");
  EXPECT_EQ(run(false).finding("creep").id, "creep");
}

// What another function stacks is not known to come from the passes.
TEST(Validation, DataOfAnotherFunctionIsNotComputedFromThePasses) {
  const Finding f = rollouts("collect train.py:55", true, true).finding("eval_keeps_graph");
  EXPECT_EQ(f.id, "eval_keeps_graph");
  EXPECT_EQ(f.summary.find("computed from their results"), std::string::npos) << f.summary;
}

// Rollouts between the steps, of which memory runs out in one, are no validation.
TEST(Validation, WhatGeneratesIsNamedSo) {
  const auto run = [](const std::string& caller) {
    return Trace([&](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) {
        t.step();
        Blocks passed = t.forward(1, caller);
        if (i == 5) s.run_out(512 * kMiB, 10 * kMiB, s.forward(1, caller));
        free_all(s, passed);
      }
    });
  };
  const Trace rollouts = run("collect_rollouts ppo.py:33");
  EXPECT_EQ(rollouts.finding("capacity").summary.find("validation"), std::string::npos);
  EXPECT_NE(rollouts.finding("capacity").summary.find("out of memory in generation"),
            std::string::npos)
      << rollouts.finding("capacity").summary;
  EXPECT_NE(run(kValidate).finding("capacity").summary.find("out of memory in validation"),
            std::string::npos);
  // A teacher, which runs in every step.
  EXPECT_NE(run("train train.py:9").finding("capacity").summary.find("in the forward pass"),
            std::string::npos);
}

// A teacher in every step, of whose results only a detached copy is used: its graph is alive in the
// student's backward pass, which frees nothing of it.
TEST(Validation, ATeacherWhoseGraphNoBackwardPassUses) {
  const auto run = [](bool graph) {
    return Trace([graph](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 10; ++i) {
        Blocks taught = t.forward(1, "train train.py:20");
        if (!graph) free_all(s, taught);
        t.step();
        free_all(s, taught);
      }
    });
  };
  EXPECT_EQ(run(true).alarms(), (Ids{"eval_keeps_graph"}));
  EXPECT_EQ(headline_of(run(true).finding("eval_keeps_graph").frames), "train train.py:20");
  EXPECT_TRUE(run(false).finding("eval_keeps_graph").id.empty());
}

// Only a copy of a weight, which an operation makes before its result, is no part of the graph:
// what layers compute has half the size of a weight by chance.
TEST(Validation, ResultsOfHalfTheSizeOfAWeightAreInTheGraph) {
  const Trace taught([](Story& s, uint32_t) {
    Training t(s, {.weight = 16 * kMiB});
    for (int i = 0; i < 10; ++i) {
      Blocks graph = t.forward(1, "train train.py:20");
      t.step();
      free_all(s, graph);
    }
  });
  EXPECT_EQ(evidence_of(taught.finding("eval_keeps_graph"), "peak_bytes"), 6 * 20 * kMiB);
}

// A statistic of a pass without a backward pass: `stats.append(mean(log_softmax(model(x))))`. The
// graph keeps what was computed outside the model; the program keeps the last result itself, and,
// as it does without a graph, may keep that of the model.
Trace statistics(bool graph) {
  return Trace([graph](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 8; ++i) {
      t.step();
      Blocks kept = t.forward(1, "statistic train.py:20");
      const uint64_t logs = s.alloc(64 * kMiB, s.stack({"statistic train.py:20"}));
      s.alloc(512, s.stack({"statistic train.py:21"}));
      if (graph) continue;
      s.free(logs);
      kept.pop_back();
      free_all(s, kept);
    }
  });
}

TEST(Validation, ResultsOutsideTheModelAreKeptWithItsGraph) {
  const Trace kept = statistics(true);
  const Finding f = kept.finding("eval_keeps_graph");
  EXPECT_EQ(evidence_of(f, "results_peak_bytes"), 8 * 64 * kMiB);
  EXPECT_NE(f.summary.find(", and 512.0 MiB computed from their results"), std::string::npos);
  const auto peak = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  ASSERT_FALSE(f.advice.empty());
  EXPECT_LE(f.advice[0].saves_bytes, peak(kept) - peak(statistics(false)));
  EXPECT_NE(f.advice[0].detail.find(", and up to 1."), std::string::npos) << f.advice[0].detail;
}

// The exception of an error in the backward pass lets go of the graph.
TEST(Validation, AGraphOfAPassThatRanOutOfMemoryIsUsed) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    Blocks first = t.forward(1, "train train.py:20");
    Blocks second = t.forward();
    const uint64_t passed = s.alloc(8 * kMiB, 0);
    free_all(s, second);
    s.alloc(2 * kMiB, 0);
    s.run_out(64 * kMiB, 0, 0);
    s.free(passed);
    free_all(s, first);
  });
  EXPECT_TRUE(trace.finding("eval_keeps_graph").id.empty());
}

// A network of three operations: its graph keeps two of their results.
class Small {
 public:
  explicit Small(Story& s) : s_(s) {
    for (int i = 0; i < 2; ++i) s_.alloc(2 * kMiB, s_.setup());
  }

  Blocks forward(uint64_t scale, const std::string& caller, bool graph) {
    const uint64_t input = s_.alloc(scale * 4 * kMiB, s_.user(29));
    const uint64_t hidden = s_.alloc(scale * 16 * kMiB, s_.forward(1, caller));
    const uint64_t active = s_.alloc(scale * 16 * kMiB, s_.forward(2, caller));
    s_.free(hidden);
    const uint64_t output = s_.alloc(scale * 4 * kMiB, s_.forward(1, caller));
    if (graph) return {input, active, output};
    s_.free(active);
    s_.free(input);
    return {output};
  }

  void step() {
    Blocks kept = forward(1, "train train.py:10", true);
    const uint64_t passed = s_.alloc(16 * kMiB, 0);
    const Blocks gradients = {s_.alloc(2 * kMiB, 0), s_.alloc(2 * kMiB, 0)};
    free_all(s_, kept);
    s_.free(passed);
    s_.optimizer_mark();
    for (const uint64_t block : gradients) s_.free(block);
  }

 private:
  Story& s_;
};

Trace listed(bool graph) {
  return Trace([graph](Story& s, uint32_t) {
    Small net(s);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 5; ++i) net.step();
      Blocks outputs;
      for (int batch = 0; batch < 6; ++batch) {
        const Blocks kept = net.forward(2, kValidate, graph);
        outputs.insert(outputs.end(), kept.begin(), kept.end());
      }
      free_all(s, outputs);
    }
  });
}

TEST(Validation, OutputsOfASmallNetworkInAList) {
  EXPECT_EQ(listed(true).alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = listed(true).finding("eval_keeps_graph");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), kValidate);
  EXPECT_EQ(listed(false).alarms(), Ids{});
}

TEST(Validation, OutputsThatStayUntilTheEnd) {
  const auto run = [](bool graph) {
    return Trace([graph](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) t.step();
      for (int batch = 0; batch < 4; ++batch) {
        s.alloc(4 * kMiB, s.user(29));
        if (graph) {
          t.forward(1, kValidate);
          continue;
        }
        uint64_t before = s.alloc(8 * kMiB, s.forward(1, kValidate));
        for (int k = 1; k < 18; ++k) {
          const uint64_t next = s.alloc(8 * kMiB, s.forward(k % 3 + 1, kValidate));
          s.free(before);
          before = next;
        }
      }
    });
  };
  EXPECT_EQ(run(true).alarms(), (Ids{"eval_keeps_graph"}));
  EXPECT_EQ(run(false).alarms(), Ids{});
}

Trace failing(bool graph) {
  return Trace::on_card(2048 * kMiB, [graph](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
    s.alloc(64 * kMiB, s.user(29));
    Blocks alive;
    for (int k = 0; k < 24; ++k) {
      if (!graph && alive.size() == 2) {
        s.free(alive.front());
        alive.erase(alive.begin());
      }
      alive.push_back(s.alloc((graph ? 64 : 300) * kMiB, s.forward(k % 4 + 1, kValidate)));
    }
    s.run_out(300 * kMiB, 10 * kMiB, s.forward(1, kValidate));
  });
}

// More and smaller batches of it keep as much.
TEST(Validation, GraphsThatItKeepsDoNotShrinkWithItsBatch) {
  const Trace trace = Trace::on_card(uint64_t{64} << 30, [](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
    s.alloc(64 * kMiB, s.user(29));
    Blocks alive;
    for (int k = 0; k < 24; ++k) {
      alive.push_back(s.alloc(64 * kMiB, s.forward(k % 4 + 1, kValidate)));
    }
    for (const uint64_t block : alive) s.free(block);
    for (int i = 0; i < 3; ++i) t.step();
  });
  const Finding f = trace.finding("capacity", uint64_t{3} << 29);
  EXPECT_EQ(f.id, "capacity");
  EXPECT_FALSE(advises(f, "halve_batch"));
}

// A metric keeps each batch, and joins them when the passes are over.
TEST(Validation, WhatItKeptComesFirstInALaterError) {
  const Trace trace = Trace::on_card(2048 * kMiB, [](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
    for (int k = 0; k < 16; ++k) {
      Blocks layers;
      for (int i = 1; i <= 4; ++i) layers.push_back(s.alloc(8 * kMiB, s.forward(i, kValidate)));
      s.alloc(64 * kMiB, s.stack({"update metric.py:9", kValidate}));
      for (const uint64_t block : layers) s.free(block);
    }
    s.run_out(1024 * kMiB, 10 * kMiB, s.stack({"compute metric.py:20", "end train.py:40"}));
  });
  const Report report = trace.report();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].id, "creep");
  EXPECT_EQ(report.findings[0].severity, kError);
}

TEST(Validation, AnErrorInItSaysSo) {
  const Trace kept = failing(true);
  const Report report = kept.report();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].id, "eval_keeps_graph");
  EXPECT_EQ(report.findings[0].severity, kError);
  const Finding f = kept.finding("capacity");
  EXPECT_TRUE(f.summary.starts_with("out of memory in validation: 300.0 MiB requested"))
      << f.summary;
  EXPECT_FALSE(advises(f, "halve_batch"));
  EXPECT_FALSE(advises(f, "checkpoint"));

  const Trace large = failing(false);
  EXPECT_TRUE(large.finding("eval_keeps_graph").id.empty());
  const Finding too_large = large.finding("capacity");
  ASSERT_TRUE(advises(too_large, "halve_batch"));
  EXPECT_NE(too_large.advice[0].detail.find("halving the batch of the validation"),
            std::string::npos)
      << too_large.advice[0].detail;
}

// Rollouts of a policy whose layers a loop calls at one line, and then updates, which may fail.
Trace rollouts(bool graph, bool runs_out) {
  return Trace([=](Story& s, uint32_t) {
    const std::string line = "collect ppo.py:10";
    Training t(s, {});
    for (int iteration = 0; iteration < 4; ++iteration) {
      Blocks kept;
      for (int pass = 0; pass < 12; ++pass) {
        s.free(s.alloc(2 * kMiB, s.user(29)));
        for (int layer = 0; layer < 3; ++layer) {
          const uint64_t product = s.alloc(32 * kMiB, s.forward(1, line));
          const uint64_t active = s.alloc(32 * kMiB, s.forward(2, line));
          s.free(product);
          graph ? kept.push_back(active) : s.free(active);
        }
        kept.push_back(s.alloc(kMiB, s.forward(1, line)));
      }
      if (runs_out && iteration == 3) s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
      for (int i = 0; i < 4; ++i) t.step();
      free_all(s, kept);
    }
  });
}

TEST(Validation, RolloutsThatKeepTheirGraphs) {
  const Trace kept = rollouts(true, false);
  EXPECT_EQ(kept.alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = kept.finding("eval_keeps_graph");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "collect ppo.py:10");
  EXPECT_GT(f.advice[0].saves_bytes, 11 * 96 * kMiB);
  EXPECT_EQ(rollouts(false, false).alarms(), Ids{});
  // The graphs fill the memory, although a pass of the update fails.
  EXPECT_EQ(rollouts(true, true).report().findings[0].id, "eval_keeps_graph");
  EXPECT_FALSE(advises(rollouts(true, true).finding("capacity"), "halve_batch"));
}

// `outs.append(model(x))` under no_grad. `layers`: whose results of one line are kept instead.
Trace collecting(int batches, int layers, bool runs_out) {
  return Trace::on_card(4096 * kMiB, [=](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
    Blocks outputs;
    for (int batch = 0; batch < batches; ++batch) {
      uint64_t hidden = s.alloc(4 * kMiB, s.user(29));
      for (int layer = 0; layer < 6; ++layer) {
        const uint64_t next = s.alloc(16 * kMiB, s.forward(1, kValidate));
        if (layer < layers) outputs.push_back(s.alloc(64 * kMiB, s.forward(5, kValidate)));
        s.free(hidden);
        hidden = next;
      }
      s.free(hidden);
    }
    if (runs_out) s.run_out(64 * kMiB, 10 * kMiB, s.forward(5, kValidate));
    free_all(s, outputs);
    t.step();
  });
}

TEST(Validation, WhatTheModelReturnsIsKept) {
  const Finding f = collecting(20, 1, false).finding("creep");
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_EQ(headline_of(f.frames), kValidate);
  EXPECT_EQ(evidence_of(f, "held_bytes"), 20 * 64 * kMiB);
  // Keys and values, which a generation needs, are of every layer.
  EXPECT_TRUE(collecting(10, 6, false).finding("creep").id.empty());

  const Trace full = collecting(60, 1, true);
  ASSERT_FALSE(full.report().findings.empty());
  EXPECT_EQ(full.report().findings[0].id, "creep");
  EXPECT_EQ(full.report().findings[0].severity, kError);
  EXPECT_FALSE(advises(full.finding("capacity"), "halve_batch"));
  EXPECT_TRUE(full.finding("one_operation_peak").id.empty());
}

// `outs.append(encoder(x))` under no_grad: the result of the last layer, whose line also made the
// results of the layers before, and statistics. `inputs`: made for each batch; otherwise it is a
// part of a data set on the device. `keeps`: of the batches, the first ones.
Trace collecting_features(bool inputs, int keeps, bool runs_out) {
  return Trace::on_card(4096 * kMiB, [=](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
    Blocks outputs;
    const auto run_layers = [&](int layers) {
      uint64_t hidden = s.alloc(8 * kMiB, s.forward(1, kValidate));
      for (int layer = 0; layer < layers; ++layer) {
        const uint64_t next = s.alloc(40 * kMiB, s.forward(5, kValidate));
        s.free(s.alloc(64 * 1024, s.forward(5, kValidate)));
        s.free(hidden);
        hidden = next;
      }
      return hidden;
    };
    for (int batch = 0; batch < 60; ++batch) {
      const uint64_t input = inputs ? s.alloc(4 * kMiB, s.user(29)) : 0;
      const uint64_t result = run_layers(6);
      batch < keeps ? outputs.push_back(result) : s.free(result);
      if (inputs) s.free(input);
    }
    if (runs_out) {
      outputs.push_back(run_layers(3));
      s.run_out(40 * kMiB, 10 * kMiB, s.forward(5, kValidate));
    }
    free_all(s, outputs);
    t.step();
  });
}

TEST(Validation, ALineThatAlsoMakesWhatIsFreed) {
  for (const bool inputs : {true, false}) {
    const Finding f = collecting_features(inputs, 60, false).finding("creep");
    EXPECT_EQ(f.severity, kInfo);
    EXPECT_EQ(headline_of(f.frames), kValidate);
    EXPECT_EQ(evidence_of(f, "held_bytes"), 60 * 40 * kMiB);
    const Finding failed = collecting_features(inputs, 60, true).finding("creep");
    EXPECT_EQ(failed.severity, kError);
    // Of the pass that failed nothing is a result.
    EXPECT_EQ(evidence_of(failed, "held_bytes"), 60 * 40 * kMiB);
    // A few examples, such as those of a log.
    EXPECT_TRUE(collecting_features(inputs, 20, false).finding("creep").id.empty());
  }
}

enum class Kept { kGraphs, kCache, kOutputs };

// A server whose requests each leave something. `runs_out`: memory, in the end.
Trace serving(Kept kept, bool runs_out) {
  return Trace([=](Story& s, uint32_t) {
    const std::string line = "score rank.py:33";
    const auto stays = [&](int operation) {
      return kept == Kept::kGraphs || (kept == Kept::kCache && operation < 2);
    };
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int request = 0; request < 40; ++request) {
      const uint64_t prompt = s.alloc(kMiB, s.stack({"tokenize rank.py:30"}));
      for (int layer = 0; layer < 4; ++layer) {
        Blocks freed;
        for (int operation = 0; operation < 6; ++operation) {
          const uint64_t block = s.alloc(4 * kMiB, s.forward(operation, line));
          if (!stays(operation)) freed.push_back(block);
        }
        free_all(s, freed);
      }
      const uint64_t output = s.alloc(8 * kMiB, s.forward(9, line));
      if (kept == Kept::kCache) s.free(output);
      s.free(prompt);
    }
    if (runs_out) s.run_out(64 * kMiB, 10 * kMiB, s.forward(1, line));
  });
}

TEST(Validation, AServerWithoutNoGrad) {
  const Trace served = serving(Kept::kGraphs, false);
  EXPECT_EQ(served.alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = served.finding("eval_keeps_graph");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(headline_of(f.frames), "score rank.py:33");
  const Report report = served.report();
  const std::vector<CategoryShare>& shares = report.ranks[0].devices[0].categories;
  EXPECT_TRUE(std::none_of(shares.begin(), shares.end(), [](const CategoryShare& c) {
    return c.category == Category::kKvCache;
  }));
  // All but the outputs.
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes / kMiB), 40 * 96, 40 * 4);

  const Report failed = serving(Kept::kGraphs, true).report();
  ASSERT_FALSE(failed.findings.empty());
  EXPECT_EQ(failed.findings[0].id, "eval_keeps_graph");
  EXPECT_EQ(failed.findings[0].severity, kError);
}

// An encoder that allocates nothing between its passes, with a cache of the last results.
TEST(Validation, AServerWithoutNoGradWhosePassesFollowEachOther) {
  const auto encoder = [](bool keeps) {
    return Trace([keeps](Story& s, uint32_t) {
      const std::string line = "encode embed.py:70";
      std::vector<Blocks> cache;
      for (int i = 0; i < 6; ++i) s.alloc(4 * kMiB, s.setup());
      for (int request = 0; request < 40; ++request) {
        Blocks blocks = {s.alloc(4 * kMiB, s.forward(9, line))};
        for (int layer = 0; layer < 4; ++layer) {
          for (int operation = 0; operation < 6; ++operation) {
            blocks.push_back(s.alloc(4 * kMiB, s.forward(operation, line)));
          }
          if (!keeps) free_all(s, blocks);
        }
        cache.push_back(blocks);
        if (cache.size() <= 8) continue;
        free_all(s, cache.front());
        cache.erase(cache.begin());
      }
    });
  };
  EXPECT_EQ(encoder(true).alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = encoder(true).finding("eval_keeps_graph");
  EXPECT_EQ(headline_of(f.frames), "encode embed.py:70");
  EXPECT_EQ(encoder(false).alarms(), Ids{});
}

TEST(Validation, AServersCacheAndOutputsAreNoGraphs) {
  EXPECT_TRUE(serving(Kept::kCache, true).finding("eval_keeps_graph").id.empty());
  EXPECT_TRUE(serving(Kept::kOutputs, false).finding("eval_keeps_graph").id.empty());
  // Outputs are a leak.
  EXPECT_EQ(serving(Kept::kOutputs, false).alarms(), (Ids{"creep"}));
}

}  // namespace
}  // namespace tidemark
