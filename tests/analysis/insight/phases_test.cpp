// Validation, saving and the first step, found from stacks and from names given by the program.
#include "analysis/insight/phases.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/story.h"

namespace tidemark {
namespace {

std::vector<Phase> phases_of(const Trace& trace, PhaseKind kind) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  std::vector<Phase> phases = find_phases(process, model, roles, find_steps(process, model, roles));
  std::erase_if(phases, [&](const Phase& p) { return p.kind != kind; });
  return phases;
}

// Batches of validation, freed one by one or, as with a graph, at the end of each batch.
void validate(Story& s, Training& t, int batches, const char* line) {
  for (int i = 0; i < batches; ++i) {
    for (const uint64_t a : t.forward(2, line)) s.free(a);
  }
}

TEST(Phases, ValidationIsWhatNoBackwardFollows) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 9; ++i) {
      t.step();
      if (i % 3 == 2) validate(s, t, 4, "validate train.py:30");
    }
  });
  const std::vector<Phase> found = phases_of(trace, PhaseKind::kValidation);
  ASSERT_EQ(found.size(), 3U);
  const AllocationHistory& model = trace.model().processes[0].framework[0];
  const ProcessModel& process = trace.model().processes[0];
  // Every allocation made under validate() is in a phase, and none made under train() is.
  for (const Allocation& a : model.allocations) {
    const std::vector<std::string> frames = process.names.stack_text(a.stack);
    if (frames.empty()) continue;
    const bool inside =
        std::any_of(found.begin(), found.end(), [&](const Phase& p) { return p.holds(a.birth); });
    if (frames.back() == "validate train.py:30") {
      EXPECT_TRUE(inside);
    } else if (frames.back() == "train train.py:10") {
      EXPECT_FALSE(inside);
    }
  }
  // The peak is the greatest total after any of its events.
  for (const Phase& p : found) {
    uint64_t most = 0;
    for (uint32_t e = p.first; e < p.last; ++e) {
      most = std::max(most, model.totals_after(e).allocated);
    }
    EXPECT_EQ(p.peak.bytes, most);
    EXPECT_EQ(model.totals_after(p.peak.event).allocated, most);
  }
}

// Native stacks have the interpreter's own functions in them.
TEST(Phases, FunctionsOfTheInterpreterAreNoValidation) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 9; ++i) {
      t.step();
      if (i % 3 == 2) validate(s, t, 4, "_PyEval_EvalFrameDefault ceval.cpp:30");
    }
  });
  EXPECT_TRUE(phases_of(trace, PhaseKind::kValidation).empty());
}

// Snapshots with the stacks of C++ have them now before a line of Python, now after it.
TEST(Phases, NativeFramesDoNotDivideAValidation) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 9; ++i) {
      t.step();
      if (i % 3 != 2) continue;
      for (int layer = 0; layer < 40; ++layer) {
        std::vector<std::string> frames = {
            "forward torch/nn/modules/op.py:" + std::to_string(layer),
            "_call_impl torch/nn/modules/module.py:1", "validate train.py:30", "main train.py:50"};
        frames.insert(frames.end() - 2 + layer / 8 % 2, "call interpreter.cpp:1");
        s.free(s.alloc(2 * kMiB, s.stack(frames)));
      }
    }
  });
  EXPECT_EQ(phases_of(trace, PhaseKind::kValidation).size(), 3U);
}

TEST(Phases, AKeptLossDoesNotMakeValidationTraining) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 8; ++i) {
      t.step();
      for (int k = 0; k < 3; ++k) {
        validate(s, t, 1, "validate train.py:30");
        s.alloc(512, s.forward(9, "validate train.py:30"));  // kept until the end
      }
    }
  });
  EXPECT_EQ(phases_of(trace, PhaseKind::kValidation).size(), 8U);
}

