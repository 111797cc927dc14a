// Runs that end with an out-of-memory error: the cause, and advice although the recording ends in
// the middle of a step. Growth of programs without steps, which ends there as well.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "analysis/insight/card/limit.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "tests/support/finding_parts.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Ids = std::vector<std::string>;

// Every run has some holes, and some setting of the allocator with which one more request fits.
TEST(OutOfMemory, FewHolesAreNotTheCause) {
  for (const uint64_t scale : {1U, 3U}) {
    const Trace trace([scale](Story& s, uint32_t) {
      for (int i = 0; i < 40; ++i) s.alloc(scale * 26 * kMiB, s.forward(1));
      const uint64_t freed[] = {s.alloc(scale * 20 * kMiB, s.forward(2)),
                                s.alloc(scale * 20 * kMiB, s.forward(2))};
      for (const uint64_t block : freed) s.free(block);
      for (int i = 0; i < 2; ++i) s.alloc(scale * 12 * kMiB, s.forward(3));
      s.run_out(scale * 14 * kMiB, 0, s.forward(4));
    });
    EXPECT_EQ(trace.finding("fragmentation").severity, "") << scale;
    EXPECT_EQ(trace.finding("capacity").severity, kError) << scale;
  }
}

// Steps that needed as much have passed: holes of a tenth are to blame, but not those of a first
// step.
TEST(OutOfMemory, HolesThatOtherStepsDidNotHaveAreTheCause) {
  const auto run = [](int steps) {
    return Trace([steps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < steps; ++i) t.step(4);
      for (int i = 0; i < 5; ++i) s.alloc(72 * kMiB, s.user(5));
      s.run_out(20 * kMiB, 0, s.forward(1));
    });
  };
  EXPECT_EQ(run(4).finding("fragmentation").severity, kError);
}

// Where lengths vary, no step has needed as much yet. In the backward pass a step needs less and
// less: what would have fitted without holes failed for them. In the forward pass more would
// follow.
TEST(OutOfMemory, HolesAreTheCauseInABackwardPassThatWouldHaveFitted) {
  const auto fails = [](bool in_backward) {
    const Trace trace([in_backward](Story& s, uint32_t) {
      Training t(s, {});
      for (const uint64_t length : {10U, 13U, 11U, 12U, 9U}) t.step(length);
      t.forward(15);
      s.empty_cache(0);  // as the allocator does before it fails
      s.run_out(160 * kMiB, 150 * kMiB, in_backward ? 0 : s.forward(1));
    });
    const MemoryTotals at = trace.model().processes[0].framework[0].totals_after(
        trace.model().processes[0].framework[0].failures.back().event);
    const uint64_t holes = at.reserved - at.active;
    EXPECT_GT(holes, at.reserved / 20);
    EXPECT_LT(holes, at.reserved / 7);
    return trace.finding("fragmentation").severity;
  };
  EXPECT_EQ(fails(true), kError);
  EXPECT_EQ(fails(false), "");
}

// One process with two cards, as with device_map or DataParallel.
TEST(OutOfMemory, AnEmptyCardBesideTheFullOneIsTold) {
  const auto run = [](uint64_t other, const char* caller, bool fails = true) {
    return Trace([=](Story& s, uint32_t) {
      s.device(1, "GPU-2");
      s.use_device(1);
      s.alloc(other, s.forward(1, caller));
      s.use_device(0);
      for (int i = 0; i < 10; ++i) s.alloc(100 * kMiB, s.forward(2, caller));
      if (fails) s.run_out(200 * kMiB, 0, s.forward(3, caller));
    });
  };
  const Finding f = run(300 * kMiB, "train train.py:10").finding("device_imbalance");
  EXPECT_EQ(f.severity, kWarning);
  EXPECT_EQ(f.device, 0);
  EXPECT_NE(advice_of(f, "balance_devices"), nullptr);
  EXPECT_EQ(run(600 * kMiB, "train train.py:10").finding("device_imbalance").severity, "");
  EXPECT_EQ(run(32 * kMiB, "train train.py:10").finding("device_imbalance").severity, "")
      << "stray";
  EXPECT_EQ(run(300 * kMiB, "train train.py:10", false).finding("device_imbalance").severity, "");
  const Finding parallel = run(300 * kMiB, "forward /p/torch/nn/parallel/data_parallel.py:200")
                               .finding("device_imbalance");
  EXPECT_NE(advice_of(parallel, "use_ddp"), nullptr);
}

// A first pass that fails may be of a program that does not train.
TEST(OutOfMemory, OnlyTrainingAccumulates) {
  const auto advice = [](int steps) {
    const Trace trace = Trace::on_card(1024 * kMiB, [steps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < steps; ++i) t.step();
      s.alloc(16 * kMiB, s.user(8));
      t.forward(4);
      s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
    });
    const Finding f = trace.finding("capacity");
    const Advice* const half = advice_of(f, "halve_batch");
    return half == nullptr ? "" : half->detail;
  };
  EXPECT_TRUE(advice(4).starts_with("halving the batch (with twice the accumulation steps) saves"))
      << advice(4);
  EXPECT_TRUE(advice(0).starts_with("halving the batch saves")) << advice(0);
}

TEST(OutOfMemory, TheFirstForwardPassHasAdvice) {
  const Trace trace = Trace::on_card(1024 * kMiB, [](Story& s, uint32_t) {
    Training t(s, {});
    s.alloc(16 * kMiB, s.user(8));
    t.forward(4);
    s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
  });
  const Finding f = trace.finding("capacity");
  for (const char* action : {"halve_batch", "checkpoint"}) {
    const Advice* advice = advice_of(f, action);
    ASSERT_NE(advice, nullptr) << action;
    EXPECT_NE(advice->detail.find("at least"), std::string::npos) << advice->detail;
    EXPECT_GT(advice->saves_bytes, 100 * kMiB);
  }
}

