// Steps from repetition and from marks, growth, categories, and what a change would have saved.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "analysis/history/curve.h"
#include "analysis/history/history_replay.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/categories/categories.h"
#include "analysis/steps/level_growth.h"
#include "tests/support/story.h"
#include "tests/support/toy_allocator.h"

namespace tidemark {
namespace {

const AllocationHistory& framework(const Trace& trace) {
  return trace.model().processes[0].framework[0];
}

Steps found_in(const ProcessModel& process, const AllocationHistory& model) {
  return find_steps(process, model, StackRoles(process));
}

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

constexpr const char* kMainOfTrain = "<module> train.py:90";

// A program with the stacks of a real one: main calls train, whose loop calls the model's layers,
// the backward pass and the optimizer. The history has no marks.
class Looping {
 public:
  explicit Looping(Story& s) : s_(s) {}

  // Layers keep their activations if they are to be followed by a backward pass.
  std::vector<uint64_t> forward(int line, bool keep = true) {
    std::vector<uint64_t> kept;
    for (int layer = 0; layer < 12; ++layer) {
      for (const int in_layer : {7, 8}) {
        const uint64_t a = s_.alloc(
            kMiB, s_.stack({"forward model.py:" + std::to_string(in_layer),
                            "_call_impl torch/nn/modules/module.py:1500", "forward model.py:20",
                            "_call_impl torch/nn/modules/module.py:1500", at(line), kMain}));
        if (keep) kept.push_back(a);
        if (!keep) s_.free(a);
      }
    }
    return kept;
  }
  // Frees what the forward pass kept, and leaves gradients.
  std::vector<uint64_t> backward(const std::vector<uint64_t>& kept, bool first) {
    std::vector<uint64_t> gradients;
    for (size_t i = 0; i < kept.size(); ++i) {
      const uint64_t a = s_.alloc(kMiB / 2, 0);
      first&& i % 2 == 0 ? gradients.push_back(a) : s_.free(a);
      s_.free(kept[i]);
    }
    return gradients;
  }
  void optimizer(int line) {
    for (int i = 0; i < 6; ++i) {
      s_.free(s_.alloc(kMiB, s_.stack({"_multi_tensor_adam torch/optim/adam.py:400",
                                       "step torch/optim/adam.py:200", at(line), kMain})));
    }
  }
  void step(int micro_batches, bool optimizer_allocates) {
    std::vector<uint64_t> gradients;
    for (int i = 0; i < micro_batches; ++i) {
      const uint64_t input = s_.alloc(2 * kMiB, s_.stack({at(12), kMain}));
      const auto made = backward(forward(14), i == 0);
      gradients.insert(gradients.end(), made.begin(), made.end());
      s_.free(input);
    }
    if (optimizer_allocates) optimizer(18);
    for (const uint64_t g : gradients) s_.free(g);
  }
  void validate() {
    for (int i = 0; i < 3; ++i) forward(31, false);
  }

 private:
  static constexpr const char* kMain = kMainOfTrain;
  static std::string at(int line) { return "train train.py:" + std::to_string(line); }

