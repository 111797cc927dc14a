// What grows, and at which line: beside temporaries, at lines that several functions share, in a
// history that began late, and up to an error.
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/names/stack_lines.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

const std::string kLibrary = "/usr/lib/python3/site-packages/";

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

// A profile of one forward pass, whose graph keeps two results of each layer.
TEST(LeakLines, LayersOfASinglePassAreNoRequests) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    s.alloc(kMiB, s.user(5));
    s.alloc(2 * kMiB, s.forward(0));
    for (int layer = 0; layer < 32; ++layer) {
      for (const int line : {1, 1, 2}) s.alloc(8 * kMiB, s.forward(line));
      for (int k = 0; k < 4; ++k) s.free(s.alloc(4 * kMiB, s.forward(3)));
    }
  });
  EXPECT_TRUE(trace.finding("creep").id.empty());
}

// The line that leaks also makes a temporary, which lives until the next one replaces it.
TEST(LeakLines, TemporariesOfTheSameLineAreNotPartOfIt) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    uint64_t temporary = 0;
    for (int i = 0; i < 20; ++i) {
      t.step();
      const uint64_t before = temporary;
      temporary = s.alloc(40 * kMiB, s.user(77));
      if (before != 0) s.free(before);
      s.alloc(4 * kMiB, s.user(77));
    }
    t.step();
  });
  const Finding f = trace.finding("creep");
  EXPECT_EQ(headline_of(f.frames), "work train.py:77");
  EXPECT_EQ(evidence_of(f, "held_bytes"), 20 * 4 * kMiB);
  EXPECT_EQ(evidence_of(f, "held_blocks"), 20U);
}

// A line that leaks from a step on; `newest`: before that it keeps its newest block only.
TEST(LeakLines, TheStepInWhichTheGrowthBegan) {
  const auto summary = [](int from, bool newest) {
    const Trace trace([=](Story& s, uint32_t) {
      Training t(s, {});
      uint64_t last = 0;
      for (int i = 0; i < 40; ++i) {
        if (i >= from || newest) {
          if (i < from && last != 0) s.free(last);
          last = s.alloc(4 * kMiB, s.user(77));
        }
        t.step();
      }
    });
    return trace.finding("creep").summary;
  };
  EXPECT_NE(summary(0, false).find("per step, from the first one on"), std::string::npos)
      << summary(0, false);
  EXPECT_NE(summary(12, false).find("from step 12 on"), std::string::npos) << summary(12, false);
  EXPECT_NE(summary(12, true).find("from about step 12 on"), std::string::npos)
      << summary(12, true);
}

// torch.cat onto a history: the newest block holds everything, and at the peak the old one is
// there, too.
TEST(LeakLines, ABlockThatIsReplacedByLargerOnes) {
  const auto run = [](bool collects) {
    return Trace([collects](Story& s, uint32_t) {
      Training t(s, {});
      uint64_t history = 0;
      for (uint64_t i = 1; i <= 30; ++i) {
        t.step();
        if (!collects) continue;
        const uint64_t longer = s.alloc(i * 8 * kMiB, s.user(77));
        if (history != 0) s.free(history);
        history = longer;
      }
    });
  };
  const Trace collecting = run(true);
  const Finding f = collecting.finding("creep");
  EXPECT_EQ(headline_of(f.frames), "work train.py:77");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("torch.cat"), std::string::npos) << f.advice[0].detail;
  const auto peak_of = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  EXPECT_EQ(f.advice[0].saves_bytes, peak_of(collecting) - peak_of(run(false)));
}

// A validation keeps the results of its batches, of every epoch: the newest are many.
TEST(LeakLines, WhatIsMovedToTheHostSavesAlsoTheNewest) {
  constexpr uint64_t kEpochs = 6;
  constexpr uint64_t kBatches = 5;
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (int i = 0; i < 4; ++i) t.step();
      for (uint64_t i = 0; i < kBatches; ++i) s.alloc(20 * kMiB, s.user(77));
    }
    for (int i = 0; i < 4; ++i) t.step();
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].saves_bytes, (kEpochs - 1) * kBatches * 20 * kMiB);
  EXPECT_NE(f.advice[0].detail.find("600.0 MiB if all of it is moved to host memory"),
            std::string::npos)
      << f.advice[0].detail;
}