// The rest of a card of 16 GiB is not free: it is of no use to make a step smaller.
TEST(OutOfMemory, OtherProcessesThatHoldTheCardMustLeave) {
  const auto run = [](bool listed) {
    const Trace trace([listed](Story& s, uint32_t) {
      Training t(s, {});
      if (listed) s.counter(CounterKind::kProcessUsed, uint64_t{14} << 30, 4711);
      if (listed) s.counter(CounterKind::kProcessUsed, uint64_t{1} << 30, 4712);
      t.forward(4);
      s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
    });
    return trace.finding("capacity");
  };
  const Finding f = run(false);
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].action, "free_the_card");
  EXPECT_TRUE(f.advice[0].detail.starts_with("other processes hold about 14."))
      << f.advice[0].detail;
  const Finding with_names = run(true);
  const Advice* named = advice_of(with_names, "free_the_card");
  ASSERT_NE(named, nullptr);
  EXPECT_NE(named->detail.find("process 4711 with 14.0 GiB"), std::string::npos) << named->detail;
}

// The error frees the last layers soon after they were made, but they are like the ones before.
TEST(OutOfMemory, TheLastLayersAreActivations) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    const auto kept = t.forward(4);
    s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
    for (const uint64_t a : kept) s.free(a);
  });
  uint64_t activations = 0;
  const Report report = trace.report();
  for (const CategoryShare& share : report.ranks[0].devices[0].categories) {
    if (share.category == Category::kActivation) activations = share.bytes;
  }
  // The peak is at the temporary of the last layer, before its last result.
  EXPECT_EQ(activations, (6 * (4 * 8 + 4 * 8 + 2 * 8) - 2 * 8) * kMiB);
}

// One request for more than the card: what saves a few blocks is no help.
TEST(OutOfMemory, AnAbsurdRequestHasNoOtherAdvice) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 3; ++i) t.step();
    t.forward(1);
    s.run_out(uint64_t{500} << 30, uint64_t{10} << 30, s.forward(1));
  });
  const Finding f = trace.finding("capacity");
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].action, "split_request");
}

TEST(OutOfMemory, StatesThatDoNotFitCanBeSmaller) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) s.alloc(64 * kMiB, s.setup());
    for (int i = 0; i < 7; ++i) s.alloc(64 * kMiB, s.optimizer("_init_group"));
    s.run_out(64 * kMiB, 10 * kMiB, s.optimizer("_init_group"));
  });
  const Finding spike = trace.finding("optimizer_state_spike");
  const Advice* advice = advice_of(spike, "smaller_states");
  ASSERT_NE(advice, nullptr);
  EXPECT_EQ(advice->saves_bytes, 7 * 64 * kMiB / 2);
}

TEST(OutOfMemory, ALimitOfTheProgramComesFirst) {
  const auto first = [](uint64_t device_free) {
    const Trace trace([device_free](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 3; ++i) t.step();
      t.forward(2);
      s.run_out(256 * kMiB, device_free, s.forward(1));
    });
    return trace.report().findings.front().id;
  };
  EXPECT_EQ(first(uint64_t{10} << 30), "memory_fraction");
  EXPECT_EQ(first(10 * kMiB), "capacity");
}

// Results that do not depend on the batch, but on how many there are.
TEST(OutOfMemory, AValidationThatKeepsItsResults) {
  const auto run = [](bool keeps, uint64_t bytes) {
    return Trace([=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) t.step();
      for (int i = 0; i < 20; ++i) {
        const std::string caller = "validate train.py:188";
        for (int k = 0; k < 6; ++k) s.free(s.alloc(bytes, s.forward(1, caller)));
        const uint64_t result = s.alloc(bytes, s.stack({"validate train.py:192"}));
        if (!keeps) s.free(result);
      }
      s.run_out(64 * kMiB, 10 * kMiB, s.forward(1, "validate train.py:188"));
    });
  };
  for (const uint64_t bytes : {16 * kMiB, 40 * kMiB}) {
    const Finding f = run(true, bytes).finding("creep");
    EXPECT_EQ(f.severity, kError);
    ASSERT_FALSE(f.frames.empty());
    EXPECT_EQ(headline_of(f.frames), "validate train.py:192");
    EXPECT_EQ(advice_of(run(true, bytes).finding("capacity"), "halve_batch"), nullptr);
    EXPECT_EQ(run(false, bytes).finding("creep").severity, "");
  }
}

// The error was caught, and the program went on with less.
TEST(OutOfMemory, AProgramThatWentOn) {
  const auto summary = [](int steps) {
    const Trace trace([steps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 3; ++i) t.step(2);
      const auto kept = t.forward(3);
      s.run_out(256 * kMiB, 10 * kMiB, s.forward(1));
      for (const uint64_t a : kept) s.free(a);
      for (int i = 0; i < steps; ++i) t.step();
    });
    return trace.finding("capacity").summary;
  };
  EXPECT_EQ(summary(0).find("went on"), std::string::npos) << summary(0);
  EXPECT_NE(summary(8).find("went on"), std::string::npos) << summary(8);
}

// The same of a server, which has no steps.
TEST(OutOfMemory, AServerThatWentOn) {
  const auto summary = [](int requests) {
    const Trace trace([requests](Story& s, uint32_t) {
      const std::string line = "serve serve.py:20";
      const auto serve = [&](int request) {
        const uint64_t prompt = s.alloc(kMiB, s.stack({"tokenize serve.py:18"}));
        for (int i = 0; i <= request * 7 % 5; ++i) s.free(s.alloc(8 * kMiB, s.forward(i, line)));
        s.free(prompt);
      };
      for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
      for (int i = 0; i < 60; ++i) serve(i);
      s.run_out(256 * kMiB, 10 * kMiB, s.forward(1, line));
      for (int i = 0; i < requests; ++i) serve(i);
    });
    return trace.finding("capacity").summary;
  };
  EXPECT_EQ(summary(0).find("went on"), std::string::npos) << summary(0);
  EXPECT_NE(summary(60).find("went on"), std::string::npos) << summary(60);
}

