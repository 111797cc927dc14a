// Steps of programs that serve requests, from the calls of their functions and of their models.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/step_story.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

// The layers of a model that the program calls at the end of these frames.
void pass(Story& s, const std::vector<std::string>& callers, uint64_t bytes, int model = 20) {
  for (int layer = 0; layer < 6; ++layer) {
    std::vector<std::string> frames = {"forward model.py:" + std::to_string(model + layer),
                                       "_call_impl torch/nn/modules/module.py:1"};
    frames.insert(frames.end(), callers.begin(), callers.end());
    s.free(s.alloc(bytes, s.stack(frames)));
  }
}

// Conversations of which some are in a cache: only the others allocate before the prompt is read,
// which is the line that adds the tokens, too.
Steps chatted(int turns, int miss_of, int tokens) {
  return steps_told([=](Story& s) {
    std::vector<uint64_t> cache;
    for (int i = 0; i < turns; ++i) {
      if (i % miss_of == 0) {
        cache.push_back(s.alloc(16 * kMiB, s.stack({"turn chat.py:110", "main chat.py:134"})));
        if (cache.size() > 4) {
          s.free(cache.front());
          cache.erase(cache.begin());
        }
      }
      for (int k = 0; k <= tokens; ++k) {
        const uint64_t ids = s.alloc(512, s.stack({"turn chat.py:113", "main chat.py:134"}));
        pass(s, {"turn chat.py:113", "main chat.py:134"},
             static_cast<uint64_t>(k == 0 ? 40 + i % 60 : 1) * kMiB);
        s.free(s.alloc(512, s.stack({"turn chat.py:114", "main chat.py:134"})));
        s.free(ids);
      }
    }
  });
}

TEST(ServingSteps, EachPromptBeginsARequest) {
  EXPECT_EQ(chatted(60, 3, 5).count(), 60U);
  EXPECT_EQ(chatted(40, 2, 12).count(), 40U);
  EXPECT_EQ(chatted(40, 1, 12).count(), 40U);
  EXPECT_LT(chatted(60, 3, 5).confidence, 0.9);
  EXPECT_EQ(chatted(1, 1, 30).source, StepSource::kNone);
}

// Requests are admitted by a function, several at once, and advanced together by another.
TEST(ServingSteps, AnEngineMayAdmitSeveralRequests) {
  const auto served = [](const std::function<int(int)>& admitted) {
    return steps_told([&](Story& s) {
      s.alloc(256 * kMiB, s.stack({"__init__ engine.py:5", "main engine.py:86"}));
      for (int i = 0; i < 120; ++i) {
        for (int k = 0; k < admitted(i); ++k) {
          const uint64_t ids =
              s.alloc(4096, s.stack({"prefill engine.py:20", "serve engine.py:60"}));
          pass(s, {"prefill engine.py:22", "serve engine.py:60"}, 64 * kMiB);
          s.free(ids);
        }
        const uint64_t ids = s.alloc(4096, s.stack({"decode engine.py:30", "serve engine.py:62"}));
        pass(s, {"decode engine.py:35", "serve engine.py:62"}, kMiB);
        s.free(ids);
      }
    });
  };
  const Steps engine = served([](int i) { return i % 6 == 0 || i % 6 == 1 ? 1 + i % 3 : 0; });
  EXPECT_EQ(engine.count(), 120U);
  EXPECT_LT(engine.confidence, 0.9);
  EXPECT_EQ(served([](int i) { return i % 10 == 0 ? 1 : 0; }).count(), 12U) << "tokens of requests";
}