std::string advice_for(const std::vector<std::vector<std::string>>& leaks) {
  const Trace trace([&](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 20; ++i) {
      t.step();
      for (const std::vector<std::string>& frames : leaks) s.alloc(4 * kMiB, s.stack(frames));
    }
  });
  EXPECT_EQ(trace.alarms(), (std::vector<std::string>{"creep"}));
  const Finding f = trace.finding("creep");
  return f.advice.empty() ? "" : f.advice[0].detail;
}

// Functions of torch.nn.functional that the program calls make no graph, however many they are.
TEST(LeakLines, FunctionsOfOneLineAreToldApart) {
  const std::string called =
      advice_for({{"pad " + kLibrary + "torch/nn/functional.py:5", "train train.py:57"},
                  {"normalize " + kLibrary + "torch/nn/functional.py:6", "train train.py:57"},
                  {"gelu " + kLibrary + "torch/nn/functional.py:7", "train train.py:57"}});
  EXPECT_NE(called.find("train.py:57 (pad, normalize and gelu)"), std::string::npos) << called;
  const std::string calling =
      advice_for({{"keep log.py:12", "scores train.py:20", "train train.py:57"},
                  {"keep log.py:12", "ranks train.py:25", "train train.py:57"}});
  EXPECT_NE(calling.find("log.py:12 (called by scores and ranks)"), std::string::npos) << calling;
  const std::string alone = advice_for({{"keep log.py:12", "train train.py:57"}});
  EXPECT_NE(alone.find("at log.py:12, or"), std::string::npos) << alone;
}

// Only the last steps of a long growth are in the history, and the first of them only in part.
TEST(LeakLines, GrowthThatIsMostlyOlderThanTheHistory) {
  const auto run = [](bool leaks) {
    return Trace([leaks](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 8; ++i) {
        t.step();
        if (i == 0) s.free_older(64 * kMiB);
        const uint64_t logged = s.alloc(3 * kMiB, s.user(77));
        if (!leaks) s.free(logged);
      }
      for (int i = 0; i < 200; ++i) s.older_block(3 * kMiB);
    });
  };
  const Finding f = run(true).finding("creep");
  EXPECT_EQ(f.severity, kWarning);
  EXPECT_NE(f.summary.find("from before the recording on"), std::string::npos) << f.summary;
  EXPECT_EQ(headline_of(f.frames), "work train.py:77");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_GT(f.advice[0].saves_bytes, 500 * kMiB);
  EXPECT_TRUE(run(false).finding("creep").id.empty());
}

// A smaller batch would only delay the error.
TEST(LeakLines, ALeakThatEndsInAnErrorComesFirst) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 20; ++i) {
      t.step();
      s.alloc(8 * kMiB, s.user(77));
    }
    t.forward(2);
    s.run_out(256 * kMiB, 10 * kMiB, s.forward(1));
  });
  const Report report = trace.report();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].id, "creep");
  EXPECT_EQ(report.findings[0].severity, kError);
  EXPECT_EQ(trace.finding("capacity").severity, kError);
  EXPECT_FALSE(advises(trace.finding("capacity"), "halve_batch"));
}

// Three steps are too few to measure growth in, but each has left its graph.
TEST(LeakLines, GraphsThatFillTheMemoryAfterAFewSteps) {
  const auto run = [](bool keeps) {
    return Trace::on_card(1024 * kMiB, [keeps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 3; ++i) t.step(1, keeps);
      t.forward();
      s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
    });
  };
  const Trace kept = run(true);
  const Report report = kept.report();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].id, "retained_graph");
  EXPECT_EQ(evidence_of(report.findings[0], "steps"), 3U);
  EXPECT_EQ(evidence_of(report.findings[0], "bytes_per_step"), 6 * 20 * kMiB);
  EXPECT_FALSE(advises(kept.finding("capacity"), "halve_batch"));
  EXPECT_TRUE(run(false).finding("retained_graph").id.empty());
  EXPECT_TRUE(advises(run(false).finding("capacity"), "halve_batch"));
}

}  // namespace
// Layers are unfrozen one by one, and the optimizer makes the states of each; or it is replaced in
// every step, and the states of the old ones stay.
TEST(LeakLines, TheFirstStatesOfALayerAreNoLeak) {
  const auto run = [](int states_per_step) {
    return Trace([states_per_step](Story& s, uint32_t) {
      for (int layer = 0; layer < 40; ++layer) s.alloc(8 * kMiB, s.setup());
      Training t(s, {});
      for (int step = 0; step < 20; ++step) {
        t.step();
        for (int i = 0; i < states_per_step; ++i) s.alloc(8 * kMiB, s.optimizer("_init_group"));
      }
    });
  };
  EXPECT_EQ(run(2).finding("creep").id, "");
  EXPECT_NE(run(12).finding("creep").advice.at(0).detail.find("made anew"), std::string::npos);
}