// A loss of each batch, computed by a function that the program calls itself.
TEST(Phases, AMetricDoesNotInterruptValidation) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    const uint32_t metric =
        s.stack({"mse_loss torch/nn/functional.py:3000", "validate train.py:31"});
    for (int i = 0; i < 9; ++i) {
      t.step();
      if (i % 3 != 2) continue;
      for (int batch = 0; batch < 4; ++batch) {
        validate(s, t, 1, "validate train.py:30");
        for (int k = 0; k < 5; ++k) s.free(s.alloc(kMiB, metric));
      }
    }
  });
  const std::vector<Phase> found = phases_of(trace, PhaseKind::kValidation);
  EXPECT_EQ(found.size(), 3U);
  const ProcessModel& process = trace.model().processes[0];
  for (const Allocation& a : process.framework[0].allocations) {
    const std::vector<std::string> frames = process.names.stack_text(a.stack);
    if (frames.empty() || !frames.back().starts_with("validate")) continue;
    EXPECT_TRUE(
        std::any_of(found.begin(), found.end(), [&](const Phase& p) { return p.holds(a.birth); }));
  }
}

// What computes the loss keeps nothing of its own for the backward pass.
TEST(Phases, ALossIsPartOfItsTrainingStep) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 9; ++i) {
      const uint64_t kept = s.alloc(8 * kMiB, s.forward(1, "train train.py:10"));
      for (int part = 0; part < 6; ++part) {
        s.free(
            s.alloc(kMiB, s.stack({"mse_loss torch/nn/functional.py:3000", "loss train.py:11"})));
      }
      s.free(s.alloc(kMiB, 0));
      s.free(kept);
    }
  });
  EXPECT_TRUE(phases_of(trace, PhaseKind::kValidation).empty());
}

TEST(Phases, InferenceAloneHasNone) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    validate(s, t, 20, "serve serve.py:30");
  });
  EXPECT_TRUE(phases_of(trace, PhaseKind::kValidation).empty());
}

TEST(Phases, TrainingThatDiesInItsForwardPassIsNotValidation) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 3; ++i) t.step();
    t.forward(4);
    s.run_out(uint64_t{1} << 34, 0, s.forward(1));
  });
  EXPECT_TRUE(phases_of(trace, PhaseKind::kValidation).empty());
}

TEST(Phases, WhatStaysUntilTheEndIsNoValidation) {
  const auto tell = [](bool dies) {
    return [dies](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 3; ++i) t.step();
      t.forward(1, "capture train.py:40");
      if (dies) s.run_out(uint64_t{1} << 34, 0, s.forward(1, "capture train.py:40"));
    };
  };
  EXPECT_TRUE(phases_of(Trace(tell(false)), PhaseKind::kValidation).empty());
  EXPECT_EQ(phases_of(Trace(tell(true)), PhaseKind::kForwardOnly).size(), 1U);
}

// Of a function without a telling name, only what its passes are is known.
TEST(Phases, OnlyANameTellsThatPassesValidate) {
  const auto kinds = [](const char* line) {
    const Trace trace([&](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) {
        t.step();
        if (i % 2 == 1) validate(s, t, 3, line);
      }
    });
    return std::array{phases_of(trace, PhaseKind::kValidation).size(),
                      phases_of(trace, PhaseKind::kGeneration).size(),
                      phases_of(trace, PhaseKind::kForwardOnly).size()};
  };
  using Counts = std::array<size_t, 3>;
  for (const char* line : {"validate a.py:30", "Trainer.evaluate a.py:30", "run_test a.py:30",
                           "test_epoch a.py:30", "val_loop a.py:30", "accuracy a.py:30",
                           "runEval a.py:30", "Evaluator.run a.py:30", "compute_metrics a.py:30"}) {
    EXPECT_EQ(kinds(line), (Counts{3, 0, 0})) << line;
  }
  for (const char* line :
       {"collect a.py:30", "latest a.py:30", "interval a.py:30", "RetrievalTrainer.keys a.py:30",
        "invalidate a.py:30", "MetricLearner.encode a.py:30", "asymmetric a.py:30"}) {
    EXPECT_EQ(kinds(line), (Counts{0, 0, 3})) << line;
  }
  EXPECT_EQ(kinds("generate a.py:30"), (Counts{0, 3, 0}));
}