  Story& s_;
};

template <typename Tell>
Steps steps_told(Tell&& tell) {
  const Trace trace([&](Story& s, uint32_t) { tell(s); });
  return found_in(trace.model().processes[0], framework(trace));
}

TEST(StepLoops, AStepIsNeitherALayerNorAMicroBatchNorAnEpoch) {
  for (const int micro_batches : {1, 4}) {
    for (const bool optimizer_allocates : {true, false}) {
      const Steps steps = steps_told([&](Story& s) {
        Looping program(s);
        for (int epoch = 0; epoch < 4; ++epoch) {
          for (int i = 0; i < 10; ++i) program.step(micro_batches, optimizer_allocates);
          program.validate();
        }
      });
      // Where the loop over micro-batches is the only one that allocates, its rounds are not steps,
      // but the steps cannot be seen, either.
      if (optimizer_allocates || micro_batches == 1) {
        EXPECT_EQ(steps.source, StepSource::kLoop);
        EXPECT_NEAR(steps.count(), 40, 1) << micro_batches << optimizer_allocates;
      }
      EXPECT_LE(steps.count(), 41U);
      EXPECT_EQ(steps.growth_bytes_per_step, 0);
    }
  }
}

TEST(StepLoops, OnePassOrOneStepHasNone) {
  EXPECT_EQ(steps_told([](Story& s) {
              Looping program(s);
              for (const uint64_t a : program.forward(14)) s.free(a);
            }).source,
            StepSource::kNone);
  EXPECT_EQ(steps_told([](Story& s) { Looping(s).forward(14, false); }).source, StepSource::kNone);
  EXPECT_EQ(steps_told([](Story& s) { Looping(s).step(1, true); }).source, StepSource::kNone);
  EXPECT_EQ(steps_told([](Story& s) { Looping(s).step(4, true); }).source, StepSource::kNone);
}

// Twelve layers of two steps are no 24 steps, and two steps are too few to tell.
TEST(StepLoops, LayersOfTwoStepsAreNoSteps) {
  const Steps steps = steps_told([](Story& s) {
    Looping program(s);
    for (int i = 0; i < 2; ++i) program.step(1, true);
  });
  EXPECT_LE(steps.count(), 2U);
}

// The optimizer allocates in the first step only, and a library's workspace stays forever.
TEST(StepLoops, WorkspaceOfTheBackwardPassIsNoAccumulation) {
  const Steps steps = steps_told([](Story& s) {
    Looping program(s);
    s.alloc(32 * kMiB, 0);
    for (int i = 0; i < 12; ++i) {
      program.step(1, i == 0);
      if (i == 0) s.alloc(32 * kMiB, 0);
    }
  });
  EXPECT_EQ(steps.source, StepSource::kLoop);
  EXPECT_NEAR(steps.count(), 12, 1);
}

TEST(StepLoops, LoadingAModelIsNoLoopOfSteps) {
  for (const char* keeps : {"load train.py:13", "to torch/nn/modules/module.py:1100"}) {
    const Steps steps = steps_told([&](Story& s) {
      for (int i = 0; i < 60; ++i) {
        const uint64_t read =
            s.alloc(8 * kMiB, s.stack({"load_file safetensors/torch.py:300", "load train.py:12",
                                       "main"
                                       " train.py:90"}));
        s.alloc(8 * kMiB, s.stack({keeps, "main train.py:90"}));
        s.free(read);
      }
    });
    EXPECT_EQ(steps.source, StepSource::kNone) << keeps;
  }
}

TEST(StepLoops, RandomLinesAreNoLoop) {
  std::mt19937 rng(3);
  const Steps steps = steps_told([&](Story& s) {
    std::vector<uint64_t> live;
    for (int i = 0; i < 800; ++i) {
      if (!live.empty() && rng() % 100 < 48) {
        std::swap(live[rng() % live.size()], live.back());
        s.free(live.back());
        live.pop_back();
      } else {
        live.push_back(s.alloc((1 + rng() % 50) * kMiB, s.user(1 + static_cast<int>(rng() % 5))));
      }
    }
  });
  EXPECT_EQ(steps.source, StepSource::kNone);
}

TEST(StepLoops, ARequestIsAStepAndATokenIsNot) {
  const auto serve = [](int requests) {
    return steps_told([requests](Story& s) {
      for (int i = 0; i < requests; ++i) {
        const auto at = [&](int line, int generate) {
          return s.stack({"forward model.py:8", "_call_impl torch/nn/modules/module.py:1500",
                          "generate model.py:" + std::to_string(generate),
                          "serve serve.py:" + std::to_string(line)});
        };
        const uint64_t prompt = s.alloc(kMiB, s.stack({"serve serve.py:5"}));
        std::vector<uint64_t> cache;
        for (int token = 0; token < 10 + i % 7; ++token) {
          cache.push_back(s.alloc(kMiB, at(6, 40)));
          s.free(s.alloc(kMiB, at(6, 42)));
        }
        for (const uint64_t a : cache) s.free(a);
        s.free(prompt);
      }
    });
  };
  const Steps many = serve(20);
  EXPECT_EQ(many.source, StepSource::kLoop);
  EXPECT_EQ(many.count(), 20U);
  EXPECT_EQ(many.growth_bytes_per_step, 0);
  EXPECT_EQ(serve(1).source, StepSource::kNone);
}

// A whole batch is moved to the device, then divided: what goes back to its line is a step.
TEST(StepLoops, MicroBatchesOfOneBatchAreNoSteps) {
  const Steps steps = steps_told([](Story& s) {
    Looping program(s);
    for (int i = 0; i < 12; ++i) {
      const uint64_t batch =
          s.alloc(8 * kMiB, s.stack({"train train.py:10", "<module> train.py:90"}));
      program.step(4, false);
      s.free(batch);
    }
  });
  EXPECT_EQ(steps.source, StepSource::kLoop);
  EXPECT_EQ(steps.count(), 12U);
}

// Layers that the backward pass computes again are called by no line of the program.
TEST(StepLoops, RecomputedLayersAreNoSteps) {
  const Steps steps = steps_told([](Story& s) {
    Looping program(s);
    for (int i = 0; i < 12; ++i) {
      program.step(1, false);
      for (int layer = 0; layer < 2; ++layer) {
        for (const int line : {7, 8}) {
          s.free(s.alloc(kMiB, s.stack({"forward model.py:" + std::to_string(line),
                                        "_call_impl torch/nn/modules/module.py:1500",
                                        "recompute_fn torch/utils/checkpoint.py:1600"})));
        }
        s.free(s.alloc(kMiB, 0));
      }
    }
  });
  EXPECT_EQ(steps.source, StepSource::kLoop);
  EXPECT_EQ(steps.count(), 12U);
}

// The name alone does not make it the generation of a text.
TEST(StepLoops, TrainingMayBeCalledGenerate) {
  const Steps steps = steps_told([](Story& s) {
    for (int i = 0; i < 10; ++i) {
      const auto at = [&](int line) { return "generate_samples train.py:" + std::to_string(line); };
      const uint64_t kept = s.alloc(kMiB, s.forward(1, at(5)));
      s.free(s.alloc(kMiB, 0));
      s.free(kept);
      s.free(s.alloc(kMiB, s.stack({"step torch/optim/adam.py:9", at(8)})));
    }
  });
  EXPECT_EQ(steps.source, StepSource::kLoop);
  EXPECT_EQ(steps.count(), 10U);
}

// A model of an embedding, twelve layers and a head, called by one line of the program. Without a
// head, the model repeats its layers and nothing else.
Steps called(int passes, bool whole, bool directly) {
  return steps_told([=](Story& s) {
    const std::string call = "_call_impl torch/nn/modules/module.py:1500";
    for (int pass = 0; pass < passes; ++pass) {
      std::optional<uint64_t> before;
      const auto at = [&](int line, int in_layer) {
        const std::string model = "forward model.py:" + std::to_string(line);
        const std::string layer = "forward model.py:" + std::to_string(in_layer);
        const uint64_t a =
            s.alloc(kMiB, directly ? s.stack({layer, model, "bench train.py:7"})
                                   : s.stack({layer, call, model, call, "bench train.py:7"}));
        if (before) s.free(*before);
        before = a;
      };
      if (whole) at(40, 8);
      for (int layer = 0; layer < 12; ++layer) {
        for (const int line : {42, 43}) {
          for (const int in_layer : {3, 4}) at(line, in_layer);
        }
      }
      if (whole) at(45, 8);
      s.free(*before);
    }
  });
}

TEST(StepLoops, CallsOfAModelFromOneLineAreSteps) {
  for (const bool directly : {false, true}) {
    EXPECT_EQ(called(5, true, directly).source, StepSource::kLoop);
    EXPECT_EQ(called(5, true, directly).count(), 5U);
    EXPECT_EQ(called(1, true, directly).source, StepSource::kNone) << "its layers";
    EXPECT_EQ(called(1, false, directly).source, StepSource::kNone) << "its layers";
  }
}

TEST(StepLoops, CapturedGraphsAreNoSteps) {
  for (const bool captures : {false, true}) {
    const Steps steps = steps_told([=](Story& s) {
      Looping program(s);
      for (uint32_t i = 1; i <= 5; ++i) {
        s.free(s.alloc(2 * kMiB, s.stack({"train train.py:12", kMainOfTrain})));
        if (captures) s.on(0, i);
        program.forward(14, false);
        s.on(0, 0);
      }
    });
    EXPECT_EQ(steps.source, captures ? StepSource::kNone : StepSource::kLoop);
  }
}

// Requests, each a prompt and then token after token, by a function of any name. The prompt is read
// by a line of its own or by the one that adds the tokens.
Steps answered(int requests, int prompt_line) {
  return steps_told([=](Story& s) {
    const auto pass = [&](int line, uint64_t bytes) {
      const std::string caller = "answer serve.py:" + std::to_string(line);
      for (int layer = 0; layer < 6; ++layer) s.free(s.alloc(bytes, s.forward(layer, caller)));
    };
    for (int request = 0; request < requests; ++request) {
      const uint64_t cache = s.alloc(64 * kMiB, s.stack({"answer serve.py:3"}));
      pass(prompt_line, kMiB);
      for (int token = 0; token < 10; ++token) {
        s.free(s.alloc(512, s.stack({"answer serve.py:6"})));
        pass(7, kMiB / 8);
      }
      s.free(cache);
    }
  });
}

TEST(StepLoops, TokensOfAnAnswerAreNoSteps) {
  for (const int prompt_line : {4, 7}) {
    EXPECT_EQ(answered(1, prompt_line).source, StepSource::kNone) << prompt_line;
    EXPECT_EQ(answered(2, prompt_line).source, StepSource::kNone) << prompt_line;
  }
  EXPECT_EQ(answered(9, 4).count(), 9U);
}

// A library tries several algorithms in the first pass.
TEST(StepLoops, AFirstPassMayNeedMore) {
  const Steps steps = steps_told([](Story& s) {
    for (int i = 0; i < 10; ++i) {
      s.free(s.alloc(kMiB, s.stack({"infer serve.py:6"})));
      for (int layer = 0; layer < 6; ++layer) {
        for (int attempt = 0; attempt < (i == 0 ? 5 : 1); ++attempt) {
          s.free(s.alloc(kMiB << attempt, s.forward(layer, "infer serve.py:7")));
        }
      }
    }
  });
  EXPECT_EQ(steps.source, StepSource::kLoop);
  EXPECT_EQ(steps.count(), 10U);
}

// A model has run once, and what it made is cut into parts.
TEST(StepLoops, PartsOfABatchAreNoSteps) {
  const Steps steps = steps_told([](Story& s) {
    const auto at = [&](int line) { return "run train.py:" + std::to_string(line); };
    for (int layer = 0; layer < 12; ++layer) s.free(s.alloc(kMiB, s.forward(layer, at(5))));
    for (int part = 0; part < 9; ++part) {
      for (int i = 0; i < 4; ++i) s.free(s.alloc(kMiB, s.stack({at(8 + i)})));
    }
  });
  EXPECT_EQ(steps.source, StepSource::kNone);
}

TEST(StackRoles, PathsOfWindowsReadLikeOthers) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(kMiB, s.stack({"_apply D:\\venv\\Lib\\site-packages\\torch\\nn\\modules\\module.py:900",
                           "main D:\\code\\train.py:3"}));
  });
  const uint32_t stack = framework(trace).allocations.stack(0);
  EXPECT_EQ(StackRoles(trace.model().processes[0]).of(stack), StackRole::kModuleSetUp);
  EXPECT_EQ(trace.model().processes[0].names.stack_text(stack).back(), "main D:/code/train.py:3");
}