// Cross-validation keeps each model with its optimizer. Or heads are added to a model that is
// trained all along, with their states in the same optimizer.
TEST(LeakLines, ModelsThatAreKeptWithTheirOptimizers) {
  const Trace folds([](Story& s, uint32_t) {
    for (int fold = 0; fold < 8; ++fold) {
      Training t(s, {});
      for (int i = 0; i < 5; ++i) t.step();
    }
  });
  EXPECT_EQ(folds.alarms(), (std::vector<std::string>{"creep"}));
  EXPECT_EQ(folds.finding("creep").advice.at(0).detail.find("models and their optimizers"), 0U);
  const Trace heads([](Story& s, uint32_t) {
    Training t(s, {});
    for (int head = 0; head < 8; ++head) {
      for (int i = 0; i < 6; ++i) s.alloc(3 * kMiB, s.setup());
      for (int i = 0; i < 12; ++i) s.alloc(3 * kMiB, s.optimizer("_init_group"));
      for (int i = 0; i < 5; ++i) t.step();
    }
  });
  EXPECT_TRUE(heads.alarms().empty());
}

// What a step does with the graph of the step before.
enum class Past {
  kFreed,      // by its backward pass
  kRetained,   // until the next forward pass is done
  kUntilStep,  // until the next backward pass is done
  kDelayed,    // freed by its backward pass, which is that of the next step
};

// `steps`: otherwise it is a micro-batch, and another one follows before the optimizer's step.
void pass_with(Past past_is, bool steps, Story& s, Training& t, std::vector<uint64_t>& past) {
  std::vector<uint64_t> graph = t.forward();
  const auto drop = [&] {
    for (const uint64_t block : past) s.free(block);
    past.clear();
  };
  if (past_is == Past::kRetained) drop();
  std::vector<uint64_t>& used = past_is == Past::kFreed ? graph : past;
  const bool frees = past_is != Past::kUntilStep;
  std::vector<uint64_t> gradients;
  for (int layer = 0; layer < t.shape().layers; ++layer) {
    gradients.push_back(s.alloc(t.shape().weight, 0));
    for (int k = 0; k < 3 && frees && !used.empty(); ++k) {
      s.free(used.back());
      used.pop_back();
    }
    s.free(s.alloc(kMiB, 0));
  }
  drop();
  if (steps) s.optimizer_mark();
  if (steps) s.free(s.alloc(t.shape().weight, s.optimizer("_multi_tensor_adam")));
  for (const uint64_t block : gradients) s.free(block);
  past = graph;
}

Trace run_with(Past past_is, bool runs_out = false, int micro_batches = 1) {
  return Trace::on_card(1024 * kMiB, [=](Story& s, uint32_t) {
    Training t(s, {});
    std::vector<uint64_t> past;
    if (past_is == Past::kDelayed) past = t.forward();
    for (int i = 1; i <= (runs_out ? 1 : 10 * micro_batches); ++i) {
      pass_with(past_is, i % micro_batches == 0, s, t, past);
    }
    if (!runs_out) return;
    t.forward();
    s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
  });
}

