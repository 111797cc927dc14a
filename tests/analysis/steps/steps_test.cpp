// Steps from repetition and from marks.
#include <gtest/gtest.h>

#include <random>

#include "analysis/history/history_replay.h"
#include "tests/support/step_story.h"
#include "tests/support/story.h"
#include "tests/support/toy_allocator.h"

namespace tidemark {
namespace {

TEST(Steps, RhythmAndMarksAgree) {
  for (const int count : {5, 12, 40}) {
    const Trace trace([count](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < count; ++i) t.step();
    });
    const Steps marked = found_in(trace.model().processes[0], framework(trace));
    EXPECT_EQ(marked.source, StepSource::kMarks);
    EXPECT_EQ(marked.count() + 1, static_cast<uint32_t>(count) + 1);
    ProcessModel silent;  // without marks
    const Steps heard = found_in(silent, framework(trace));
    EXPECT_EQ(heard.source, StepSource::kRhythm);
    EXPECT_EQ(heard.count(), static_cast<uint32_t>(count));
    EXPECT_GT(heard.confidence, count < 10 ? 0.6 : 0.8);  // the first step differs from the others
  }
}

// Without stacks, what recurs within an iteration looks as regular as the iteration.
TEST(Steps, PartsOfAnIterationAreNoClearRhythm) {
  const auto heard = [](int passes, int layers, bool together) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int i = 0; i < layers; ++i) s.alloc(8 * kMiB, 0);
      for (int step = 0; step < 6; ++step) {
        std::vector<uint64_t> graph;
        std::vector<uint64_t> gradients;
        for (int pass = 0; pass < passes; ++pass) {
          const uint64_t input = s.alloc(4 * kMiB, 0);
          for (int i = 0; i < layers; ++i) graph.push_back(s.alloc(24 * kMiB, 0));
          for (; !graph.empty() && (!together || pass + 1 == passes); graph.pop_back()) {
            const uint64_t passed = s.alloc(24 * kMiB, 0);
            if (pass == 0 || together) gradients.push_back(s.alloc(8 * kMiB, 0));
            s.free(passed);
            s.free(graph.back());
          }
          s.free(input);
        }
        for (const uint64_t g : gradients) s.free(g);
      }
    });
    return found_in(ProcessModel{}, framework(trace));
  };
  EXPECT_EQ(heard(1, 8, false).count(), 6U);
  for (const bool together : {false, true}) {
    const Steps steps = heard(4, 8, together);
    EXPECT_TRUE(steps.count() == 6 || steps.confidence < 0.5) << steps.count();
  }
  const Trace tokens([](Story& s, uint32_t) {  // a cache grows by a layer at a time
    for (int i = 0; i < 100; ++i) {
      const uint64_t work = s.alloc(3 * kMiB, 0);
      s.alloc(2 * kMiB, 0);
      s.free(work);
    }
  });
  EXPECT_LT(found_in(ProcessModel{}, framework(tokens)).confidence, 0.5);
}

// Without stacks, the layers of one step are not taken for steps.
TEST(Steps, OneStepHasNoRhythm) {
  const Trace trace([](Story& s, uint32_t) {
    const uint64_t input = s.alloc(8 * kMiB, 0);
    std::vector<uint64_t> graph;
    std::vector<uint64_t> gradients;
    for (int i = 0; i < 12; ++i) graph.push_back(s.alloc(32 * kMiB, 0));
    for (; !graph.empty(); graph.pop_back()) {
      gradients.push_back(s.alloc(16 * kMiB, 0));
      const uint64_t passed = s.alloc(32 * kMiB, 0);
      s.free(graph.back());
      s.free(passed);
    }
    for (int i = 0; i < 12; ++i) s.free(s.alloc(16 * kMiB, 0));
    for (const uint64_t g : gradients) s.free(g);
    s.free(input);
  });
  EXPECT_EQ(found_in(ProcessModel{}, framework(trace)).source, StepSource::kNone);
}

TEST(Steps, RhythmHoldsWithValidationAndVaryingShapes) {
  const Trace trace([](Story& s, uint32_t) {
    std::mt19937 rng(5);
    Training t(s, {});
    for (int i = 0; i < 30; ++i) {
      t.step(1 + rng() % 5);
      if (i % 10 == 9) {
        for (const uint64_t a : t.forward(1, "validate train.py:30")) s.free(a);
      }
    }
  });
  const Steps heard = found_in({}, framework(trace));
  EXPECT_EQ(heard.source, StepSource::kRhythm);
  EXPECT_NEAR(heard.count(), 30, 1);
}

