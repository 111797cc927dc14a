// Blocks that were there before the history began have no stack: their sizes tell what they are.
#include <gtest/gtest.h>

#include <array>

#include "tests/support/category_bytes.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

// Bytes of a category at the end.
uint64_t bytes_of(const Trace& trace, Category category) {
  return bytes_where(trace, category, [](const AllocationHistory& model, size_t i) {
    return model.allocations.release(i) == kNever;
  });
}

// One request of a server that keeps what it computed for the last three.
TEST(OlderBlocks, CachesOfEarlierRequestsAreNoWeights) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(24 * kMiB, s.user(5));
    for (int token = 0; token < 6; ++token) {
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(3 * kMiB, s.forward(layer)));
      s.free(s.alloc(kMiB, s.user(6)));
    }
    for (int i = 0; i < 3; ++i) s.older_block(24 * kMiB);
    for (int i = 0; i < 4; ++i) s.older_block(16 * kMiB);
  });
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 4 * 16 * kMiB);
}

constexpr std::array<uint64_t, 3> kWeights = {6 * kMiB, 5 * kMiB, 3 * kMiB};

void older_copies(Story& s, int count) {
  for (int copy = 0; copy < count; ++copy) {
    for (const uint64_t bytes : kWeights) s.older_block(bytes);
  }
}

// A step of a training loop whose optimizer allocates nothing. With several parts, each computes
// all gradients before it adds them to those of the first.
void accumulate(Story& s, int parts) {
  std::vector<uint64_t> sums;
  for (int part = 0; part < parts; ++part) {
    const uint64_t input = s.alloc(2 * kMiB, s.user(8));
    std::vector<uint64_t> kept;
    for (int k = 0; k < 3; ++k) kept.push_back(s.alloc(8 * kMiB, s.forward(k + 1)));
    std::vector<uint64_t> gradients;
    for (const uint64_t bytes : kWeights) gradients.push_back(s.alloc(bytes, 0));
    for (const uint64_t block : kept) s.free(block);
    if (part == 0) {
      sums = gradients;
    } else {
      for (const uint64_t block : gradients) s.free(block);
    }
    s.free(input);
  }
  for (const uint64_t block : sums) s.free(block);
}

// Weights, one state of each, and an average of them that the program keeps.
Trace recorded_late(int steps, int parts, bool average) {
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < steps; ++i) accumulate(s, parts);
    older_copies(s, average ? 3 : 2);
  });
}

TEST(OlderBlocks, ThereAreAsManyParametersAsGradientsAtOnce) {
  for (const int steps : {1, 12}) {
    for (const int parts : {1, 4}) {
      const Trace trace = recorded_late(steps, parts, false);
      EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB) << steps << " " << parts;
      EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 14 * kMiB) << steps << " " << parts;
    }
  }
}

TEST(OlderBlocks, AThirdCopyIsNoStateUnlessTheOptimizerCountsSteps) {
  const Trace trace = recorded_late(6, 1, true);
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 14 * kMiB);
}

// Forward passes have results of 8 MiB; no gradient has that size.
TEST(OlderBlocks, AnEarlierResultIsNoParameter) {
  for (const int held : {1, 3}) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 3; ++i) accumulate(s, 1);
      older_copies(s, 2);
      for (int i = 0; i < held; ++i) s.older_block(8 * kMiB);
    });
    // Of weights that are not trained there would be more.
    EXPECT_EQ(bytes_of(trace, Category::kParameter), (held == 1 ? 14 : 38) * kMiB) << held;
  }
}

// It replaces its state, or keeps those that it has.
TEST(OlderBlocks, AnOptimizerThatStepsAloneHasGradients) {
  const Trace trace([](Story& s, uint32_t) {
    const uint32_t step = s.optimizer("_multi_tensor_adam");
    for (const uint64_t bytes : kWeights) s.free(s.alloc(bytes, step));
    older_copies(s, 4);
  });
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kGradient), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 28 * kMiB);
}