// The input of each call is allocated at the line of the call, so that no line is seen to go back.
TEST(ServingSteps, CallsAtOneLineAreSteps) {
  const auto called = [](int requests, bool function, bool of_two_lines) {
    return steps_told([=](Story& s) {
      for (int i = 0; i < requests; ++i) {
        const uint64_t input = s.alloc(kMiB, s.stack({"main serve.py:60"}));
        if (function) {
          const uint64_t cache =
              s.alloc(32 * kMiB, s.stack({"answer serve.py:30", "main serve.py:60"}));
          pass(s, {"answer serve.py:31", "main serve.py:60"}, 4 * kMiB);
          for (int token = 0; token < 4; ++token) {
            pass(s, {"answer serve.py:33", "main serve.py:60"}, kMiB / 4);
          }
          s.free(cache);
        } else {
          pass(s, {"main serve.py:60"}, 4 * kMiB);
          for (int k = 0; of_two_lines && k < 3; ++k) {
            s.free(s.alloc(512, s.stack({"main serve.py:61"})));
            pass(s, {"main serve.py:61"}, kMiB / 4, 40);
          }
        }
        s.free(input);
      }
    });
  };
  EXPECT_EQ(called(30, true, false).count(), 30U);
  EXPECT_EQ(called(30, false, false).count(), 30U);
  EXPECT_LT(called(30, true, false).confidence, 0.9);
  EXPECT_EQ(called(30, false, true).count(), 30U) << "the second line goes back to the first";
  EXPECT_EQ(called(2, true, false).source, StepSource::kNone);
}

// A model whose own functions call its layers, so that no call of a module is around the loop over
// them. It reads a prompt, then adds tokens: without other requests, there are no steps.
TEST(ServingSteps, LayersOfAnOnlyAnswerAreNoSteps) {
  const Steps steps = steps_told([](Story& s) {
    uint64_t x = s.alloc(kMiB, s.stack({"main serve.py:170"}));
    const auto layers = [&](const std::string& function, int line, const std::string& caller,
                            uint64_t bytes) {
      for (int layer = 0; layer < 8; ++layer) {
        for (int k = 0; k < 2; ++k) {
          const std::vector<std::string> callers = {
              function + " model.py:" + std::to_string(line + k), caller, "main serve.py:173"};
          std::vector<std::string> frames = {"forward torch/nn/modules/linear.py:10",
                                             "_call_impl torch/nn/modules/module.py:1"};
          frames.insert(frames.end(), callers.begin(), callers.end());
          s.free(s.alloc(bytes, s.stack(frames)));
          const uint64_t next = s.alloc(bytes, s.stack(callers));
          s.free(x);
          x = next;
        }
      }
    };
    layers("Decoder.prefill", 112, "complete serve.py:145", 64 * kMiB);
    for (int token = 0; token < 24; ++token) {
      s.free(s.alloc(512, s.stack({"complete serve.py:149", "main serve.py:173"})));
      layers("Decoder.step", 122, "complete serve.py:151", kMiB);
    }
    s.free(x);
  });
  EXPECT_EQ(steps.source, StepSource::kNone) << steps.count();
}

// Each graph is captured after some passes without it. Then the graphs run, and allocate nothing.
TEST(ServingSteps, WarmUpsOfGraphsAreNoSteps) {
  for (const int warm_ups : {1, 2, 3, 11}) {
    const Steps steps = steps_told([=](Story& s) {
      for (uint32_t graph = 1; graph <= 6; ++graph) {
        s.alloc(kMiB, s.stack({"__init__ serve.py:12", "main serve.py:80"}));
        for (int i = 0; i < warm_ups; ++i) {
          pass(s, {"__init__ serve.py:14", "main serve.py:80"}, graph * kMiB);
        }
        s.on(0, graph);
        pass(s, {"__init__ serve.py:18", "main serve.py:80"}, graph * kMiB);
        s.on(0, 0);
      }
      for (int i = 0; i < 40; ++i) {
        s.free(s.alloc(4096, s.stack({"reply serve.py:40", "main serve.py:84"})));
      }
    });
    EXPECT_EQ(steps.source, StepSource::kNone) << warm_ups;
  }
}

}  // namespace
}  // namespace tidemark