// The compiled backward pass keeps the names of the code that was differentiated.
TEST(StackRoles, MostFunctionsThatLoadLoadData) {
  const auto role = [](const std::string& function) {
    const Trace trace(
        [&](Story& s, uint32_t) { s.alloc(kMiB, s.stack({function + " train.py:70"})); });
    return StackRoles(trace.model().processes[0]).of(framework(trace).allocations[0].stack);
  };
  for (const char* const data : {"load", "load_data", "loader", "load_images"}) {
    EXPECT_EQ(role(data), StackRole::kUser) << data;
  }
  for (const char* const model : {"load_model", "_load_from_state_dict", "load_checkpoint"}) {
    EXPECT_EQ(role(model), StackRole::kLoading) << model;
  }
}

// A cache of eight entries that is full after as many steps, in blocks of varying size.
TEST(Steps, ALevelThatGoesUpAndDownDoesNotGrow) {
  std::vector<uint64_t> lows;
  for (uint64_t i = 0; i < 30; ++i) lows.push_back((50 + 8 * std::min<uint64_t>(i, 8)) * kMiB);
  for (size_t i = 9; i < lows.size(); ++i) lows[i] += i % 3 == 0 ? 0 : kMiB;
  EXPECT_FALSE(find_growth(lows).has_value());
  lows.assign(30, 0);
  for (size_t i = 0; i < lows.size(); ++i) lows[i] = 364 * kMiB + i * 1024;
  EXPECT_FALSE(find_growth(lows).has_value()) << "small blocks";
  for (size_t i = 0; i < lows.size(); ++i) lows[i] = (364 + i) * kMiB;
  EXPECT_TRUE(find_growth(lows).has_value());
}

