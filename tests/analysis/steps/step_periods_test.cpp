// How long a step is, and that the devices of a process agree on it.
#include <gtest/gtest.h>

#include <optional>

#include "analysis/steps/steps.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

uint32_t steps_on(const Trace& trace, size_t device) {
  const ProcessModel& process = trace.model().processes[0];
  return find_steps(process, process.framework[device], StackRoles(process)).count();
}

// One line prepares a batch, runs the model and collects its result; every tenth time another line
// joins the results.
TEST(StepPeriods, AnIterationIsShorterThanTheTimeBetweenItsLogs) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const std::string line = "main infer.py:20";
    const auto in_model = [&](int number) {
      return s.stack({"forward model.py:" + std::to_string(number),
                      "_call_impl torch/nn/modules/module.py:1", line});
    };
    std::vector<uint64_t> results;
    for (int i = 0; i < 60; ++i) {
      const uint64_t input = s.alloc(4 * kMiB, s.stack({"batch infer.py:4", line}));
      const uint64_t hidden = s.alloc(16 * kMiB, in_model(5));
      const uint64_t output = s.alloc(4 * kMiB, in_model(6));
      s.free(hidden);
      results.push_back(s.alloc(4096, s.stack({line})));
      s.free(output);
      s.free(input);
      if (i % 10 != 9) continue;
      s.free(s.alloc(40960, s.stack({"main infer.py:22"})));
      for (const uint64_t block : results) s.free(block);
      results.clear();
    }
  });
  EXPECT_EQ(steps_on(trace, 0), 60U);
}

// A server calls one function for each request. It makes a longer cache with every token, of which
// there are many, and no line reads the prompt.
TEST(StepPeriods, ARequestIsLongerThanATokenOfIt) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    const auto line = [&](int number) {
      return s.stack({"decode serve.py:" + std::to_string(number), "serve serve.py:30"});
    };
    for (int request = 0; request < 12; ++request) {
      uint64_t cache = s.alloc(4 * kMiB, line(10));
      for (uint64_t token = 1; token <= 40; ++token) {
        s.free(s.alloc(64 << 10, s.forward(2, "decode serve.py:12")));
        const uint64_t longer = s.alloc(4 * kMiB + (token << 12), line(14));
        s.free(cache);
        cache = longer;
      }
      s.free(cache);
    }
  });
  EXPECT_EQ(steps_on(trace, 0), 12U);
}

const std::string kCall = "_call_impl torch/nn/modules/module.py:1";

// A model whose layers are all called by one line of it.
void run_layers(Story& s, const std::vector<std::string>& callers) {
  std::optional<uint64_t> hidden;
  for (int layer = 0; layer < 3; ++layer) {
    for (const int line : {40, 43}) {
      std::vector<std::string> frames = {"forward model.py:" + std::to_string(line), kCall,
                                         "forward model.py:90", kCall};
      frames.insert(frames.end(), callers.begin(), callers.end());
      const uint64_t next = s.alloc(2 * kMiB, s.stack(frames));
      if (hidden) s.free(*hidden);
      hidden = next;
    }
  }
  s.free(*hidden);
}

// Requests that allocate at one line only, until some begin to keep their results.
TEST(StepPeriods, RequestsCountBeforeTheyLeak) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int i = 0; i < 60; ++i) {
      run_layers(s, {"handle serve.py:30", "serve serve.py:5"});
      if (i >= 40) {
        s.alloc(4 * kMiB, s.stack({"put late.py:9", "handle serve.py:33", "serve serve.py:5"}));
      }
    }
  });
  EXPECT_EQ(steps_on(trace, 0), 60U);
}