// A server that stores the exception of a request that was too large.
TEST(OutOfMemory, WhatAStoredExceptionKeeps) {
  const auto run = [](bool stores, bool fails_again, int later = -1) {
    return Trace([=](Story& s, uint32_t) {
      const auto line = [&](int i) { return s.forward(i, "serve serve.py:20"); };
      const auto serve = [&](int request) {
        const uint64_t prompt = s.alloc(kMiB, s.stack({"tokenize serve.py:18"}));
        uint64_t last = s.alloc(8 * kMiB, line(0));
        for (int i = 1; i <= 4 + request % 2; ++i) {
          const uint64_t next = s.alloc(8 * kMiB, line(i));
          s.free(last);
          last = next;
        }
        s.free(last);
        s.free(prompt);
      };
      for (int i = 0; i < 4; ++i) s.alloc(20 * kMiB, s.setup());
      for (int i = 0; i < 60; ++i) serve(i);
      const uint64_t prompt = s.alloc(40 * kMiB, s.stack({"tokenize serve.py:18"}));
      const std::vector<uint64_t> kept = {s.alloc(320 * kMiB, line(0)),
                                          s.alloc(320 * kMiB, line(1))};
      s.run_out(320 * kMiB, 10 * kMiB, line(2));
      const auto let_go = [&] {
        for (const uint64_t block : kept) s.free(block);
        s.free(prompt);
      };
      if (!stores) let_go();
      for (int i = 0; i < 60; ++i) {
        serve(i);
        if (i == later) let_go();
      }
      if (fails_again) s.run_out(160 * kMiB, 10 * kMiB, line(0));
    });
  };
  const Finding kept = run(true, false).finding("kept_by_error");
  EXPECT_EQ(kept.severity, kWarning);
  ASSERT_FALSE(kept.frames.empty());
  EXPECT_EQ(kept.evidence.at(0).second, 640 * kMiB);
  EXPECT_EQ(run(true, true).report().findings.front().id, "kept_by_error");
  EXPECT_TRUE(run(false, false).finding("kept_by_error").id.empty());
  EXPECT_TRUE(run(true, false, 30).finding("kept_by_error").id.empty()) << "freed in time";
}

// A batch that is too large, and the next one of the usual size.
enum class Afterwards { kStored, kFreed, kSamePass, kAccumulated };

Trace usual_batch_fails(Afterwards afterwards, int steps) {
  return Trace::on_card(1024 * kMiB, [=](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < steps; ++i) t.step();
    if (afterwards == Afterwards::kAccumulated) {
      for (int i = 0; i < 2; ++i) {
        s.alloc(4 * kMiB, s.user(8));
        t.forward(1);
      }
    }
    const uint64_t input = s.alloc(24 * kMiB, s.user(8));
    const std::vector<uint64_t> kept = t.forward(4);
    s.run_out(128 * kMiB, 100 * kMiB, s.forward(6));
    if (afterwards == Afterwards::kFreed || afterwards == Afterwards::kAccumulated) {
      for (const uint64_t block : kept) s.free(block);
    }
    if (afterwards == Afterwards::kSamePass) {
      for (int i = 0; i < 6; ++i) s.alloc(8 * kMiB, s.forward(7));
    } else {
      s.alloc(4 * kMiB, s.user(8));
      s.free(input);
      t.forward(1);
    }
    s.run_out(32 * kMiB, 10 * kMiB, s.forward(6));
  });
}

TEST(OutOfMemory, ABatchOfTheUsualSizeAfterAStoredException) {
  for (const int steps : {1, 2, 8}) {
    const Trace trace = usual_batch_fails(Afterwards::kStored, steps);
    const Report report = trace.report();
    const Finding& f = report.findings.front();
    EXPECT_EQ(f.id, "kept_by_error");
    EXPECT_EQ(f.severity, kError);
    EXPECT_EQ(f.evidence.at(0).second, 6 * 80 * kMiB);
    EXPECT_NE(f.summary.find("480.0 MiB of an earlier pass"), std::string::npos) << f.summary;
    EXPECT_NE(f.summary.find("a request for 128.0 MiB had failed"), std::string::npos) << f.summary;
    EXPECT_EQ(headline_of(f.frames), "train train.py:10");
    EXPECT_EQ(f.advice.at(0).saves_bytes, 6 * 80 * kMiB);
    EXPECT_EQ(advice_of(trace.finding("capacity"), "halve_batch"), nullptr);
  }
}

TEST(OutOfMemory, WhatNoExceptionKeeps) {
  for (const Afterwards afterwards :
       {Afterwards::kFreed, Afterwards::kSamePass, Afterwards::kAccumulated}) {
    const Trace trace = usual_batch_fails(afterwards, 8);
    EXPECT_TRUE(trace.finding("kept_by_error").id.empty());
  }
}

// A convolution that has its result asks for one workspace after the other. `fails`: none fits, and
// it cannot do without.
Trace workspaces_are_tried(bool fails) {
  return Trace::on_card(1024 * kMiB, [=](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 3; ++i) t.step();
    const uint64_t result = s.alloc(8 * kMiB, s.forward(1));
    for (const uint64_t mib : {96U, 96U, 64U}) s.run_out(mib * kMiB, kMiB, s.forward(1));
    if (fails) {
      s.free(result);
      return;
    }
    const uint64_t next = s.alloc(8 * kMiB, s.forward(2));
    s.free(result);
    s.free(next);
    t.step();
  });
}

TEST(OutOfMemory, AnOperatorThatMakesDoWithLessHasNotFailed) {
  const Trace trace = workspaces_are_tried(false);
  const Report report = trace.report();
  const DeviceReport& d = report.ranks.at(0).devices.at(0);
  EXPECT_EQ(d.oom_count, 0U);
  ASSERT_EQ(d.library_refusals.size(), 1U);
  EXPECT_EQ(d.library_refusals[0].library, "torch");
  EXPECT_EQ(d.library_refusals[0].count, 3U);
  EXPECT_EQ(d.library_refusals[0].largest_bytes, 96 * kMiB);
  EXPECT_TRUE(trace.finding("capacity").id.empty());
}