TEST(Steps, NoRhythmWhereThereIsNone) {
  const Trace trace([](Story& s, uint32_t) {
    std::mt19937 rng(6);
    std::vector<uint64_t> live;
    for (int i = 0; i < 3000; ++i) {
      live.push_back(s.alloc((1 + rng() % 4000) * 512, s.user(1 + static_cast<int>(rng() % 200))));
      while (live.size() > 40) {
        std::swap(live[rng() % live.size()], live.back());
        s.free(live.back());
        live.pop_back();
      }
    }
  });
  EXPECT_EQ(found_in({}, framework(trace)).source, StepSource::kNone);
}

// A random number of allocations whose sizes and lines never recur: only the surrounding ones show
// where a step ends.
void wander(Story& s, std::mt19937& rng, int& line) {
  std::vector<uint64_t> held;
  for (uint64_t i = 0, count = 20 + rng() % 60; i < count; ++i) {
    held.push_back(s.alloc((1 + rng() % 4000) * 512, s.user(++line)));
  }
  for (const uint64_t a : held) s.free(a);
}

TEST(Steps, RangesThatTheProgramNumberedAreSteps) {
  for (const char* name : {"Step ", "iter_", "ProfilerStep#", "train_step:"}) {
    const Trace trace([&](Story& s, uint32_t) {
      std::mt19937 rng(8);
      int line = 0;
      for (int i = 0; i < 9; ++i) {
        s.range(name + std::to_string(i), MarkPhase::kBegin);
        s.range("inner " + std::to_string(i % 2), MarkPhase::kBegin);
        wander(s, rng, line);
        s.range("inner " + std::to_string(i % 2), MarkPhase::kEnd);
        s.range(name + std::to_string(i), MarkPhase::kEnd);
      }
      wander(s, rng, line);
    });
    const Steps steps = found_in(trace.model().processes[0], framework(trace));
    EXPECT_EQ(steps.source, StepSource::kMarks) << name;
    EXPECT_EQ(steps.count(), 9U) << name;
  }
}

TEST(Steps, CollectivesMarkStepsWhereAllocationsDoNot) {
  const Trace trace([](Story& s, uint32_t) {
    std::mt19937 rng(9);
    int line = 0;
    for (int i = 0; i < 12; ++i) {
      wander(s, rng, line);
      for (const uint64_t bucket : {25 * kMiB, 25 * kMiB, 13 * kMiB}) {
        s.collective("AllReduce", bucket);
      }
    }
    wander(s, rng, line);
  });
  const Steps steps = found_in(trace.model().processes[0], framework(trace));
  EXPECT_EQ(steps.source, StepSource::kCollectives);
  EXPECT_EQ(steps.count(), 12U);
  for (const StepLevels& levels : steps.levels) EXPECT_EQ(levels.low_bytes, 0U);
}

TEST(Steps, TheHistoryMayEndWithTheLastMarkedStep) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3; ++i) {
      s.free(s.alloc(kMiB, s.user(5)));
      s.optimizer_mark();
    }
  });
  const Steps steps = found_in(trace.model().processes[0], framework(trace));
  EXPECT_EQ(steps.source, StepSource::kMarks);
  EXPECT_EQ(steps.count(), 3U);
}

// A run that dies in one of its first steps.
TEST(Steps, FewMarksAreStepsIfTheSameModelFailsAfterThem) {
  const auto died = [](int marks, int failing_line) {
    return steps_told([&](Story& s) {
      Looping program(s);
      for (int i = 0; i < marks; ++i) {
        const auto gradients = program.backward(program.forward(14), true);
        program.optimizer(18);
        s.optimizer_mark();
        for (const uint64_t g : gradients) s.free(g);
      }
      if (failing_line != 0) program.forward(failing_line);
      s.run_out(kMiB, 0, s.user(5));
    });
  };
  EXPECT_EQ(died(1, 14).count(), 1U);
  EXPECT_EQ(died(2, 14).count(), 2U);
  EXPECT_EQ(died(2, 14).source, StepSource::kMarks);
  EXPECT_EQ(died(1, 24).count(), 0U) << "of another model, with an optimizer of its own";
  EXPECT_EQ(died(1, 0).count(), 0U) << "in the step of a second optimizer";
}