// What the program does once the function has returned is no part of it. What a loop around that
// function does between two calls is.
TEST(Phases, AValidationEndsWithItsFunction) {
  const auto tell = [](int calls) {
    return [calls](Story& s, uint32_t) {
      const auto pass = [&](const std::string& line) {
        for (int i = 0; i < 4; ++i) {
          s.free(s.alloc(8 * kMiB,
                         s.stack({"forward model.py:3", "_call_impl torch/nn/modules/module.py:1",
                                  "evaluate train.py:30", line, "main train.py:90"})));
        }
      };
      Training t(s, {});
      for (int i = 0; i < 6; ++i) {
        t.step();
        if (i % 2 == 0) continue;
        for (int k = 0; k < calls; ++k) {
          if (k != 0) s.free(s.alloc(kMiB, s.stack({"metrics train.py:71", "main train.py:90"})));
          pass("run train.py:70");
        }
        s.free(s.alloc(900 * kMiB, s.stack({"rebuild train.py:50", "main train.py:91"})));
      }
    };
  };
  for (const int calls : {1, 3}) {
    const Trace trace(tell(calls));
    const std::vector<Phase> found = phases_of(trace, PhaseKind::kValidation);
    ASSERT_EQ(found.size(), 3U) << calls;
    for (const Phase& p : found) EXPECT_LT(p.peak.bytes, 900 * kMiB);
    EXPECT_FALSE(trace.report().ranks[0].devices[0].peak_phase.has_value());
  }
}

// torch.autograd.grad(create_graph=True) uses a graph and frees none of it, and a list of losses
// keeps it. The generator's graph is used later. `evaluates`: and a validation keeps its graph
// until the next one.
Trace adversaries(bool evaluates) {
  return Trace([=](Story& s, uint32_t) {
    const auto pass = [&](const std::string& line, int blocks) {
      std::vector<uint64_t> made;
      for (int i = 0; i < blocks; ++i) made.push_back(s.alloc(4 * kMiB, s.forward(i, line)));
      return made;
    };
    const auto differentiate = [&](int blocks) {
      for (int i = 0; i < blocks; ++i) s.alloc(3 * kMiB, 0);
    };
    for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, s.setup());
    std::vector<uint64_t> evaluated;
    for (int step = 0; step < 8; ++step) {
      if (evaluates && step % 2 == 1) {
        std::vector<uint64_t> graph = pass("evaluate gan.py:95", 6);
        for (const uint64_t block : evaluated) s.free(block);
        evaluated = std::move(graph);
      }
      const std::vector<uint64_t> generated = pass("train gan.py:69", 5);
      pass("penalty gan.py:56", 6);
      differentiate(6);
      pass("train gan.py:75", 8);
      differentiate(8);
      s.free(s.alloc(2 * kMiB, s.optimizer("_multi_tensor_adam")));
      const std::vector<uint64_t> judged = pass("train gan.py:81", 5);
      for (size_t k = 5; k-- > 0;) {
        s.free(s.alloc(kMiB, 0));
        s.free(judged[k]);
        s.free(generated[k]);
      }
      s.free(s.alloc(2 * kMiB, 0));
      s.free(s.alloc(2 * kMiB, s.optimizer("_multi_tensor_adam")));
    }
    s.run_out(uint64_t{1} << 34, 0, s.forward(1, "train gan.py:69"));
  });
}

TEST(Phases, APassWhoseGradientIsDifferentiatedTrains) {
  for (const bool evaluates : {false, true}) {
    const Trace trace = adversaries(evaluates);
    EXPECT_EQ(phases_of(trace, PhaseKind::kValidation).size(), evaluates ? 4U : 0U);
    EXPECT_TRUE(phases_of(trace, PhaseKind::kForwardOnly).empty());
  }
}