TEST(OutOfMemory, AnOperatorThatTriesSeveralWorkspacesFailsOnce) {
  const Trace trace = workspaces_are_tried(true);
  const Report report = trace.report();
  const DeviceReport& d = report.ranks.at(0).devices.at(0);
  EXPECT_EQ(d.oom_count, 1U);
  ASSERT_EQ(d.ooms.size(), 1U);
  EXPECT_EQ(d.ooms[0].requested_bytes, 64 * kMiB);
  ASSERT_EQ(d.library_refusals.size(), 1U);
  EXPECT_EQ(d.library_refusals[0].count, 2U);
  EXPECT_TRUE(trace.finding("kept_by_error").id.empty());
}

// A convolution does without the workspaces that are refused, and the next operator fails. C++ has
// other frames for each of them than for the result.
TEST(OutOfMemory, AnOperatorThatLeavesItsResultToTheNextHasNotFailed) {
  for (const bool native : {false, true}) {
    const Trace trace = Trace::on_card(1024 * kMiB, [=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 3; ++i) t.step();
      const std::vector<uint64_t> kept = t.forward();
      const auto convolution = [&](const std::string& inner) {
        std::vector<std::string> frames = {"_conv_forward torch/nn/modules/conv.py:7",
                                           "_call_impl torch/nn/modules/module.py:1",
                                           "train train.py:10"};
        if (native) frames.insert(frames.begin(), inner + " Conv.cpp:1");
        return s.stack(frames);
      };
      const uint64_t result = s.alloc(8 * kMiB, convolution("empty"));
      for (const char* attempt : {"find", "get_plans", "run"}) {
        s.run_out(96 * kMiB, kMiB, convolution(attempt));
      }
      s.run_out(64 * kMiB, kMiB, s.forward(7));
      s.free(result);
      for (const uint64_t block : kept) s.free(block);
    });
    const Report report = trace.report();
    const DeviceReport& d = report.ranks.at(0).devices.at(0);
    EXPECT_EQ(d.oom_count, 1U) << native;
    ASSERT_EQ(d.ooms.size(), 1U) << native;
    EXPECT_EQ(d.ooms[0].requested_bytes, 64 * kMiB) << native;
  }
}

// One workspace is refused in a backward pass. What follows: the next operator of the pass, or, if
// the error ended the pass, a forward pass or another backward pass.
enum class After { kNextOperator, kForward, kBackward };

Trace workspace_of_backward(After after) {
  return Trace::on_card(1024 * kMiB, [=](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 3; ++i) t.step();
    const std::vector<uint64_t> kept = t.forward();
    const uint64_t passed = s.alloc(8 * kMiB, s.node("ReluBackward0"));
    const uint64_t result = s.alloc(8 * kMiB, s.node("ConvolutionBackward0"));
    s.run_out(96 * kMiB, kMiB, s.node("ConvolutionBackward0"));
    if (after != After::kNextOperator) {
      s.free(result);
      s.free(passed);
    }
    if (after == After::kForward) s.free(s.alloc(8 * kMiB, s.forward(1)));
    s.free(s.alloc(8 * kMiB, s.node("ReluBackward0")));
    if (after == After::kNextOperator) {
      s.free(passed);
      s.free(result);
    }
    for (const uint64_t block : kept) s.free(block);
    t.step();
  });
}

TEST(OutOfMemory, ABackwardPassThatGoesOnHasNotFailed) {
  const auto errors = [](After after) {
    return workspace_of_backward(after).report().ranks.at(0).devices.at(0).oom_count;
  };
  EXPECT_EQ(errors(After::kNextOperator), 0U);
  EXPECT_EQ(errors(After::kForward), 1U);
  EXPECT_EQ(errors(After::kBackward), 1U);
}

// The program has seen each of them: something else was allocated last, or is freed in between.
TEST(OutOfMemory, ErrorsThatAProgramCatchesAreCounted) {
  const Trace trace = Trace::on_card(1024 * kMiB, [](Story& s, uint32_t) {
    const uint64_t kept = s.alloc(8 * kMiB, s.user(7));
    for (int i = 0; i < 3; ++i) {
      const uint64_t input = s.alloc(4 * kMiB, s.user(8));
      s.run_out(96 * kMiB, kMiB, s.user(9));
      s.run_out(96 * kMiB, kMiB, s.user(9));
      s.free(input);
    }
    s.run_out(96 * kMiB, kMiB, s.user(7));
    s.alloc(4 * kMiB, s.user(8));
    s.free(kept);
  });
  const Report report = trace.report();
  EXPECT_EQ(report.ranks.at(0).devices.at(0).oom_count, 7U);
  EXPECT_TRUE(report.ranks.at(0).devices.at(0).library_refusals.empty());
}

// What the rest of the step that was given up needs is not known: nothing is promised for it.
TEST(OutOfMemory, HalfTheBatchOfAStepThatWasGivenUp) {
  const auto advice = [](int steps, const char* finding) {
    const Trace trace = Trace::on_card(2048 * kMiB, [steps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 3; ++i) t.step(2);
      const auto kept = t.forward(6);
      s.run_out(1024 * kMiB, 10 * kMiB, s.forward(1));
      for (const uint64_t a : kept) s.free(a);
      for (int i = 0; i < steps; ++i) t.step();
    });
    const Finding f = trace.finding(finding);
    const Advice* found = advice_of(f, "halve_batch");
    return found != nullptr ? *found : Advice{};
  };
  for (const char* finding : {"capacity", "activation_peak"}) {
    EXPECT_GT(advice(0, finding).saves_bytes, 100 * kMiB);
    const Advice given_up = advice(8, finding);
    EXPECT_EQ(given_up.action, "halve_batch");
    EXPECT_EQ(given_up.saves_bytes, 0U);
    EXPECT_NE(given_up.detail.find("less is in use at the request that failed"), std::string::npos)
        << given_up.detail;
  }
}