TEST(Steps, GrowthThatBeganLateMustBePlain) {
  const auto grows = [](uint64_t from, uint64_t mib) {
    std::vector<uint64_t> lows;
    for (uint64_t i = 0; i < 70; ++i) {
      lows.push_back((500 + (i > from ? (i - from) * mib : 0)) * kMiB);
    }
    return find_growth(lows);
  };
  ASSERT_TRUE(grows(50, 60).has_value());
  EXPECT_EQ(grows(50, 60)->first_step, 51U);
  EXPECT_EQ(grows(50, 60)->bytes_per_step, 60.0 * kMiB);
  EXPECT_FALSE(grows(50, 2).has_value()) << "little";
  EXPECT_FALSE(grows(64, 60).has_value()) << "in few steps";
  EXPECT_TRUE(grows(40, 2).has_value());
}

// A validation in every fifth step that keeps its results, and crosses the boundary of a step.
TEST(Steps, ARiseThatTakesTwoStepsIsOne) {
  std::vector<uint64_t> lows;
  for (uint64_t i = 0; i < 40; ++i) lows.push_back((137 + 32 * (i / 5)) * kMiB);
  for (size_t i = 4; i < lows.size(); i += 5) lows[i] += 4 * kMiB;
  const auto growth = find_growth(lows);
  ASSERT_TRUE(growth.has_value());
  EXPECT_NEAR(growth->bytes_per_step, 32.0 / 5 * kMiB, 0.5 * kMiB);
}