// Requests come now and then, and run side by side for many steps of an engine.
TEST(StepPeriods, AnEngineStepsWithoutNewRequests) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    std::vector<std::vector<uint64_t>> running;
    for (int i = 0; i < 90; ++i) {
      const std::string admits = "engine_loop engine.py:52";
      if (i % 3 == 0) {
        std::vector<uint64_t> pages;
        for (int page = 0; page < 4; ++page) {
          pages.push_back(s.alloc(4 * kMiB, s.stack({"admit engine.py:71", admits})));
        }
        running.push_back(std::move(pages));
        run_layers(s, {"prefill engine.py:75", admits});
      }
      const std::string steps = "engine_loop engine.py:55";
      run_layers(s, {"step engine.py:90", steps});
      s.free(s.alloc(kMiB, s.stack({"step engine.py:93", steps})));
      if (running.size() < 5) continue;
      for (const uint64_t page : running.front()) s.free(page);
      running.erase(running.begin());
    }
  });
  EXPECT_EQ(steps_on(trace, 0), 90U);
}

// The batch is prepared below the line that calls a frozen model.
TEST(StepPeriods, AStepMayBeginBelowItsFirstLine) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int i = 0; i < 6; ++i) {
      const uint64_t batch = s.alloc(4 * kMiB, s.stack({"train train.py:20"}));
      s.free(s.alloc(16 * kMiB, s.forward(3, "train train.py:10")));
      const uint64_t kept = s.alloc(16 * kMiB, s.forward(3, "train train.py:22"));
      const uint64_t gradient = s.alloc(20 * kMiB, 0);
      s.free(kept);
      s.free(s.alloc(20 * kMiB, s.stack({"step torch/optim/adam.py:9", "train train.py:30"})));
      s.free(gradient);
      s.free(batch);
    }
  });
  EXPECT_EQ(steps_on(trace, 0), 6U);
}

// Iterations without stacks and marks, where every one requests each size several times and
// only the log has one of its own. Iterations whose gradients add up are parts of a step.
TEST(StepPeriods, AnIterationIsShorterThanTheTimeBetweenItsLogsWithoutStacks) {
  const auto run = [](bool accumulates) {
    return Trace([accumulates](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, 0);
      std::vector<uint64_t> gradients;
      for (int i = 0; i < 60; ++i) {
        std::vector<uint64_t> kept;
        for (uint64_t k = 0; k < 12; ++k) kept.push_back(s.alloc((4 + 4 * (k % 3)) * kMiB, 0));
        for (; !kept.empty(); kept.pop_back()) {
          const uint64_t passed = s.alloc(4 * kMiB, 0);
          gradients.push_back(s.alloc(2 * kMiB, 0));
          s.free(kept.back());
          s.free(passed);
        }
        const bool ends = i % 10 == 9;
        if (!accumulates || ends) {
          for (const uint64_t block : gradients) s.free(block);
          gradients.clear();
        }
        if (ends) s.free(s.alloc(27 * kMiB, 0));
      }
    });
  };
  // The first iteration and the last are not between two of them.
  EXPECT_NEAR(steps_on(run(false), 0), 60, 1);
  EXPECT_LE(steps_on(run(true), 0), 7U);
}

// The program uses the second device only from its second step on.
TEST(StepPeriods, DevicesOfAProcessHaveTheSameSteps) {
  const Trace trace([](Story& s, uint32_t) {
    s.device(1, "GPU-2");
    for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
    for (int i = 0; i < 10; ++i) {
      for (const int64_t device : {0, 1}) {
        if (device == 1 && i == 0) continue;
        s.use_device(device);
        s.on(static_cast<uint64_t>(device), 0);
        std::vector<uint64_t> kept;
        for (int k = 1; k < 6; ++k) kept.push_back(s.alloc(8 * kMiB, s.forward(k)));
        for (; !kept.empty(); kept.pop_back()) {
          s.free(s.alloc(8 * kMiB, 0));
          s.free(kept.back());
        }
        if (device == 1) s.alloc(4 * kMiB, s.user(50));
      }
      s.optimizer_mark();
    }
  });
  EXPECT_EQ(steps_on(trace, 0), 10U);
  EXPECT_EQ(steps_on(trace, 1), 10U);
  const ProcessModel& process = trace.model().processes[0];
  const Steps second = find_steps(process, process.framework[1], StackRoles(process));
  EXPECT_EQ(second.growth_bytes_per_step, 4.0 * kMiB);
  ASSERT_FALSE(second.growing.empty());
  EXPECT_EQ(process.names.stack_text(second.growing[0].stack)[0], "work train.py:50");
}

}  // namespace
}  // namespace tidemark