// The end of a first step, as a full ring keeps it: only the parameters have no stack.
TEST(OlderBlocks, GradientsAndStatesWithStacksAreNotSoughtAmongThem) {
  for (const bool in_backward : {false, true}) {
    const Trace trace([=](Story& s, uint32_t) {
      const uint32_t step = s.optimizer("_single_tensor_adam");
      older_copies(s, 1);
      for (const uint64_t bytes : kWeights) {
        for (int i = 0; i < 2; ++i) s.older_block(bytes, s.optimizer("_init_group"));
        if (bytes == kWeights.back() && in_backward) {
          s.alloc(bytes, s.node("MmBackward0"));
        } else {
          s.older_block(bytes, s.node("MmBackward0"));
        }
      }
      for (const uint64_t bytes : kWeights) s.free(s.alloc(bytes, step));
    });
    EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB) << in_backward;
    EXPECT_EQ(bytes_of(trace, Category::kGradient), 14 * kMiB) << in_backward;
    EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 28 * kMiB) << in_backward;
  }
}

// A step under FSDP on two ranks: parameters are gathered one by one, and the gradients of all of
// them are reduced as one block. Nothing shows the optimizer.
void sharded_step(Story& s) {
  const std::string in = " torch/distributed/fsdp/_collectives.py:";
  const uint32_t gather = s.stack({"allocate" + in + "2", "unshard" + in + "3", "work train.py:7"});
  const uint32_t reduce =
      s.stack({"foreach_reduce" + in + "5", "backward torch/autograd/function.py:3"});
  std::vector<uint64_t> kept;
  for (const uint64_t bytes : kWeights) {
    const uint64_t whole = s.alloc(2 * bytes, gather);
    kept.push_back(s.alloc(8 * kMiB, s.forward(static_cast<int>(kept.size()) + 1)));
    s.free(whole);
  }
  s.free(s.alloc(kMiB, 0));
  const uint64_t whole = s.alloc(28 * kMiB, reduce);
  const uint64_t gradients = s.alloc(14 * kMiB, reduce);
  for (const uint64_t block : kept) s.free(block);
  s.free(s.alloc(kMiB / 2, s.user(9)));
  s.free(whole);
  s.free(gradients);
}

TEST(OlderBlocks, ShardsAndTheirStatesAreCounted) {
  const Trace trace([](Story& s, uint32_t) {
    sharded_step(s);
    older_copies(s, 2);
  });
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 14 * kMiB);
}

// As many as parameters and states, but nothing of that size is ever gathered.
TEST(OlderBlocks, BatchesThatAreKeptAreNoShards) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(4 * kMiB, s.user(6));
    sharded_step(s);
    older_copies(s, 2);
    for (int i = 0; i < 2; ++i) s.older_block(4 * kMiB);
  });
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 14 * kMiB);
}

// Four copies are older than the history, and each step adds one.
TEST(OlderBlocks, CopiesOfTheModelThatTheProgramCollectsAreNeitherShardsNorStates) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 12; ++i) {
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_adam")));
      sharded_step(s);
      for (const uint64_t bytes : kWeights) s.alloc(bytes, s.user(11));
    }
    older_copies(s, 3 + 4);
  });
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), 2 * 14 * kMiB);
}

// Activations of the size of cuBLAS's workspace, in a run that ended before they were freed:
// several of one line are its results.
TEST(OlderBlocks, OneWorkspaceForAStream) {
  const auto workspace = [](bool alone) {
    const Trace trace([alone](Story& s, uint32_t) {
      if (alone) s.alloc(32 * kMiB, s.forward(2));
      for (int k = 0; k < 10; ++k) s.alloc(32 * kMiB, s.forward(1));
      s.run_out(32 * kMiB, 0, s.forward(1));
    });
    return bytes_of(trace, Category::kWorkspace);
  };
  EXPECT_EQ(workspace(true), 32 * kMiB);
  EXPECT_EQ(workspace(false), 0U);
}