// The first try is still held by the exception when the second, at another line, fails as well.
TEST(OutOfMemory, AStepThatIsTriedAgainIsNoValidation) {
  const auto tried = [](bool tried_before) {
    return Trace([tried_before](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) t.step();
      if (tried_before) {
        t.forward(2);
        s.run_out(256 * kMiB, 10 * kMiB, s.forward(1));
      }
      for (int i = 0; i < 6; ++i) s.alloc(8 * kMiB, s.forward(i, "main train.py:121"));
      s.run_out((tried_before ? 16 : 256) * kMiB, 10 * kMiB, s.forward(1, "main train.py:121"));
    });
  };
  const Trace again = tried(true);
  EXPECT_EQ(again.report().findings.front().id, "kept_by_error");
  const std::string capacity = again.finding("capacity").summary;
  EXPECT_EQ(capacity.find("without backward"), std::string::npos) << capacity;
  const Trace once = tried(false);
  EXPECT_NE(once.finding("capacity").summary.find("without backward"), std::string::npos);
  EXPECT_TRUE(once.finding("kept_by_error").id.empty());
}

// A search for the largest batch calls the function of the step, at the same line, and fails in it.
TEST(OutOfMemory, AStepOfATrialIsNoValidation) {
  const auto search = [](const char* trial) {
    return Trace([trial](Story& s, uint32_t) {
      const auto pass = [&s](const std::string& line, const char* caller) {
        std::vector<uint64_t> graph;
        for (int i = 1; i <= 6; ++i) {
          graph.push_back(s.alloc(
              64 * kMiB, s.stack({"forward model.py:" + std::to_string(i),
                                  "_call_impl torch/nn/modules/module.py:1", line, caller})));
        }
        return graph;
      };
      for (int i = 0; i < 3; ++i) s.alloc(kMiB, s.setup());
      std::vector<uint64_t> graph = pass("run_step train.py:56", "main train.py:94");
      for (; !graph.empty(); graph.pop_back()) {
        s.alloc(kMiB, s.node("MmBackward0"));
        s.free(graph.back());
      }
      s.optimizer_mark();
      for (int size = 0; size < 3; ++size) {
        s.free(s.alloc(kMiB, s.user(44)));
        pass(trial, "choose train.py:70");  // the exception is stored
        s.run_out(256 * kMiB, 10 * kMiB, s.forward(1));
      }
    });
  };
  const Trace same = search("run_step train.py:56");
  EXPECT_EQ(same.report().findings.front().id, "kept_by_error");
  EXPECT_TRUE(same.finding("eval_keeps_graph").id.empty());
  const std::string capacity = same.finding("capacity").summary;
  EXPECT_EQ(capacity.find("without backward"), std::string::npos) << capacity;
  EXPECT_FALSE(same.finding("capacity").advice.empty());
  EXPECT_FALSE(search("evaluate train.py:60").finding("eval_keeps_graph").id.empty());
}

TEST(OutOfMemory, ASmallerCardMayNotBeEnough) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
  });
  const uint64_t peak = trace.model().processes[0].framework[0].allocated_peak.bytes;
  const uint64_t reserved = trace.model().processes[0].framework[0].reserved_peak.bytes;
  const auto told = [&](uint64_t room) {
    return trace.finding("capacity", room + kContextBytes).summary;
  };
  ASSERT_GT(peak, 100 * kMiB);
  EXPECT_TRUE(told(reserved).empty());
  EXPECT_NE(told(peak - kMiB).find("does not fit"), std::string::npos) << told(peak - kMiB);
}

// Growth of a few percent is not what filled the memory, but the request would have fitted without.
TEST(OutOfMemory, GrowthAsLargeAsTheRequestIsNamed) {
  const auto run = [](uint64_t kept_bytes) {
    return Trace([=](Story& s, uint32_t) {
      s.alloc(2048 * kMiB, s.setup());
      Training t(s, {});
      for (int i = 0; i < 20; ++i) {
        t.step();
        s.alloc(kept_bytes, s.user(77));
      }
      s.run_out(16 * kMiB, 10 * kMiB, s.forward(1));
    });
  };
  const Trace grows = run(2 * kMiB);
  ASSERT_LT(20 * 2 * kMiB, grows.model().processes[0].framework[0].allocated_peak.bytes / 20);
  EXPECT_EQ(grows.finding("creep").severity, kWarning);
  EXPECT_EQ(headline_of(grows.finding("creep").frames), "work train.py:77");
  EXPECT_EQ(grows.report().findings.front().severity, kError);
  EXPECT_TRUE(run(kMiB / 2).finding("creep").id.empty()) << "less than the request";
}

struct Server {
  int leaks_every = 0;  // 0: it frees the cache of every request
  int until = 1 << 30;  // so many requests leak, as those of a cache with a bound
  bool runs_out = false;
  int from = 0;         // the first request that may leak
  size_t bound = 1000;  // of a store of what was not freed: the oldest goes
  int requests = 120;
};

// Requests of random lengths, one after the other; their loop is not in the stacks.
void serve_requests(Story& s, const Server& server) {
  for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
  std::mt19937 random(7);
  std::vector<std::vector<uint64_t>> store;
  for (int request = 0; request < server.requests; ++request) {
    const uint64_t length = 1 + random() % 8;
    std::vector<uint64_t> cache;
    for (int layer = 0; layer < 4; ++layer) {
      const std::string caller = "generate serve.py:" + std::to_string(50 + request % 7);
      s.free(s.alloc(length * kMiB, s.forward(41, caller)));
      cache.push_back(s.alloc(length * kMiB / 2, s.stack({"remember cache.py:77"})));
      s.free(s.alloc(length * kMiB / 4, s.forward(43, caller)));
    }
    const bool leaks = server.leaks_every != 0 && request % server.leaks_every == 0 &&
                       request < server.until && request >= server.from;
    if (leaks) store.push_back(std::move(cache));
    if (leaks && store.size() <= server.bound) continue;
    if (leaks) {
      cache = std::move(store.front());
      store.erase(store.begin());
    }
    for (const uint64_t block : cache) s.free(block);
  }
  if (server.runs_out) s.run_out(64 * kMiB, 10 * kMiB, s.forward(41));
}