TEST(Steps, TwoOptimizersMakeOneStep) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 12; ++i) {
      t.step();
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_sgd")));
      s.optimizer_mark();
    }
  });
  EXPECT_EQ(found_in(trace.model().processes[0], framework(trace)).count(), 12U);
}

// Two models that train each other with optimizers of one class, the first one several times.
TEST(Steps, MarksOfTwoModelsInOneRoundAreOneStep) {
  const auto trained = [](int rounds, const std::vector<int>& lines) {
    return steps_told([&](Story& s) {
      Looping program(s);
      for (int i = 0; i < rounds; ++i) {
        const uint64_t input = s.alloc(2 * kMiB, s.stack({"train train.py:12", kMainOfTrain}));
        for (const int line : lines) {
          const auto gradients = program.backward(program.forward(line), true);
          program.optimizer(line + 4);
          s.optimizer_mark();
          for (const uint64_t g : gradients) s.free(g);
        }
        s.free(input);
      }
    });
  };
  const Steps both = trained(8, {14, 24});
  EXPECT_EQ(both.source, StepSource::kMarks);
  EXPECT_EQ(both.count(), 8U);
  EXPECT_EQ(both.confidence, 1);
  EXPECT_EQ(trained(8, {14, 14, 14, 24}).count(), 8U);
  const Steps inner = trained(8, {14, 14, 14, 14, 14, 24});  // the first has a loop of its own
  EXPECT_EQ(inner.count(), 8U);
  EXPECT_EQ(inner.confidence, 1);
  EXPECT_EQ(trained(2, {14, 24}).count(), 0U) << "too few to tell, but not four";
  EXPECT_EQ(trained(8, {14}).count(), 8U);
}

// The critic has a batch for each of its two passes; the generator uses the last one. A late
// history begins in a backward pass of the generator.
Steps of_critics(int rounds, bool marks, bool late) {
  return steps_told([&](Story& s) {
    Looping program(s);
    std::vector<uint64_t> input;
    const auto end_pass = [&](int line) {
      program.optimizer(line);
      if (marks) s.optimizer_mark();
    };
    const auto pass = [&](int line) {
      const auto gradients = program.backward(program.forward(line), true);
      end_pass(line + 4);
      for (const uint64_t g : gradients) s.free(g);
    };
    if (late) {
      s.free_older(8 * kMiB);
      end_pass(28);
      s.free_older(2 * kMiB);
    }
    for (int i = 0; i < rounds; ++i) {
      for (int critic = 0; critic < 2; ++critic) {
        input.push_back(s.alloc(2 * kMiB, s.stack({"train train.py:12", kMainOfTrain})));
        if (input.size() > 1) s.free(input[input.size() - 2]);
        pass(14);
      }
      pass(24);
    }
  });
}

TEST(Steps, RoundsAreTheSameWithMarksAndWithout) {
  for (const bool marks : {true, false}) {
    for (const bool late : {true, false}) {
      const Steps steps = of_critics(20, marks, late);
      EXPECT_EQ(steps.source, marks ? StepSource::kMarks : StepSource::kLoop);
      EXPECT_NEAR(steps.count(), 20, late ? 1 : 0) << marks << late;
    }
  }
}

// An optimizer step that ends after an error followed it; the end of the one that failed did not.
TEST(Steps, AStepThatIsDoneAgainFollowsTheError) {
  const auto after_error = [](bool in_optimizer, bool goes_on) {
    const Trace trace([=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 8; ++i) t.step();
      s.run_out(64 * kMiB, 0, in_optimizer ? s.optimizer("_multi_tensor_adam") : s.forward(3));
      if (in_optimizer) s.optimizer_mark();
      for (int i = 0; goes_on && i < 13; ++i) t.step();
    });
    const AllocationHistory& model = framework(trace);
    return found_in(trace.model().processes[0], model).after_event(model.failures.back().event);
  };
  EXPECT_EQ(after_error(false, true), 13U);
  EXPECT_EQ(after_error(false, false), 0U);
  EXPECT_EQ(after_error(true, false), 0U);
}

// A batch for each pass, and a pass of the other model after every fifth.
TEST(Steps, PassesWithTheirOwnBatchesAreNoRound) {
  const Steps steps = steps_told([](Story& s) {
    Looping program(s);
    for (int i = 0; i < 40; ++i) {
      const uint64_t input = s.alloc(2 * kMiB, s.stack({"train train.py:12", kMainOfTrain}));
      for (const int line : i % 5 == 4 ? std::vector<int>{14, 24} : std::vector<int>{14}) {
        const auto gradients = program.backward(program.forward(line), true);
        program.optimizer(line + 4);
        s.optimizer_mark();
        for (const uint64_t g : gradients) s.free(g);
      }
      s.free(input);
    }
  });
  EXPECT_GE(steps.count(), 40U);
}