// Modules and an optimizer that the program wrote itself: no frame of torch.nn or torch.optim.
TEST(OlderBlocks, ConstructorsOfTheProgramMakeTheModelAndItsStates) {
  const auto made = [](Story& s, const std::string& file, int line) {
    return s.stack({"__init__ " + file + ":" + std::to_string(line), "train train.py:3"});
  };
  const auto model = [&](Story& s) {
    for (const uint64_t bytes : kWeights) s.alloc(bytes, made(s, "layers.py", 7));
  };
  const Trace training([&](Story& s, uint32_t) {
    model(s);
    for (const uint64_t bytes : kWeights) s.alloc(bytes, made(s, "momentum.py", 9));
    s.alloc(40 * kMiB, made(s, "dataset.py", 4));
    for (int i = 0; i < 6; ++i) accumulate(s, 1);
  });
  EXPECT_EQ(bytes_of(training, Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_of(training, Category::kOptimizerState), 14 * kMiB);
  EXPECT_EQ(bytes_of(training, Category::kInput), 0);
  const Trace inference([&](Story& s, uint32_t) {
    model(s);
    for (int pass = 0; pass < 4; ++pass) {
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(3 * kMiB, s.forward(layer)));
    }
  });
  EXPECT_EQ(bytes_of(inference, Category::kParameter), 14 * kMiB);
  // A copy of a model of torch.nn, such as an average, is none of its parameters.
  const Trace average([&](Story& s, uint32_t) {
    for (const uint64_t bytes : kWeights) s.alloc(bytes, s.setup());
    model(s);
    for (int i = 0; i < 6; ++i) accumulate(s, 1);
  });
  EXPECT_EQ(bytes_of(average, Category::kParameter), 14 * kMiB);
  // One buffer is no model.
  const Trace buffer([&](Story& s, uint32_t) {
    s.alloc(40 * kMiB, made(s, "cache.py", 4));
    for (int pass = 0; pass < 4; ++pass) {
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(3 * kMiB, s.forward(layer)));
    }
    s.older_block(40 * kMiB);
    s.older_block(9 * kMiB);
  });
  EXPECT_EQ(bytes_of(buffer, Category::kParameter), 9 * kMiB);
}

// An optimizer of the program that replaces weights and states instead of changing them.
TEST(OlderBlocks, WhatConstructorsMadeIsNoInputIfTheFirstStepReplacesIt) {
  const Trace trace([](Story& s, uint32_t) {
    const auto made = [&](const std::string& place) {
      return s.stack({"__init__ " + place, "train train.py:3"});
    };
    const uint32_t replaced = s.stack({"step momentum.py:20", "train train.py:9"});
    std::vector<uint64_t> held;
    for (const uint64_t bytes : kWeights) held.push_back(s.alloc(bytes, made("layers.py:7")));
    for (const uint64_t bytes : kWeights) held.push_back(s.alloc(bytes, made("momentum.py:9")));
    for (int step = 0; step < 6; ++step) {
      const uint64_t input = s.alloc(8 * kMiB, s.stack({"train train.py:5"}));
      const uint64_t result = s.alloc(8 * kMiB, s.forward(1));
      std::vector<uint64_t> gradients;
      for (const uint64_t bytes : kWeights) gradients.push_back(s.alloc(bytes, 0));
      s.free(result);
      s.free(s.alloc(512, s.stack({"train train.py:7"})));
      for (size_t i = 0; i < held.size(); ++i) {
        const uint64_t anew = s.alloc(kWeights[i % std::size(kWeights)], replaced);
        s.free(held[i]);
        held[i] = anew;
      }
      for (const uint64_t gradient : gradients) s.free(gradient);
      s.free(input);
    }
  });
  EXPECT_EQ(bytes_at(trace, "__init__ layers.py:7", Category::kParameter), 14 * kMiB);
  EXPECT_EQ(bytes_at(trace, "__init__ momentum.py:9", Category::kOptimizerState), 14 * kMiB);
}

// Bytes of states among all blocks that are older than the history.
uint64_t older_states(const Trace& trace) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
  uint64_t states = 0;
  for (size_t i = 0; i < found.of.size(); ++i) {
    if (!model.allocations.seeded(i) || found.of[i] != Category::kOptimizerState) continue;
    states += model.allocations.block_bytes(i);
  }
  return states;
}

// An optimizer that replaces its states in each step, recorded from the second step on.
TEST(OlderBlocks, StatesThatAreReplacedAreNoGradients) {
  const Trace trace([](Story& s, uint32_t) {
    std::array<uint64_t, kWeights.size()> states{};
    for (int i = 0; i < 3; ++i) {
      accumulate(s, 1);
      for (size_t k = 0; k < kWeights.size(); ++k) {
        const uint64_t now = s.alloc(kWeights[k], s.optimizer("step"));
        i == 0 ? s.free_older(kWeights[k]) : s.free(states[k]);
        states[k] = now;
      }
      s.free(s.alloc(kMiB, s.optimizer("step")));
    }
    for (const uint64_t bytes : kWeights) s.older_block(bytes);
  });
  EXPECT_EQ(older_states(trace), 14 * kMiB);
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
}