Trace serve(const Server& server) {
  return Trace([&server](Story& s, uint32_t) { serve_requests(s, server); });
}

TEST(TimeGrowth, AServerThatLeaksWithoutSteps) {
  for (const int every : {1, 3, 4}) {
    for (const bool runs_out : {false, true}) {
      const Finding f = serve({every, 1 << 30, runs_out}).finding("creep");
      EXPECT_EQ(f.severity, runs_out ? kError : kWarning) << every;
      ASSERT_FALSE(f.frames.empty()) << every;
      EXPECT_EQ(headline_of(f.frames), "remember cache.py:77");
    }
  }
}

TEST(TimeGrowth, IsWhatOneRankNeedsMore) {
  const Trace trace(
      [](Story& s, uint32_t rank) { serve_requests(s, {.leaks_every = rank == 1 ? 1 : 0}); }, 3,
      true);
  EXPECT_EQ(trace.finding("creep").rank, 1);
  EXPECT_EQ(trace.finding("rank_imbalance").rank, 1);
  EXPECT_EQ(trace.finding("rank_imbalance").advice[0].action, "stop_growth");
}

// "the first of them allocated 12 ms after the recording began": of what is left by that line.
std::string since_text(const TraceModel& trace, std::string_view line) {
  const ProcessModel& p = trace.processes[0];
  int64_t first_ns = INT64_MAX;
  for (const Allocation& a : p.framework[0].allocations) {
    const bool is_of_line = headline_of(p.names.stack_text(a.stack)) == line;
    if (is_of_line && a.death == kNever) first_ns = std::min(first_ns, a.birth_ns());
  }
  return fmt::format("the first of them allocated {} after the recording began",
                     duration_text(first_ns - p.first_ns));
}

TEST(TimeGrowth, ALeakThatBeganLate) {
  const auto peak_of = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  const uint64_t healthy = peak_of(serve({}));
  for (const int from : {30, 50, 70, 88, 205}) {
    for (const bool runs_out : {false, true}) {
      const Trace trace = serve({1, 1 << 30, runs_out, from, 1000, from < 120 ? 120 : 240});
      const Finding f = trace.finding("creep");
      EXPECT_EQ(f.severity, runs_out ? kError : kWarning) << from;
      ASSERT_FALSE(f.frames.empty()) << from;
      EXPECT_EQ(headline_of(f.frames), "remember cache.py:77");
      EXPECT_NE(f.summary.find(since_text(trace.model(), "remember cache.py:77")),
                std::string::npos)
          << f.summary;
      const auto saved = static_cast<double>(peak_of(trace) - healthy);
      EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), saved, 0.1 * saved) << from;
    }
  }
}

// Weights and a pool have sizes that are not added to later.
TEST(TimeGrowth, WithoutStacksTheModelIsNoGrowth) {
  constexpr uint64_t kNoStack = 0;
  const Trace trace([](Story& s, uint32_t) {
    for (uint64_t i = 0; i < 20; ++i) s.alloc((30 + i) * kMiB, kNoStack);
    for (int i = 0; i < 8; ++i) s.alloc(64 * kMiB, kNoStack);
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
      const uint64_t calls = 2 + random() % 5;
      for (uint64_t k = 0; k < calls; ++k) s.free(s.alloc((1 + random() % 9) * kMiB, kNoStack));
      s.alloc((1 + random() % 3) * kMiB, kNoStack);
    }
    s.run_out(64 * kMiB, 10 * kMiB, kNoStack);
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.evidence.empty());
  EXPECT_EQ(f.evidence[0].first, "gained_bytes");
  EXPECT_NEAR(static_cast<double>(f.evidence[0].second), 400.0 * kMiB, 20.0 * kMiB);
}

// torch.cat onto a context, in a program whose steps are not known: both blocks are there
// meanwhile.
TEST(TimeGrowth, ABlockThatIsReplacedByLargerOnesSavesBoth) {
  const auto stream = [](bool collects) {
    return Trace([collects](Story& s, uint32_t) {
      for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
      const std::string chunk = "on_chunk asr.py:41";
      uint64_t context = 0;
      for (uint64_t i = 1; i <= 200; ++i) {
        if (collects) {
          const uint64_t longer = s.alloc(i * kMiB, s.stack({"extend asr.py:58", chunk}));
          if (context != 0) s.free(context);
          context = longer;
        }
        for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(kMiB, s.forward(41, chunk)));
      }
    });
  };
  const Trace growing = stream(true);
  const Finding f = growing.finding("creep");
  EXPECT_EQ(headline_of(f.frames), "extend asr.py:58");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("torch.cat"), std::string::npos) << f.advice[0].detail;
  const auto peak_of = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  EXPECT_EQ(f.advice[0].saves_bytes, peak_of(growing) - peak_of(stream(false)));
}

// A store that is full before the end gets no larger, however late it began. Two rules see to it:
// every part of the run must add its share, and blocks of the age of freed ones are not left.
TEST(TimeGrowth, AStoreWithABoundIsNoLeak) {
  for (const int from : {0, 30, 60}) {
    const Finding unbounded = serve({1, 1 << 30, false, from}).finding("creep");
    EXPECT_EQ(unbounded.severity, kWarning) << from;
    for (const size_t bound : {size_t{5}, size_t{10}, size_t{20}}) {
      EXPECT_TRUE(serve({1, 1 << 30, false, from, bound}).finding("creep").id.empty())
          << from << " " << bound;
    }
  }
}

// One long generation, whose cache is freed at its end, is no leak.
TEST(TimeGrowth, WhatIsFreedBeforeTheEndIsNoLeak) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
    std::vector<uint64_t> cache;
    for (int token = 0; token < 1500; ++token) {
      cache.push_back(s.alloc(2 * kMiB, s.stack({"append cache.py:83", "generate serve.py:30"})));
      for (int layer = 0; layer < 4; ++layer)
        s.free(s.alloc(kMiB / 4, s.forward(41, "decode serve.py:36")));
    }
    for (const uint64_t block : cache) s.free(block);
  });
  EXPECT_TRUE(trace.finding("creep").id.empty()) << trace.finding("creep").summary;
}