// Two kinds of batches in turn, each with a step of its own.
TEST(Steps, MarksOfRoundsThatDifferAreSteps) {
  const Steps steps = steps_told([](Story& s) {
    Looping program(s);
    for (int i = 0; i < 8; ++i) {
      s.free(s.alloc(2 * kMiB, s.stack({"train train.py:12", kMainOfTrain})));
      const auto gradients = program.backward(program.forward(i % 2 == 0 ? 14 : 16), true);
      program.optimizer(18);
      s.optimizer_mark();
      for (const uint64_t g : gradients) s.free(g);
    }
  });
  EXPECT_EQ(steps.count(), 8U);
  EXPECT_EQ(steps.confidence, 1);
}

TEST(Steps, LevelsAreTheLeastAndMostOfEachStep) {
  const AllocatorRules rules;
  ToyAllocator toy(rules, 31);
  while (toy.events.size() < 2000) toy.random_step();
  HistoryReplay replay(0, rules);
  for (const FrameworkEvent& event : toy.events) replay.apply(event);
  const AllocationHistory model = std::move(replay).finish();
  Steps steps;
  steps.boundaries = {10, 250, 251, 900, 1999};
  measure_steps(model, steps);
  ASSERT_EQ(steps.count(), 4U);
  for (size_t i = 0; i + 1 < steps.boundaries.size(); ++i) {
    uint64_t low = UINT64_MAX;
    uint64_t high = 0;
    for (uint32_t e = steps.boundaries[i]; e < steps.boundaries[i + 1]; ++e) {
      low = std::min(low, toy.totals[e].allocated);
      high = std::max(high, toy.totals[e].allocated);
    }
    EXPECT_EQ(steps.levels[i].low_bytes, low);
    EXPECT_EQ(steps.levels[i].high_bytes, high);
  }
}

// What is older than the history is alive in its first step.
TEST(Steps, TheFirstStepOfALateHistoryIsNotEmpty) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3; ++i) s.older_block(100 * kMiB);
    for (int step = 0; step < 5; ++step) {
      for (int i = 0; i < 4; ++i) s.free(s.alloc(8 * kMiB, s.forward(i)));
      s.optimizer_mark();
    }
  });
  const Steps steps = found_in(trace.model().processes[0], framework(trace));
  ASSERT_FALSE(steps.levels.empty());
  EXPECT_EQ(steps.levels[0].low_bytes, 300 * kMiB);
  EXPECT_EQ(steps.levels[0].high_bytes, 308 * kMiB);
  // All steps are alike: the first one is not that of the peak.
  EXPECT_FALSE(trace.report().ranks[0].devices[0].peak_phase.has_value());
}

TEST(Phases, TheFirstStepIsThatOfThePeakOnlyIfItIsHigher) {
  const auto phase = [](uint64_t first) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int step = 0; step < 5; ++step) {
        for (int i = 0; i < 4; ++i) s.free(s.alloc((step == 0 ? first : 8) * kMiB, s.forward(i)));
        s.optimizer_mark();
      }
    });
    return trace.report().ranks[0].devices[0].peak_phase;
  };
  EXPECT_EQ(phase(9), PhaseKind::kFirstStep);
  EXPECT_FALSE(phase(8).has_value());
}

// What the driver allocated has no events any more while PyTorch's steps go on.
TEST(Steps, MayBeginAfterTheLastEvent) {
  HistoryReplay replay(0, AllocatorRules{});
  for (int64_t time_ns = 1000; time_ns < 1065; ++time_ns) {
    FrameworkEvent event{};
    event.action = FrameworkAction::kAlloc;
    event.time_ns = time_ns;
    event.address = static_cast<uint64_t>(time_ns) << 20;
    event.size_bytes = event.block_bytes = 512;
    replay.apply(event);
  }
  const AllocationHistory model = std::move(replay).finish();
  Steps steps;
  steps.boundaries = {0, 10, model.event_count(), model.event_count(), model.event_count()};
  measure_steps(model, steps);
  EXPECT_EQ(steps.count(), 4U);
  EXPECT_LE(steps.period_ns, 10);
}

}  // namespace
}  // namespace tidemark
