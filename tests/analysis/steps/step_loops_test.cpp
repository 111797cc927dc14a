// Steps from the loops of the program, and what its stacks say.
#include <gtest/gtest.h>

#include <functional>

#include <random>

#include "tests/support/step_story.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

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

// A benchmark warms up in one loop and measures in the next one, whose first pass is a step, too.
TEST(StepLoops, TheFirstRoundOfTheNextLoopIsAStep) {
  const Trace trace([](Story& s, uint32_t) {
    Looping program(s);
    const auto pass = [&](int line) {
      const std::vector<uint64_t> made = program.forward(line);
      s.alloc(512, s.stack({"mean metrics.py:3", "train train.py:" + std::to_string(line + 2),
                            kMainOfTrain}));
      for (const uint64_t a : made) s.free(a);
    };
    for (int i = 0; i < 5; ++i) pass(30);
    for (int i = 0; i < 20; ++i) pass(40);
  });
  const Steps steps = found_in(trace.model().processes[0], framework(trace));
  EXPECT_EQ(steps.count(), 25U);
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

// How often the loop of tokens, or of batches, goes round, and what its passes need.
struct Rounds {
  int requests = 20;
  int least = 8;  // rounds of a request
  int most = 32;
  int groups = 16;       // sizes of batches, by turns
  uint64_t prompt = 64;  // times the length of a round, at least
  int prompt_line = 67;
};

// Requests with buffers that were allocated before: nothing grows from token to token.
Steps completed(const Rounds& r) {
  return steps_told([=](Story& s) {
    const auto at = [&](int line) {
      return std::vector<std::string>{"complete serve.py:" + std::to_string(line),
                                      "main serve.py:89"};
    };
    const auto pass = [&](int line, uint64_t bytes) {
      for (int layer = 0; layer < 6; ++layer) {
        s.free(s.alloc(
            bytes, s.stack({"forward model.py:" + std::to_string(20 + layer),
                            "_call_impl torch/nn/modules/module.py:1", at(line)[0], at(line)[1]})));
      }
    };
    s.alloc(256 * kMiB, s.stack({"__init__ serve.py:55", "main serve.py:86"}));
    for (int i = 0; i < r.requests; ++i) {
      const auto batch = static_cast<uint64_t>(1 + 5 * i % r.groups);
      const uint64_t prompt = s.alloc(batch * 4096, s.stack(at(65)));
      const int rounds = r.least + 7 * i % (r.most - r.least + 1);
      std::vector<uint64_t> result;
      for (int k = 0; k < rounds; ++k) {
        const bool first = k == 0;
        const uint64_t length = first ? r.prompt * static_cast<uint64_t>(1 + i % 5) : 1;
        pass(first ? r.prompt_line : 67, batch * length * 4096);
        result.push_back(s.alloc(512, s.stack(at(69))));
      }
      const uint64_t text = s.alloc(4096, s.stack(at(71)));
      for (const uint64_t block : result) s.free(block);
      s.free(text);
      s.free(prompt);
    }
  });
}

TEST(StepLoops, RequestsWithoutAGrowingCacheAreSteps) {
  const Rounds kinds[] = {
      {},
      {.requests = 46, .least = 8, .most = 32},
      {.requests = 12, .least = 30, .most = 200},
      {.requests = 30, .least = 6, .most = 12},
      {.requests = 20, .groups = 1, .prompt_line = 66},
      {.requests = 20, .groups = 4, .prompt = 16},
      {.requests = 5, .least = 40, .most = 60},
  };
  for (const Rounds& r : kinds) {
    const Steps steps = completed(r);
    EXPECT_EQ(steps.source, StepSource::kLoop);
    EXPECT_EQ(steps.count(), static_cast<uint32_t>(r.requests))
        << r.least << " to " << r.most << " of " << r.groups;
  }
}

// An engine with a pool of caches: each step decodes a token of all requests, and admits new ones
// before, where others have ended.
TEST(StepLoops, AStepOfAnEngineAdmitsRequestsOrNot) {
  const auto stepped = [](const std::function<bool(int)>& admits) {
    return steps_told([&](Story& s) {
      const auto pass = [&](int line, uint64_t bytes) {
        for (int layer = 0; layer < 6; ++layer) {
          s.free(s.alloc(bytes,
                         s.stack({"forward model.py:" + std::to_string(20 + layer),
                                  "_call_impl torch/nn/modules/module.py:1",
                                  "step engine.py:" + std::to_string(line), "run engine.py:60"})));
        }
      };
      s.alloc(256 * kMiB, s.stack({"__init__ engine.py:5", "main engine.py:86"}));
      for (int i = 0; i < 200; ++i) {
        if (admits(i)) pass(41, 64 * kMiB);
        const uint64_t ids = s.alloc(4096, s.stack({"step engine.py:44", "run engine.py:60"}));
        pass(49, kMiB);
        s.free(s.alloc(4096, s.stack({"step engine.py:50", "run engine.py:60"})));
        s.free(ids);
      }
    });
  };
  const Steps engine = stepped([](int i) { return i % 7 == 0 || i % 7 == 1 || i % 7 == 4; });
  EXPECT_EQ(engine.count(), 200U);
  EXPECT_LT(engine.confidence, 0.9);
  EXPECT_EQ(stepped([](int i) { return i % 4 == 0; }).count(), 50U) << "tokens of a request";
  EXPECT_EQ(stepped([](int) { return true; }).count(), 200U);
}

// The first of the batches of an epoch may be larger, but the others need not be alike, or it is
// not far larger.
TEST(StepLoops, BatchesOfAnEpochAreSteps) {
  using Length = std::function<uint64_t(int batch, int epoch)>;
  const Length kinds[] = {
      [](int, int) { return 1; },
      [](int batch, int) { return batch == 0 ? 3 : 1; },
      [](int batch, int) { return 16 - batch / 2; },
      [](int batch, int epoch) { return 1 + (5 * batch + epoch) % 7; },
  };
  for (const Length& length : kinds) {
    constexpr int kEpochs = 8;
    constexpr int kBatches = 30;
    const Steps steps = steps_told([&](Story& s) {
      const auto at = [&](int line) { return "score run.py:" + std::to_string(line); };
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        const uint64_t sum = s.alloc(512, s.stack({at(5)}));
        for (int batch = 0; batch < kBatches; ++batch) {
          const uint64_t bytes = length(batch, epoch) * kMiB;
          const uint64_t input = s.alloc(bytes, s.stack({at(7)}));
          for (int layer = 0; layer < 6; ++layer) {
            s.free(s.alloc(bytes, s.forward(layer, at(8))));
          }
          s.free(input);
        }
        s.free(s.alloc(512, s.stack({at(10)})));
        s.free(sum);
      }
    });
    EXPECT_EQ(steps.source, StepSource::kLoop);
    EXPECT_EQ(steps.count(), static_cast<uint32_t>(kEpochs * kBatches)) << &length - kinds;
  }
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

// A program without a model: many small things are prepared in a loop, and then used.
TEST(StepLoops, PreparingIsNoStep) {
  const auto told = [](bool goes_on) {
    return steps_told([=](Story& s) {
      for (int i = 0; i < 60; ++i) {
        s.free(s.alloc(4 * kMiB, s.stack({"prepare bank.py:5", "main run.py:3"})));
        s.free(s.alloc(4 * kMiB, s.stack({"prepare bank.py:6", "main run.py:3"})));
      }
      if (!goes_on) return;
      s.wait(3'000'000'000);
      s.alloc(200 * kMiB, s.stack({"search run.py:9", "main run.py:4"}));
      s.alloc(200 * kMiB, s.stack({"search run.py:10", "main run.py:4"}));
    });
  };
  EXPECT_EQ(told(false).count(), 60U);
  EXPECT_EQ(told(true).source, StepSource::kNone);
}

// Most time passes in a few rounds: the others are parts of something.
TEST(StepLoops, PartsOfAFitAreNoSteps) {
  const Steps steps = steps_told([](Story& s) {
    for (int fit = 0; fit < 4; ++fit) {
      for (int part = 0; part < 12; ++part) {
        s.free(s.alloc(4 * kMiB, s.stack({"fill kernel.py:5", "fit run.py:3"})));
        s.free(s.alloc(4 * kMiB, s.stack({"fill kernel.py:6", "fit run.py:3"})));
      }
      s.wait(2'000'000'000);
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

}  // namespace
}  // namespace tidemark