// A history that began in a forward pass: its backward pass frees older activations, the last ones
// after its last allocation.
TEST(OlderBlocks, ActivationsThatTheFirstPassFreesAreNoStates) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3; ++i) {
      std::vector<uint64_t> kept;
      for (int k = i == 0 ? 2 : 0; k < 4; ++k) kept.push_back(s.alloc(8 * kMiB, s.forward(k)));
      std::vector<uint64_t> gradients;
      for (const uint64_t bytes : kWeights) gradients.push_back(s.alloc(bytes, 0));
      for (const uint64_t block : kept) s.free(block);
      for (int k = 0; k < 2 && i == 0; ++k) s.free_older(8 * kMiB);
      for (int k = 0; k < 3; ++k) s.free(s.alloc(kMiB, s.optimizer("step")));
      for (const uint64_t block : gradients) s.free(block);
    }
    for (const uint64_t bytes : kWeights) s.older_block(bytes);
  });
  EXPECT_EQ(older_states(trace), 0U);
}

// Between two of its gradients, a backward pass frees what an earlier forward pass has saved.
TEST(OlderBlocks, WhatABackwardPassFreesAreActivations) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3; ++i) {
      std::vector<uint64_t> kept;
      for (int k = i == 0 ? 2 : 0; k < 4; ++k) kept.push_back(s.alloc(8 * kMiB, s.forward(k)));
      std::vector<uint64_t> gradients;
      for (size_t k = 0; k < kWeights.size(); ++k) {
        gradients.push_back(s.alloc(kWeights[k], 0));
        if (i == 0 && k < 2) s.free_older(8 * kMiB);
      }
      for (const uint64_t block : kept) s.free(block);
      for (int k = 0; k < 3; ++k) s.free(s.alloc(kMiB, s.optimizer("step")));
      for (const uint64_t block : gradients) s.free(block);
    }
    for (const uint64_t bytes : kWeights) s.older_block(bytes);
  });
  const auto seeded = [](const AllocationHistory& model, size_t i) {
    return model.allocations.seeded(i);
  };
  EXPECT_EQ(bytes_where(trace, Category::kActivation, seeded), 16 * kMiB);
}

// A list of changes to try for each weight, held over many passes without gradients.
TEST(OlderBlocks, CopiesOfTheModelAreNoCache) {
  const Trace trace([](Story& s, uint32_t) {
    for (const uint64_t bytes : kWeights) s.alloc(bytes, s.setup());
    for (const uint64_t bytes : kWeights) s.alloc(bytes, s.user(5));
    for (int pass = 0; pass < 8; ++pass) {
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(2 * kMiB, s.forward(layer)));
      if (pass == 1) {
        for (const uint64_t bytes : kWeights) s.alloc(bytes, s.user(6));
      }
    }
  });
  EXPECT_EQ(bytes_of(trace, Category::kKvCache), 0);
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB);
}

// A step of a program that never clears its gradients, or sets them to zero: each new one is added
// and freed at once.
void add_to_gradients(Story& s) {
  std::vector<uint64_t> kept;
  for (int k = 0; k < 3; ++k) kept.push_back(s.alloc(8 * kMiB, s.forward(k + 1)));
  for (const uint64_t bytes : kWeights) {
    s.free(s.alloc(bytes, 0));
    s.free(kept.back());
    kept.pop_back();
  }
}

TEST(OlderBlocks, GradientsThatAreAddedToAreOlder) {
  for (const int sets : {1, 2, 3, 4}) {
    const Trace trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 5; ++i) add_to_gradients(s);
      older_copies(s, sets);
    });
    EXPECT_EQ(bytes_of(trace, Category::kParameter), 14 * kMiB) << sets;
    EXPECT_EQ(bytes_of(trace, Category::kGradient), sets > 1 ? 14 * kMiB : 0) << sets;
    const uint64_t states = sets > 2 ? static_cast<uint64_t>(sets) - 2 : 0;
    EXPECT_EQ(bytes_of(trace, Category::kOptimizerState), states * 14 * kMiB) << sets;
  }
}

// Adam has updated each parameter within the backward pass.
TEST(OlderBlocks, ThreeSetsOfAdamHaveNoGradient) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 5; ++i) {
      add_to_gradients(s);
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_adam")));
    }
    older_copies(s, 3);
  });
  EXPECT_EQ(bytes_of(trace, Category::kGradient), 0U);
}

}  // namespace
}  // namespace tidemark