TEST(StackRoles, CompiledBackwardPassIsNoForwardPass) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(kMiB, s.stack({"call cuv.py:12", "forward model.py:5",
                           "backward torch/autograd/function.py:317"}));
    s.alloc(kMiB, s.stack({"forward model.py:5", "main train.py:3"}));
  });
  const StackRoles roles(trace.model().processes[0]);
  EXPECT_EQ(roles.of(framework(trace).allocations.stack(0)), StackRole::kBackward);
  EXPECT_EQ(roles.of(framework(trace).allocations.stack(1)), StackRole::kForward);
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

TEST(Steps, GrowthIsExactAndStopsWhenItStops) {
  const auto steps_of = [](int growing, int total) {
    const Trace trace([=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < total; ++i) {
        t.step();
        if (i < growing) s.alloc(3 * kMiB, s.user(90));
      }
    });
    return found_in(trace.model().processes[0], framework(trace));
  };
  const Steps grows = steps_of(30, 30);
  EXPECT_EQ(grows.growth_bytes_per_step, 3.0 * kMiB);
  ASSERT_FALSE(grows.growing.empty());
  EXPECT_NEAR(grows.growing[0].bytes_per_step, 3.0 * kMiB, 0.2 * kMiB);
  EXPECT_EQ(steps_of(10, 30).growth_bytes_per_step, 0);  // a list that was filled once
  EXPECT_EQ(steps_of(0, 30).growth_bytes_per_step, 0);
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

// What stays after each step, in MiB; negative: the oldest such block is freed.
Steps growing_by(const std::vector<int>& changes) {
  const Trace trace([&](Story& s, uint32_t) {
    Training t(s, {});
    std::vector<uint64_t> kept;
    for (const int change : changes) {
      t.step();
      if (change > 0) kept.push_back(s.alloc(static_cast<uint64_t>(change) * kMiB, s.user(90)));
      for (int i = change; i < 0 && !kept.empty(); ++i) {
        s.free(kept.front());
        kept.erase(kept.begin());
      }
    }
  });
  return found_in(trace.model().processes[0], framework(trace));
}

TEST(Steps, GrowthHasManyShapes) {
  std::vector<int> stairs(30);
  std::vector<int> late(30);
  std::vector<int> filled(40);
  std::vector<int> sawtooth(30, 8);
  for (size_t i = 0; i < stairs.size(); ++i) {
    stairs[i] = i % 5 == 4 ? 40 : 0;
    late[i] = i >= 13 ? 8 : 0;
    if (i % 10 == 9) sawtooth[i] = -10;
  }
  std::fill_n(filled.begin(), 30, 8);
  for (const auto& grows : {stairs, late}) {
    const Steps steps = growing_by(grows);
    EXPECT_NEAR(steps.growth_bytes_per_step, 8.0 * kMiB, 2.0 * kMiB);
    ASSERT_FALSE(steps.growing.empty());
    EXPECT_NEAR(steps.growing[0].bytes_per_step, 8.0 * kMiB, 2.0 * kMiB);
  }
  EXPECT_EQ(growing_by(filled).growth_bytes_per_step, 0);  // a cache with a bound
  EXPECT_EQ(growing_by(sawtooth).growth_bytes_per_step, 0);
}

TEST(Steps, GrowthInEveryNthStepIsExact) {
  for (const int every : {2, 3, 4, 5, 10}) {
    for (const size_t count : {29U, 40U, 41U}) {
      std::vector<int> stairs(count);
      for (size_t i = 0; i < count; ++i) {
        if (static_cast<int>(i) % every == every - 1) stairs[i] = 8 * every;
      }
      EXPECT_EQ(growing_by(stairs).growth_bytes_per_step, 8.0 * kMiB) << every << " " << count;
    }
  }
}