// Adapters are loaded again now and then, and the old ones stay: some parts of the run have none.
TEST(TimeGrowth, FewLargePiecesBeforeAnError) {
  const auto run = [](int loads, bool leaks) {
    return Trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
      std::mt19937 random(3);
      std::vector<uint64_t> adapters;
      for (int request = 0; request < 120; ++request) {
        if (request % (120 / loads) == 7) {
          if (!leaks) {
            for (const uint64_t block : adapters) s.free(block);
            adapters.clear();
          }
          for (int i = 0; i < 4; ++i)
            adapters.push_back(s.alloc(8 * kMiB, s.stack({"load lora.py:44"})));
        }
        for (int layer = 0; layer < 4; ++layer) {
          const std::string caller = "generate serve.py:" + std::to_string(50 + request % 7);
          const uint64_t block = s.alloc((1 + random() % 8) * kMiB, s.forward(41, caller));
          s.free(s.alloc(kMiB, s.forward(43, caller)));
          s.free(block);
        }
      }
      s.run_out(64 * kMiB, 10 * kMiB, s.forward(41));
    });
  };
  for (const int loads : {4, 5, 6, 10}) {
    const Trace leaking = run(loads, true);
    const Finding f = leaking.finding("creep");
    EXPECT_EQ(f.severity, kError) << loads;
    ASSERT_FALSE(f.frames.empty()) << loads;
    EXPECT_EQ(headline_of(f.frames), "load lora.py:44");
    EXPECT_TRUE(run(loads, false).finding("creep").id.empty()) << loads;
  }
}

// Each conversation has a cache, which is never freed. `again`: requests of a hundred that go on
// with one. `logs`: after how many requests another line runs; `chunks`: in which a prompt is read.
Trace converses(uint32_t again, int logs, int chunks, int tokens) {
  return Trace([=](Story& s, uint32_t) {
    const auto in_reply = [&](std::vector<std::string> frames, int line) {
      frames.push_back("reply chat.py:" + std::to_string(line));
      frames.emplace_back("main chat.py:108");
      return s.stack(frames);
    };
    const std::vector<std::string> model = {"forward model.py:20",
                                            "_call_impl torch/nn/modules/module.py:1"};
    for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
    std::mt19937 random(7);
    for (int request = 0; request < 90; ++request) {
      if (request == 0 || random() % 100 >= again) {
        s.alloc(24 * kMiB, in_reply({"open chat.py:70"}, 80));
      }
      for (int i = 0; i < chunks; ++i) {
        const uint64_t prompt = s.alloc(4096, in_reply({}, 83));
        s.free(s.alloc((2 + random() % 30) * kMiB, in_reply(model, 84)));
        s.free(prompt);
      }
      for (int i = 0; i < tokens + request % 5; ++i) {
        s.free(s.alloc(kMiB / 2, in_reply(model, 86)));
        s.free(s.alloc(512, in_reply({}, 88)));
      }
      if (logs != 0 && request % logs == 0) s.free(s.alloc(512, in_reply({}, 90)));
    }
    s.run_out(24 * kMiB, 2 * kMiB, in_reply({"open chat.py:70"}, 80));
  });
}

TEST(TimeGrowth, WhatSeveralRequestsUseIsFreedAfterTheLast) {
  const auto advice = [](const Trace& trace) {
    const Finding f = trace.finding("creep");
    return f.advice.empty() ? std::string() : f.advice[0].detail;
  };
  for (const uint32_t again : {20U, 30U, 50U}) {
    for (const int logs : {0, 7}) {
      for (const int tokens : {1, 20}) {
        const std::string text = advice(converses(again, logs, 1, tokens));
        EXPECT_NE(text.find("conversation or session is closed"), text.npos) << text;
        EXPECT_NE(text.find("saves up to"), text.npos) << text;
      }
    }
  }
  // Each request has a cache of its own.
  for (const int logs : {0, 1, 7}) {
    for (const int chunks : {1, 3}) {
      const std::string text = advice(converses(0, logs, chunks, 20));
      EXPECT_FALSE(text.empty());
      EXPECT_EQ(text.find("conversation"), text.npos) << text;
    }
  }
}

// Eight requests run at once, and one in five leaves its pages: the others are needed.
TEST(TimeGrowth, RunningRequestsAreNotWhatGrowthCosts) {
  uint64_t leaked = 0;
  const Trace trace([&leaked](Story& s, uint32_t) {
    for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
    std::mt19937 random(5);
    struct Running {
      std::vector<uint64_t> pages;
      size_t end = 0;
    };
    std::vector<Running> running(8);
    uint64_t finished = 0;
    for (int step = 0; step < 600; ++step) {
      s.free(s.alloc(2 * kMiB, s.forward(1, "step engine.py:50")));
      for (Running& r : running) {
        if (r.pages.empty()) r.end = 4 + random() % 24;
        r.pages.push_back(s.alloc(2 * kMiB, s.stack({"grow engine.py:61"})));
        if (r.pages.size() < r.end) continue;
        if (++finished % 5 == 0) {
          leaked += r.pages.size() * 2 * kMiB;
        } else {
          for (const uint64_t page : r.pages) s.free(page);
        }
        r.pages.clear();
      }
    }
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), static_cast<double>(leaked),
              0.1 * static_cast<double>(leaked));
}