TEST(LeakLines, TheGraphOfOnePastStep) {
  for (const Past past : {Past::kRetained, Past::kUntilStep}) {
    const Trace trace = run_with(past);
    EXPECT_EQ(trace.alarms(), (std::vector<std::string>{"retained_graph"}));
    const Finding f = trace.finding("retained_graph");
    EXPECT_EQ(evidence_of(f, "bytes_per_pass"), 6 * 20 * kMiB);
    EXPECT_GT(f.advice.at(0).saves_bytes, 100 * kMiB);
  }
  EXPECT_EQ(run_with(Past::kUntilStep, false, 3).finding("retained_graph").severity, kWarning);
  EXPECT_EQ(run_with(Past::kFreed).finding("retained_graph").id, "");
  EXPECT_EQ(run_with(Past::kFreed, false, 3).finding("retained_graph").id, "");
  EXPECT_EQ(run_with(Past::kDelayed).finding("retained_graph").severity, kInfo);
  const Trace failed = run_with(Past::kRetained, true);
  EXPECT_EQ(failed.report().findings.at(0).id, "retained_graph");
  EXPECT_EQ(failed.finding("retained_graph").severity, kError);
  EXPECT_FALSE(advises(failed.finding("capacity"), "halve_batch"));
  EXPECT_EQ(run_with(Past::kFreed, true).finding("retained_graph").id, "");
}

// The state of a recurrent model is not detached: its graph, one result and one input of each step,
// grows, and every backward pass goes through all of it. Or the program keeps them in a list.
TEST(LeakLines, AStateThatIsNotDetached) {
  const auto run = [](bool goes_back) {
    return Trace([goes_back](Story& s, uint32_t) {
      Training t(s, {});
      for (int step = 0; step < 20; ++step) {
        s.alloc(12 * kMiB, s.user(8));
        s.alloc(8 * kMiB, s.forward(1));
        for (int i = 0; i <= (goes_back ? step : 4); ++i) s.free(s.alloc(8 * kMiB, 0));
        s.optimizer_mark();
        s.free(s.alloc(2 * kMiB, s.optimizer("_multi_tensor_adam")));
      }
    });
  };
  const Trace trace = run(true);
  EXPECT_EQ(trace.alarms(), (std::vector<std::string>{"retained_graph"}));
  const Finding f = trace.finding("retained_graph");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "train train.py:10");
  EXPECT_TRUE(advises(f, "detach") || advises(f, "release_results"));
  EXPECT_EQ(run(false).alarms(), (std::vector<std::string>{"creep"}));
}

// Results of ten steps are kept in a list that is cleared at one place, or freed step by step.
TEST(LeakLines, AListThatIsClearedNowAndThen) {
  const auto run = [](size_t most) {
    return Trace([most](Story& s, uint32_t) {
      Training t(s, {});
      std::vector<uint64_t> list;
      for (int step = 0; step < 45; ++step) {
        t.step();
        list.push_back(s.alloc(12 * kMiB, s.user(77)));
        if (list.size() < most) continue;
        for (const uint64_t block : list) s.free(block);
        list.clear();
      }
    });
  };
  const Finding f = run(10).finding("creep");
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_EQ(headline_of(f.frames), "work train.py:77");
  EXPECT_EQ(f.advice.at(0).saves_bytes, 8 * 12 * kMiB);
  EXPECT_TRUE(run(1).finding("creep").id.empty());
  EXPECT_TRUE(run(2).finding("creep").id.empty());
}

// A server that takes requests in and has done some of them in each second.
template <class Arrive, class Finish>
Trace serving(Arrive arrive, Finish finish) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  return Trace([=](Story& s, uint32_t) {
    std::vector<std::pair<int, uint64_t>> alive;  // second, block
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int second = 0; second < 200; ++second) {
      for (int i = 0; i < 4; ++i) s.free(s.alloc(8 * kMiB, s.forward(i, "serve serve.py:20")));
      for (int i = 0; i < arrive(second); ++i) {
        alive.emplace_back(second, s.alloc(4 * kMiB, s.stack({"append kv.py:33"})));
      }
      const size_t done = finish(second, alive);
      for (size_t i = 0; i < done; ++i) s.free(alive[i].second);
      alive.erase(alive.begin(), alive.begin() + static_cast<std::ptrdiff_t>(done));
      s.wait(kSecondNs);
    }
  });
}

using Ids = std::vector<std::string>;
using AliveBlocks = std::vector<std::pair<int, uint64_t>>;

// Each is done after as many seconds as the others, or later and later.
TEST(LeakLines, MoreRequestsAreNoLeak) {
  const auto arrive = [](int second) { return 1 + second / 20; };
  const auto done_in_time = [](int second, const AliveBlocks& alive) {
    return static_cast<size_t>(std::count_if(
        alive.begin(), alive.end(), [&](const auto& block) { return block.first + 12 <= second; }));
  };
  const auto done_slowly = [](int second, const AliveBlocks& alive) {
    return std::min(alive.size(), static_cast<size_t>(1 + second / 40));
  };
  EXPECT_EQ(serving(arrive, done_in_time).alarms(), Ids{});
  EXPECT_EQ(serving(arrive, done_slowly).alarms(), (Ids{"creep"}));
}