// Blocks move from places of their size into ones that are larger, but not worth splitting.
TEST(Steps, WhatWasNotSplitIsNoGrowth) {
  constexpr uint64_t kBytes = 3 * kMiB + kMiB / 4;
  constexpr uint64_t kBlocks = 12;
  HistoryReplay replay(0, {});
  int64_t now = 0;
  const auto apply = [&](FrameworkAction action, uint64_t address, uint64_t bytes) {
    FrameworkEvent event{};
    event.action = action;
    event.address = address;
    event.size_bytes = bytes;
    event.time_ns = now += 1000;
    replay.apply(event);
  };
  const auto tight = [](uint64_t i) { return (i << 30) + (uint64_t{1} << 40); };
  const auto loose = [](uint64_t i) { return (i << 30) + (uint64_t{1} << 41); };
  for (uint64_t i = 0; i < kBlocks; ++i) {
    apply(FrameworkAction::kSegmentAlloc, tight(i), 20 * kMiB);
    apply(FrameworkAction::kAlloc, tight(i), kBytes);
  }
  Steps steps;
  steps.source = StepSource::kMarks;
  uint32_t event = 2 * kBlocks;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    steps.boundaries.push_back(event);
    apply(FrameworkAction::kSegmentAlloc, loose(i), 4 * kMiB);
    apply(FrameworkAction::kAlloc, loose(i), kBytes);
    apply(FrameworkAction::kFreeRequested, tight(i), kBytes);
    apply(FrameworkAction::kFreeCompleted, tight(i), kBytes);
    event += 4;
  }
  steps.boundaries.push_back(event);
  const AllocationHistory model = std::move(replay).finish();
  ASSERT_EQ(model.event_count(), event);
  measure_steps(model, steps);
  EXPECT_GT(steps.levels.back().low_bytes, steps.levels.front().low_bytes + 8 * kMiB / 2);
  EXPECT_EQ(steps.growth_bytes_per_step, 0);
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

TEST(Curve, ThinningKeepsTheExtremes) {
  const AllocatorRules rules;
  for (const uint64_t seed : {41U, 42U, 43U}) {
    ToyAllocator toy(rules, seed);
    while (toy.events.size() < 3000) toy.random_step();
    HistoryReplay replay(0, rules);
    for (const FrameworkEvent& event : toy.events) replay.apply(event);
    const AllocationHistory model = std::move(replay).finish();
    for (const size_t points : {1U, 7U, 100U, 10000U}) {
      const auto curve = thinned_curve(model, points);
      ASSERT_LE(curve.size(), points);
      uint64_t allocated = 0;
      uint64_t reserved = 0;
      size_t at = 0;
      for (uint32_t e = 0; e < model.event_count(); ++e) {
        while (model.time_ns[e] > curve[at].end_ns) ++at;
        ASSERT_LE(curve[at].allocated_low, toy.totals[e].allocated);
        ASSERT_GE(curve[at].allocated_high, toy.totals[e].allocated);
        ASSERT_GE(curve[at].reserved_high, toy.totals[e].reserved);
      }
      for (const CurvePoint& p : curve) {
        allocated = std::max(allocated, p.allocated_high);
        reserved = std::max(reserved, p.reserved_high);
      }
      EXPECT_EQ(allocated, model.allocated_peak.bytes);
      EXPECT_EQ(reserved, model.reserved_peak.bytes);
    }
  }
}

TEST(Rehearsal, IsThePeakOfTheChangedHistory) {
  const AllocatorRules rules;
  std::mt19937_64 rng(51);
  ToyAllocator toy(rules, 52);
  while (toy.events.size() < 2500) toy.random_step();
  HistoryReplay replay(0, rules);
  for (const FrameworkEvent& event : toy.events) replay.apply(event);
  const AllocationHistory model = std::move(replay).finish();
  for (int round = 0; round < 20; ++round) {
    Rehearsal rehearsal(model);
    std::vector<int64_t> level(model.event_count());
    for (const Allocation& a : model.allocations) {
      uint32_t begin = a.birth;
      uint32_t end = std::min(a.release, model.event_count());
      if (rng() % 3 == 0) {
        const uint32_t from = a.birth + static_cast<uint32_t>(rng() % 400);
        rehearsal.leave_out_from(a, from);
        end = std::min(end, from);
      }
      if (rng() % 5 == 0) {
        begin -= static_cast<uint32_t>(rng() % std::min(a.birth + 1, uint32_t{400}));
        rehearsal.hold_from(a, begin);
      }
      for (uint32_t e = begin; e < end; ++e) level[e] += static_cast<int64_t>(a.block_bytes);
    }
    EXPECT_EQ(rehearsal.peak_bytes(),
              static_cast<uint64_t>(*std::max_element(level.begin(), level.end())));
  }
}

TEST(Peak, SharesOfEverySortAddUp) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 12; ++i) {
      if (i == 0) s.begin_free(s.alloc(40 * kMiB, s.user(1)));  // pending from here on
      t.step();
    }
  });
  ReportOptions options;
  options.stacks = 1000;
  options.tree_share = 0;
  const DeviceReport d = trace.report(options).ranks[0].devices[0];
  const auto sum = [](const auto& shares) {
    uint64_t bytes = 0;
    for (const auto& share : shares) bytes += share.bytes;
    return bytes;
  };
  EXPECT_EQ(d.at_totals.pending(), 40 * kMiB);
  EXPECT_EQ(sum(d.stacks), d.at_totals.allocated);
  EXPECT_EQ(sum(d.categories), d.at_totals.allocated);
  EXPECT_EQ(sum(d.sizes), d.at_totals.allocated);
  EXPECT_EQ(sum(d.ages), d.at_totals.allocated);
  // A node of the tree holds its own bytes and those of its children.
  std::vector<uint64_t> children(d.tree.size() + 1);
  for (const TreeNode& node : d.tree) children[node.parent] += node.bytes;
  for (size_t i = 0; i < d.tree.size(); ++i) EXPECT_LE(children[i + 1], d.tree[i].bytes);
  uint64_t without_stack = 0;
  for (const StackShare& s : d.stacks) without_stack += s.frames.empty() ? s.bytes : 0;
  EXPECT_EQ(children[0] + without_stack, d.at_totals.allocated);
  EXPECT_GT(d.pushed_by.bytes, 0U);
}