TEST(Phases, SavingIsFoundByItsStack) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) {
      t.step();
      if (i % 2 == 0) continue;
      const uint32_t line =
          s.stack({"_all_gather torch/distributed/fsdp/_unshard.py:7",
                   "state_dict torch/nn/modules/module.py:2200", "save train.py:70"});
      const uint64_t whole = s.alloc(300 * kMiB, line);
      s.free(s.alloc(100 * kMiB, line));
      s.free(whole);
    }
  });
  const std::vector<Phase> found = phases_of(trace, PhaseKind::kSaving);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_GT(found[0].peak.bytes, 400 * kMiB);
  const Report report = trace.report();
  const DeviceReport& d = report.ranks[0].devices[0];
  ASSERT_TRUE(d.peak_phase.has_value());
  EXPECT_EQ(*d.peak_phase, PhaseKind::kSaving);
}

TEST(Phases, RangesNamedByTheProgramAreTrusted) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 4; ++i) t.step();
    s.range("Validation", MarkPhase::kBegin);
    validate(s, t, 2, "train train.py:10");  // the same line as training
    s.range("Validation", MarkPhase::kEnd);
    s.range("CheckpointFunction", MarkPhase::kBegin);
    t.step();
    s.range("CheckpointFunction", MarkPhase::kEnd);
  });
  EXPECT_EQ(phases_of(trace, PhaseKind::kValidation).size(), 1U);
  EXPECT_TRUE(phases_of(trace, PhaseKind::kSaving).empty());
  EXPECT_EQ(phases_of(trace, PhaseKind::kFirstStep).size(), 1U);
}

TEST(Phases, RangesAreReadByTheirWords) {
  const auto validations = [](const char* name) {
    const Trace trace([&](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 4; ++i) t.step();
      s.range(name, MarkPhase::kBegin);
      validate(s, t, 2, "train train.py:10");  // the same line as training
      s.range(name, MarkPhase::kEnd);
    });
    return phases_of(trace, PhaseKind::kValidation).size();
  };
  for (const char* name : {"run_eval", "Evaluate epoch 3", "valStep", "epoch 2: validation"}) {
    EXPECT_EQ(validations(name), 1U) << name;
  }
  for (const char* name : {"invalidate cache", "retrieval", "interval 7", "latest"}) {
    EXPECT_EQ(validations(name), 0U) << name;
  }
}

TEST(Phases, RangesThatEndWithoutANameArePairedByNumber) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (uint64_t i = 0; i < 4; ++i) {
      s.user_range("step", MarkPhase::kBegin, 2 * i + 1);
      t.step();
      s.user_range("step", MarkPhase::kEnd, 2 * i + 1);
      s.user_range("validation", MarkPhase::kBegin, 2 * i + 2);
      validate(s, t, 2, "train train.py:10");
      s.user_range("validation", MarkPhase::kEnd, 2 * i + 2);
    }
  });
  EXPECT_EQ(phases_of(trace, PhaseKind::kValidation).size(), 4U);
}

// A checkpointed pass keeps nothing; the backward pass runs its layers again.
TEST(Phases, ACheckpointedPassTrains) {
  const auto told = [](const std::string& file) {
    const Trace trace([&](Story& s, uint32_t) {
      const auto layer = [&](int line) {
        return s.stack({"forward torch/nn/modules/op.py:" + std::to_string(line),
                        "_call_impl torch/nn/modules/module.py:1", "checkpoint " + file + ":9",
                        "train train.py:10"});
      };
      for (int i = 0; i < 4; ++i) s.alloc(2 * kMiB, s.setup());
      for (int k = 0; k < 8; ++k) s.free(s.alloc(8 * kMiB, layer(k)));
      const uint64_t again = s.alloc(8 * kMiB, s.forward(1, "backward torch/autograd/graph.py:1"));
      for (int k = 0; k < 4; ++k) s.alloc(2 * kMiB, 0);
      s.free(again);
      s.alloc(kMiB, 0);
    });
    return phases_of(trace, PhaseKind::kForwardOnly).size();
  };
  EXPECT_EQ(told("torch/utils/checkpoint.py"), 0U);
  EXPECT_EQ(told("teacher.py"), 1U);
}

}  // namespace
}  // namespace tidemark