// The oldest are done first, so that none is older than those that were freed last.
TEST(LeakLines, ABacklogThatBeginsLate) {
  const auto arrive = [](int) { return 2; };
  const auto backlog = [](int until) {
    return [until](int second, const AliveBlocks& alive) {
      const bool slow = second >= 100 && second < until;
      return std::min(alive.size(), static_cast<size_t>(slow ? 1 : 4));
    };
  };
  const Trace grows = serving(arrive, backlog(200));
  EXPECT_EQ(grows.alarms(), (Ids{"creep"}));
  EXPECT_NEAR(static_cast<double>(grows.finding("creep").advice.at(0).saves_bytes), 400.0 * kMiB,
              20.0 * kMiB);
  EXPECT_EQ(serving(arrive, backlog(140)).alarms(), Ids{});
}

// One request in four is never freed. Those from before the history would not have been there when
// it began.
TEST(LeakLines, OlderBlocksOfALineThatLeaksAreSavedFromTheBeginning) {
  const Trace trace([](Story& s, uint32_t) {
    const uint32_t line = s.stack({"append kv.py:33"});
    std::vector<uint64_t> alive;
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int second = 0; second < 200; ++second) {
      for (int i = 0; i < 4; ++i) s.free(s.alloc(8 * kMiB, s.forward(i, "serve serve.py:20")));
      const uint64_t request = s.alloc(4 * kMiB, line);
      if (second % 4 != 0) alive.push_back(request);
      if (alive.size() > 9) {
        s.free(alive.front());
        alive.erase(alive.begin());
      }
    }
    for (int i = 0; i < 100; ++i) s.older_block(4 * kMiB, line);
  });
  const Finding f = trace.finding("creep");
  EXPECT_EQ(headline_of(f.frames), "append kv.py:33");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), 4.0 * 150 * kMiB, 4.0 * 6 * kMiB);
}

// `keeps`: of which seconds a request is never freed.
template <class Keeps>
Trace forgetting(Keeps keeps) {
  return Trace([=](Story& s, uint32_t) {
    const uint32_t line = s.stack({"append kv.py:33"});
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int second = 0; second < 320; ++second) {
      for (int i = 0; i < 4; ++i) s.free(s.alloc(8 * kMiB, s.forward(i, "serve serve.py:20")));
      const uint64_t request = s.alloc(4 * kMiB, line);
      if (!keeps(second)) s.free(request);
    }
  });
}

// By chance, nothing is left for a while. If that is the end, a cache may have been filled.
TEST(LeakLines, ALeakThatPauses) {
  const auto but_for = [](int first, int last) {
    return forgetting(
        [=](int second) { return second % 8 == 0 && (second < first || second >= last); });
  };
  EXPECT_EQ(but_for(0, 0).alarms(), (Ids{"creep"}));
  EXPECT_EQ(but_for(195, 245).alarms(), (Ids{"creep"}));
  EXPECT_EQ(but_for(115, 245).alarms(), Ids{}) << "too long a pause";
  EXPECT_EQ(but_for(235, 320).alarms(), Ids{}) << "over";
}

// A block that is a little larger than the one before is no growth to speak of.
TEST(LeakLines, LinesThatHardlyGrowAreNotNamed) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 30; ++i) {
      t.step();
      s.alloc(4 * kMiB, s.user(77));
      if (i == 20) s.alloc(kMiB / 2, s.node("ToCopyBackward0"));
    }
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("train.py:77"), std::string::npos) << f.advice[0].detail;
  EXPECT_EQ(f.advice[0].detail.find("ToCopyBackward0"), std::string::npos) << f.advice[0].detail;
}

TEST(LeakLines, TheStepFromWhichOnGraphsStay) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 40; ++i) t.step(1, i >= 25);
  });
  const Finding f = trace.finding("retained_graph");
  EXPECT_NE(f.summary.find("with every step, from about step 25 on"), std::string::npos)
      << f.summary;
  EXPECT_EQ(evidence_of(f, "since_step"), 25U);
}

}  // namespace tidemark