TEST(Categories, MatchTheTrainingLoop) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
  });
  std::map<Category, uint64_t> bytes;
  const Report report = trace.report();
  for (const CategoryShare& c : report.ranks[0].devices[0].categories) {
    bytes[c.category] = c.bytes;
  }
  const Training::Shape shape;
  EXPECT_EQ(bytes[Category::kParameter], 6 * shape.weight);
  EXPECT_EQ(bytes[Category::kOptimizerState], 12 * shape.weight);
  EXPECT_EQ(bytes[Category::kActivation], 6 * 5 * shape.activation / 2);
  EXPECT_EQ(bytes[Category::kInput], 4 * kMiB);
}

std::map<Category, uint64_t> bytes_at_peak(const Trace& trace) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found =
      categorize(process, model, roles, find_steps(process, model, roles), false);
  std::map<Category, uint64_t> bytes;
  for (size_t i = 0; i < found.of.size(); ++i) {
    if (model.allocations[i].alive_at(model.allocated_peak.event)) {
      bytes[found.of[i]] += model.allocations[i].block_bytes;
    }
  }
  return bytes;
}

// A block whose fate the history does not show is what the earlier ones of its line were.
TEST(Categories, TheNewestLeakedBlocksAreNoInput) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 8; ++i) {
      t.step();
      s.alloc(20 * kMiB, s.user(90));
    }
    s.alloc(4 * kMiB, s.user(8));
    t.forward();
    s.run_out(8 * kMiB, 0, s.forward(1));
  });
  std::map<Category, uint64_t> bytes = bytes_at_peak(trace);
  EXPECT_EQ(bytes[Category::kInput], 4 * kMiB);
  EXPECT_EQ(bytes[Category::kUnknown], 8 * 20 * kMiB);
}

// Gradients of optimizers that allocate nothing, or only in their first step: freed right after the
// step, or before the next one.
TEST(Categories, GradientsAreKnownWithoutAllocationsOfTheOptimizer) {
  for (const bool marks : {true, false}) {
    const Trace trace([marks](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, s.setup());
      std::vector<uint64_t> gradients;
      for (int step = 0; step < 6; ++step) {
        for (const uint64_t g : gradients) s.free(g);
        gradients.clear();
        const uint64_t input = s.alloc(kMiB, s.user(8));
        std::vector<uint64_t> graph;
        for (int i = 0; i < 6; ++i) graph.push_back(s.alloc(3 * kMiB, s.forward(i)));
        for (; !graph.empty(); graph.pop_back()) {
          const uint64_t passed = s.alloc(5 * kMiB, 0);
          gradients.push_back(s.alloc(2 * kMiB, 0));
          s.free(passed);
          s.free(graph.back());
        }
        s.free(input);
        if (marks) {
          s.optimizer_mark();
          for (const uint64_t g : gradients) s.free(g);
          gradients.clear();
        } else if (step == 0) {
          for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, s.optimizer("_init_group"));
        }
      }
    });
    const ProcessModel& process = trace.model().processes[0];
    const StackRoles roles(process);
    const Categories found = categorize(process, framework(trace), roles,
                                        find_steps(process, framework(trace), roles), false);
    std::map<Category, uint64_t> blocks;
    for (size_t i = 0; i < found.of.size(); ++i) {
      if (roles.of(framework(trace).allocations[i].stack) == StackRole::kBackward) {
        ++blocks[found.of[i]];
      }
    }
    EXPECT_EQ(blocks[Category::kGradient], 36U) << marks;
    EXPECT_EQ(blocks[Category::kTemporary], 36U) << marks;
  }
}