// What the advice saves is what the same program needs less that frees everything. Requests run
// beside each other, have caches of different sizes, and one leaves its pages now and then; some
// states are allocated once, in the middle.
TEST(TimeGrowth, SavesWhatATwinWithoutTheLeakNeedsLess) {
  struct Kind {
    size_t at_once;
    int leaks_every;
    uint64_t page_bytes;
    bool states;
    bool runs_out;
    uint64_t pool_bytes = 0;  // allocated at the beginning of the work
  };
  const auto run = [](const Kind& kind, uint32_t seed, bool leaks) {
    return Trace([&](Story& s, uint32_t) {
      for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
      std::mt19937 random(seed);
      struct Running {
        std::vector<uint64_t> pages;
        size_t end = 0;
      };
      std::vector<Running> running(kind.at_once);
      int finished = 0;
      if (kind.pool_bytes != 0) s.alloc(kind.pool_bytes, s.stack({"reserve engine.py:11"}));
      for (size_t step = 0; step < 2400 / kind.at_once; ++step) {
        s.free(s.alloc(2 * kMiB, s.forward(1, "step engine.py:50")));
        if (kind.states && step == 700 / kind.at_once) {
          for (int i = 0; i < 8; ++i) s.alloc(16 * kMiB, s.stack({"warm engine.py:20"}));
        }
        for (Running& r : running) {
          if (r.pages.empty()) r.end = 4 + random() % 24;
          r.pages.push_back(s.alloc(kind.page_bytes, s.stack({"grow engine.py:61"})));
          if (r.pages.size() < r.end) continue;
          const bool stays = leaks && ++finished % kind.leaks_every == 0;
          for (size_t i = 0; !stays && i < r.pages.size(); ++i) s.free(r.pages[i]);
          r.pages.clear();
        }
      }
      if (kind.runs_out) s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
    });
  };
  const auto peak_of = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].allocated_peak.bytes;
  };
  for (const Kind& kind : {Kind{1, 1, kMiB, false, false}, Kind{1, 2, 2 * kMiB, true, false},
                           Kind{4, 3, kMiB, false, true}, Kind{4, 5, 2 * kMiB, true, false},
                           Kind{8, 3, kMiB, true, true}, Kind{8, 5, 3 * kMiB, false, false},
                           Kind{8, 4, kMiB, false, false, 512 * kMiB}}) {
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      const Trace leaking = run(kind, seed, true);
      const double less = static_cast<double>(peak_of(leaking) - peak_of(run(kind, seed, false)));
      const Finding f = leaking.finding("creep");
      ASSERT_FALSE(f.advice.empty()) << kind.at_once << " " << kind.leaks_every << " " << seed;
      EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), less, 0.1 * less)
          << kind.at_once << " " << kind.leaks_every << " " << seed << " " << f.summary;
    }
  }
}

TEST(TimeGrowth, HealthyServersHaveNone) {
  EXPECT_EQ(serve({}).alarms(), Ids{});
  EXPECT_EQ(serve({1, 40}).alarms(), Ids{});  // a cache that was filled
}

// The cache of answers is full after four fifths of the time; then the oldest answers go.
TEST(TimeGrowth, ACacheThatIsFullHasEndedToGrow) {
  for (const bool evicts : {true, false}) {
    const Trace trace([evicts](Story& s, uint32_t) {
      for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
      std::deque<uint64_t> cache;
      for (int request = 0; request < 200; ++request) {
        for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(2 * kMiB, s.forward(layer)));
        if (request >= 160 && !evicts) continue;
        cache.push_back(s.alloc(4 * kMiB, s.stack({"remember cache.py:77"})));
        if (cache.size() <= 160) continue;
        s.free(cache.front());
        cache.pop_front();
      }
    });
    EXPECT_EQ(trace.alarms(), Ids{}) << evicts;
  }
}

// A server that ends with work of another kind: nothing of that allocates all along.
TEST(TimeGrowth, ALastPartOfItsOwnIsNoGrowth) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
    for (int i = 0; i < 700; ++i) s.free(s.alloc(2 * kMiB, s.forward(i % 4)));
    s.alloc(64 * kMiB, s.stack({"index search.py:3"}));
    for (int i = 0; i < 130; ++i) s.free(s.alloc(2 * kMiB, s.stack({"merge search.py:9"})));
  });
  EXPECT_EQ(trace.alarms(), Ids{});
}

// Two lines leave blocks: the saving is of both, so both are named.
TEST(TimeGrowth, AllLinesOfTheSavingAreNamed) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 16; ++i) s.alloc(8 * kMiB, s.setup());
    for (int request = 0; request < 200; ++request) {
      for (int layer = 0; layer < 4; ++layer) s.free(s.alloc(8 * kMiB, s.forward(layer)));
      s.alloc(2 * kMiB, s.stack({"answer server.py:58"}));
      s.alloc(kMiB, s.stack({"count metrics.py:14"}));
    }
  });
  const Finding f = trace.finding("creep");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), 600.0 * kMiB, 12.0 * kMiB);
  EXPECT_NE(
      f.advice[0].detail.find("server.py:58 allocates (400.0 MiB), metrics.py:14 (200.0 MiB)"),
      std::string::npos)
      << f.advice[0].detail;
}

// One request, whose cache is copied for each token, and freed when the request is finished.
TEST(TimeGrowth, AFinishedRequestLeavesNothing) {
  const auto generate = [](bool frees) {
    return Trace([&](Story& s, uint32_t) {
      for (int i = 0; i < 8; ++i) s.alloc(8 * kMiB, s.setup());
      std::vector<uint64_t> cache(4);
      for (uint64_t token = 1; token <= 160; ++token) {
        for (uint64_t& block : cache) {
          const uint64_t longer = s.alloc(token * kMiB / 16, s.stack({"generate llm.py:33"}));
          if (block != 0) s.free(block);
          block = longer;
        }
      }
      if (!frees) return;
      for (const uint64_t block : cache) s.free(block);
    });
  };
  EXPECT_EQ(generate(true).alarms(), Ids{});
  EXPECT_EQ(generate(false).alarms(), Ids{"creep"});
}

TEST(TimeGrowth, AModelThatIsLoadedDoesNotGrow) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 400; ++i) {
      const uint64_t copy = s.alloc(4 * kMiB, s.user(3));
      s.alloc(2 * kMiB, s.setup());
      s.free(copy);
    }
  });
  EXPECT_EQ(trace.alarms(), Ids{});
}

}  // namespace
}  // namespace tidemark