TEST(Categories, ServingHasACacheAndAWorkspace) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int request = 0; request < 8; ++request) {
      const uint64_t prompt = s.alloc(2 * kMiB, s.stack({"serve serve.py:5"}));
      std::vector<uint64_t> cache;
      for (int token = 0; token < 6; ++token) {
        std::vector<uint64_t> longer;
        for (int layer = 0; layer < 4; ++layer) {
          longer.push_back(s.alloc(
              4 * kMiB, s.stack({"extend serve.py:30", "forward torch/nn/modules/module.py:1",
                                 "_call_impl torch/nn/modules/module.py:1", "generate serve.py:40",
                                 "serve serve.py:6"})));
          if (!cache.empty()) {
            s.free(cache.front());
            cache.erase(cache.begin());
          }
          s.free(s.alloc(3 * kMiB, s.forward(2, "generate serve.py:40")));
          if (request == 0 && token == 0 && layer == 0) {
            s.alloc(32 * kMiB, s.forward(2, "generate serve.py:40"));
          }
        }
        cache = longer;
        s.free(s.alloc(512, s.stack({"generate serve.py:41", "serve serve.py:6"})));
      }
      for (const uint64_t a : cache) s.free(a);
      s.free(prompt);
    }
  });
  const auto bytes = bytes_at_peak(trace);
  EXPECT_EQ(bytes.at(Category::kParameter), 120 * kMiB);
  EXPECT_EQ(bytes.at(Category::kWorkspace), 32 * kMiB);
  EXPECT_GE(bytes.at(Category::kKvCache), 16 * kMiB);
}

TEST(Categories, ShardsOfFsdpAreParametersAndWhatItGathersIsNot) {
  const auto role = [](const std::vector<std::string>& frames) {
    uint32_t stack = 0;
    const Trace trace([&](Story& s, uint32_t) {
      stack = s.stack(frames);
      s.alloc(kMiB, stack);
    });
    const AllocationHistory& model = framework(trace);
    return StackRoles(trace.model().processes[0]).of(model.allocations[0].stack);
  };
  const std::string in = " torch/distributed/fsdp/_fully_shard/";
  EXPECT_EQ(role({"_init_sharded_param" + in + "_fsdp_param.py:390",
                  "__init__" + in + "_fsdp_param.py:200", "fully_shard" + in + "_fully_shard.py:9",
                  "main train.py:4"}),
            StackRole::kModuleSetUp);
  EXPECT_EQ(role({"alloc_storage" + in + "_fsdp_param.py:931",
                  "unshard" + in + "_fsdp_param_group.py:300", "main train.py:9"}),
            StackRole::kCommunication);
  EXPECT_EQ(role({"allocate" + in + "_fsdp_collectives.py:59",
                  "FSDPParamGroup.post_backward" + in + "_fsdp_param_group.py:520",
                  "FSDPState._root_post_backward_final_callback" + in + "_fsdp_state.py:320"}),
            StackRole::kBackward);
}

// What an error ended is not known to have been short-lived.
TEST(Categories, BlocksOfOneLineUpToAnErrorAreOfOneKind) {
  const Trace trace([](Story& s, uint32_t) {
    std::vector<uint64_t> kept;
    for (int i = 0; i < 40; ++i) kept.push_back(s.alloc(48 * kMiB, s.user(137)));
    s.run_out(48 * kMiB, 10 * kMiB, s.user(137));
    for (const uint64_t block : kept) s.free(block);
  });
  const ProcessModel& process = trace.model().processes[0];
  const Categories found = categorize(process, framework(trace), StackRoles(process), {});
  for (const Category category : found.of) EXPECT_EQ(category, Category::kUnknown);
}

// A function of the program that fetches batches may be called load(); the last one is in use.
TEST(Categories, TheLastBatchIsNoModel) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    const uint32_t load = s.stack({"load data.py:33", "train train.py:10"});
    uint64_t batch = s.alloc(5 * kMiB, load);
    for (int i = 0; i < 8; ++i) {
      t.step();
      s.free(batch);
      batch = s.alloc(5 * kMiB, load);
    }
  });
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
  for (size_t i = 0; i < found.of.size(); ++i) {
    if (model.allocations.block_bytes(i) != 5 * kMiB) continue;
    EXPECT_NE(found.of[i], Category::kParameter);
  }
}

TEST(Categories, TagsAreTrusted) {
  const Trace trace([](Story& s, uint32_t) {
    const uint64_t a = s.alloc(10 * kMiB, s.user(1));
    s.tag(a, Category::kParameter);
    const uint64_t b = s.alloc(20 * kMiB, s.user(1));
    s.free(b);
    s.tag(b, Category::kGradient);  // too late: it is freed
    s.alloc(30 * kMiB, s.user(1));
  });
  const AllocationHistory& model = framework(trace);
  EXPECT_EQ(model.allocations[0].category, Category::kParameter);
  EXPECT_EQ(model.allocations[1].category, Category::kUnknown);
  const Categories categories = categorize({}, model, StackRoles{}, {});
  EXPECT_EQ(categories.confidence[0], 10);
}

}  // namespace
}  // namespace tidemark
