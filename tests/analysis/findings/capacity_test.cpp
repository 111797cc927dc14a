// What filled the memory when a request failed, and what of it could be given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/names/stack_lines.h"
#include "tests/support/finding_parts.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kNotKnown = 0;  // the size of the card, as in a snapshot

std::string first_action(const Finding& f) {
  return f.advice.empty() ? "" : f.advice[0].action;
}

// A data set that is moved to the card before the model is trained on it: in many blocks, or one.
Trace with_data_set(uint64_t blocks, uint64_t failed_bytes) {
  return Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
    for (uint64_t i = 0; i < blocks; ++i) {
      s.alloc(1200 * kMiB / blocks, s.stack({"load data.py:9"}));
    }
    Training t(s, {});
    t.forward();
    s.run_out(failed_bytes, 0, s.forward(1));
  });
}

TEST(Capacity, NamesADataSetOnTheCard) {
  for (const uint64_t blocks : {1U, 300U}) {
    const Trace trace = with_data_set(blocks, 16 * kMiB);
    const Finding f = trace.finding("capacity");
    EXPECT_TRUE(says(f, "data.py:9 holds 1.2 GiB")) << f.summary;
    EXPECT_EQ(headline_of(f.frames), "load data.py:9");
    ASSERT_FALSE(f.advice.empty());
    EXPECT_EQ(first_action(f), "hold_less");
    EXPECT_EQ(f.advice[0].saves_bytes, 1200 * kMiB);
    EXPECT_EQ(trace.finding("one_operation_peak").id, "") << "nothing computed it";
  }
  // A large request is what to look at.
  const Finding large = with_data_set(300, 600 * kMiB).finding("capacity");
  EXPECT_NE(headline_of(large.frames), "load data.py:9");
  EXPECT_NE(first_action(large), "hold_less");
}

// Keys and values, which two lines make.
TEST(Capacity, LinesThatHoldAsMuchAreOneCache) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    for (int layer = 0; layer < 8; ++layer) {
      s.alloc(100 * kMiB, s.stack({"KVCache.__init__ serve.py:41", "main serve.py:170"}));
      s.alloc(100 * kMiB, s.stack({"KVCache.__init__ serve.py:42", "main serve.py:170"}));
    }
    Training t(s, {});
    t.forward();
    s.run_out(16 * kMiB, 0, s.forward(1));
  });
  const Finding f = trace.finding("capacity");
  ASSERT_EQ(first_action(f), "hold_less");
  EXPECT_EQ(f.advice[0].saves_bytes, 1600 * kMiB);
  EXPECT_NE(f.advice[0].detail.find("hold less at serve.py:41 and serve.py:42"), std::string::npos)
      << f.advice[0].detail;
}

// The overlaps of all boxes with all others: what the expression that fails works on is not held.
TEST(Capacity, OperandsOfTheRequestAreNotHeld) {
  const auto run = [](bool one_call) {
    return Trace::on_card(kNotKnown, [one_call](Story& s, uint32_t) {
      const auto call = [&](int line) {
        const int of_library = one_call ? 330 : line;
        return s.stack({"box_iou lib/python3/site-packages/torchvision/ops/boxes.py:" +
                            std::to_string(of_library),
                        "targets detect.py:78"});
      };
      for (int i = 0; i < 3; ++i) s.alloc(400 * kMiB, call(330 + i));
      s.run_out(400 * kMiB, 0, call(336));
    });
  };
  EXPECT_FALSE(says(run(false).finding("capacity"), "holds"));
  EXPECT_TRUE(says(run(true).finding("capacity"), "holds")) << "a pool that does not fit";
}

// The pool of another library in the same process, as CuPy has one.
TEST(Capacity, ALibraryThatFillsTheCardIsNamed) {
  const auto run = [](uint64_t bytes) {
    return Trace([bytes](Story& s, uint32_t) {
      s.driver_alloc(bytes, "cupy", MemoryKind::kDevice, 0, 0,
                     s.stack({"smooth filter.py:50", "main filter.py:126"}));
      Training t(s, {});
      t.forward();
      s.run_out(4 * kGiB, 10 * kMiB, s.forward(1));
    });
  };
  const Finding f = run(10 * kGiB).finding("capacity");
  EXPECT_TRUE(says(f, "cupy holds 10.0 GiB of the card in this process")) << f.summary;
  EXPECT_EQ(headline_of(f.frames), "smooth filter.py:50");
  ASSERT_EQ(first_action(f), "shrink_library");
  EXPECT_EQ(f.advice[0].saves_bytes, 10 * kGiB);
  EXPECT_NE(f.advice[0].detail.find("free_all_blocks"), std::string::npos);
  EXPECT_FALSE(says(run(kGiB).finding("capacity"), "cupy"));
}

// The hidden states of a long unrolled loop: between the passes of the model, and part of the step.
TEST(Capacity, WhatAStepComputesItselfIsNotHeld) {
  const auto run = [](bool among_passes) {
    return Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 4; ++i) t.step();
      for (int i = 0; i < 60; ++i) {
        s.alloc(16 * kMiB, s.user(30));
        if (among_passes) s.alloc(16 * kMiB, s.forward(7));
      }
      s.run_out(16 * kMiB, 0, s.forward(7));
    });
  };
  EXPECT_FALSE(says(run(true).finding("capacity"), "train.py:30 holds"));
  EXPECT_TRUE(says(run(false).finding("capacity"), "train.py:30 holds")) << "copies for saving";
}

// A server whose pool takes most of the card, and whose last request is unlike the others.
TEST(Capacity, AFewRequestsTellWhatIsUsual) {
  const auto run = [](uint64_t times, bool one_pass) {
    return Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
      for (int i = 0; i < 8; ++i) s.alloc(200 * kMiB, s.stack({"reserve pool.py:5"}));
      std::vector<uint64_t> kept;
      for (uint64_t i = 0; i < 6; ++i) {
        const uint64_t bytes = (i == 5 ? times : 1) * 16 * kMiB;
        const uint64_t first = s.alloc(bytes, s.forward(1, "decode serve.py:22"));
        if (i == 5) return s.run_out(bytes, 0, s.forward(1, "decode serve.py:22"));
        const uint64_t second = s.alloc(bytes, s.forward(1, "decode serve.py:22"));
        if (one_pass) continue;
        s.free(first);
        s.free(second);
        s.free(s.alloc(kMiB, s.stack({"send serve.py:30"})));
      }
    });
  };
  const Finding f = run(16, false).finding("capacity");
  EXPECT_TRUE(says(f, "16 times the usual size")) << f.summary;
  EXPECT_TRUE(says(f, "pool.py:5 holds 1.6 GiB")) << f.summary;
  EXPECT_EQ(first_action(f), "bound_request");
  EXPECT_FALSE(says(run(2, false).finding("capacity"), "usual size"));
  EXPECT_FALSE(says(run(16, true).finding("capacity"), "usual size")) << "layers of one pass";
}

// With other settings the request fits, but nothing as large has passed before.
TEST(Capacity, SettingsAreNoHelpForARunThatNeedsTooMuch) {
  const auto settings = [](bool fitted_before) {
    const Trace trace = Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) {
        if (fitted_before) s.free(s.alloc(40 * kMiB, s.forward(1)));
        s.alloc(22 * kMiB, s.forward(1));
      }
      s.run_out(30 * kMiB, 20 * kMiB, s.forward(4));
    });
    const std::vector<Finding>& found = trace.report().findings;
    return std::any_of(found.begin(), found.end(), [](const Finding& f) {
      return advice_of(f, "allocator_settings") != nullptr;
    });
  };
  EXPECT_FALSE(settings(false));
  EXPECT_TRUE(settings(true));
}

// PyTorch empties its cache before it fails, a recording made by hand may not.
TEST(Capacity, TheSettingsOfTheRecordingAreNoAdvice) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(s.alloc(21 * kMiB, s.forward(1)));
    s.alloc(40 * kMiB, s.forward(1));
    s.free(blocks.back());
    s.free(blocks.front());
    s.run_out(30 * kMiB, 20 * kMiB, s.forward(4));
  });
  EXPECT_EQ(advice_of(trace.finding("capacity"), "allocator_settings"), nullptr);
}

// Images that grow: the holes are those of smaller ones, and no setting is enough.
TEST(Capacity, AStepThatNeedsMoreThanTheOneBefore) {
  const auto run = [](uint64_t last) {
    return Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 4; ++i) t.step(8);
      for (const int line : {1, 2}) s.alloc(last * 8 * kMiB, s.forward(line));
      s.run_out(last * 8 * kMiB, 0, s.forward(1));
    });
  };
  const Finding f = run(16).finding("capacity");
  EXPECT_TRUE(says(f, "2.00 times those of the step before")) << f.summary;
  EXPECT_EQ(advice_of(f, "allocator_settings"), nullptr);
  EXPECT_EQ(run(16).finding("fragmentation").id, "");
  EXPECT_EQ(run(8).finding("fragmentation").severity, kError) << "as much has fitted before";
}

TEST(Capacity, ATemporaryOfTheForeachOptimizer) {
  const auto run = [](const std::string& function) {
    const Trace trace = Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(64 * kMiB, s.setup());
      for (int i = 0; i < 4; ++i) s.alloc(64 * kMiB, 0);
      for (int i = 0; i < 8; ++i) s.alloc(64 * kMiB, s.optimizer("_init_group"));
      s.run_out(64 * kMiB, 0, s.optimizer(function));
    });
    return trace.finding("optimizer_state_spike");
  };
  const Finding f = run("_multi_tensor_adam");
  ASSERT_NE(advice_of(f, "fused_optimizer"), nullptr);
  EXPECT_EQ(advice_of(f, "fused_optimizer")->saves_bytes, 64 * kMiB);
  EXPECT_EQ(advice_of(run("_fused_adam"), "fused_optimizer"), nullptr);
}

// Two of Adam's states for each of the gradients, of which the first one did not fit.
TEST(Capacity, StatesThatWereStillToBeMade) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    Training t(s, {.layers = 6, .activation = 8 * kMiB, .weight = 64 * kMiB});
    t.forward();
    for (int i = 0; i < 6; ++i) {
      s.free(s.alloc(8 * kMiB, 0));
      s.alloc(64 * kMiB, 0);
    }
    s.optimizer_mark();
    s.alloc(64 * kMiB, s.optimizer("_init_group"));
    s.run_out(64 * kMiB, 0, s.optimizer("_init_group"));
  });
  const Finding f = trace.finding("optimizer_state_spike");
  const Advice* const advice = advice_of(f, "smaller_states");
  ASSERT_NE(advice, nullptr);
  EXPECT_EQ(advice->saves_bytes, 6 * 64 * kMiB);
}

// What the parameters have states of.
enum class Optimizers {
  kOne,       // one optimizer
  kHalfEach,  // two, of which each has half of the parameters
  kAllTwice,  // two, of which each has all
  kWrapped,   // one, and copies that a class of the program makes in its step
};

Trace run_with(Optimizers optimizers, bool runs_out) {
  constexpr std::array<uint64_t, 4> kWeights = {8 * kMiB, 24 * kMiB, 16 * kMiB, 32 * kMiB};
  return Trace::on_card(uint64_t{1} << 30, [=](Story& s, uint32_t) {
    for (const uint64_t bytes : kWeights) s.alloc(bytes, s.setup());
    const auto make_states = [&](size_t first, size_t end) {
      for (size_t i = first; i < end; ++i) {
        for (int k = 0; k < 2; ++k) s.alloc(kWeights.at(i), s.optimizer("_init_group"));
      }
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_adam")));
    };
    for (int step = 0; step < 8; ++step) {
      const uint64_t kept = s.alloc(40 * kMiB, s.forward(1));
      std::vector<uint64_t> gradients;
      for (const uint64_t bytes : kWeights) gradients.push_back(s.alloc(bytes, 0));
      s.free(kept);
      s.optimizer_mark();
      if (step == 0) make_states(0, optimizers == Optimizers::kHalfEach ? 2 : 4);
      if (step == 0 && optimizers == Optimizers::kHalfEach) make_states(2, 4);
      if (step == 0 && optimizers == Optimizers::kAllTwice) make_states(0, 4);
      for (size_t i = 0; step == 0 && optimizers == Optimizers::kWrapped && i < 4; ++i) {
        s.alloc(kWeights.at(i), s.stack({"step average.py:5", "step torch/optim/optimizer.py:9"}));
      }
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_adam")));
      if (runs_out && step == 0) s.run_out(64 * kMiB, 0, s.optimizer("_multi_tensor_adam"));
      if (runs_out) return;
      for (const uint64_t block : gradients) s.free(block);
    }
  });
}

TEST(Capacity, StatesOfTwoOptimizersForTheSameParameters) {
  for (const bool runs_out : {false, true}) {
    const Finding f = run_with(Optimizers::kAllTwice, runs_out).finding("optimizer_state_spike");
    EXPECT_EQ(f.severity, runs_out ? kError : kWarning);
    ASSERT_NE(advice_of(f, "one_optimizer"), nullptr);
    EXPECT_EQ(advice_of(f, "one_optimizer")->saves_bytes, 2 * 80 * kMiB);
    EXPECT_EQ(advice_of(f, "smaller_states"), nullptr);
  }
  for (const Optimizers of : {Optimizers::kOne, Optimizers::kHalfEach, Optimizers::kWrapped}) {
    EXPECT_TRUE(run_with(of, false).alarms().empty()) << static_cast<int>(of);
    const Finding f = run_with(of, true).finding("optimizer_state_spike");
    EXPECT_EQ(advice_of(f, "one_optimizer"), nullptr) << static_cast<int>(of);
  }
}

// Growth is why the optimizer's step failed, and not its states.
TEST(Capacity, AnOptimizerStepThatGrowthLeavesNoRoomFor) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 30; ++i) {
      t.step();
      s.alloc(20 * kMiB, s.user(77));
    }
    s.run_out(2 * kMiB, 0, s.optimizer("_multi_tensor_adam"));
  });
  EXPECT_EQ(trace.report().findings.front().id, "creep");
  EXPECT_EQ(trace.finding("optimizer_state_spike").id, "");
}

TEST(Capacity, ACheckpointThatTakesTheRoomComesFirst) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    const uint32_t load = s.stack(
        {"_cuda torch/_utils.py:90", "load torch/serialization.py:5", "resume train.py:40"});
    for (int i = 0; i < 6; ++i) s.alloc(12 * kMiB, load);
    Training t(s, {.layers = 6, .activation = 8 * kMiB, .weight = 12 * kMiB});
    for (int i = 0; i < 4; ++i) t.step();
    t.forward();
    s.run_out(8 * kMiB, 0, s.forward(1));
  });
  const Finding first = trace.report().findings.front();
  EXPECT_EQ(first.id, "checkpoint_kept");
  EXPECT_EQ(first.severity, kError);
}

// One rank with twice the batch, or all of them.
TEST(Capacity, WhatOnlyOneRankNeedsComesFirst) {
  const auto first = [](bool all) {
    const Trace trace(
        [all](Story& s, uint32_t rank) {
          Training t(s, {});
          const uint64_t scale = rank == 2 ? 2 : 1;
          if (!all && rank != 2) return t.step();
          s.alloc(scale * 4 * kMiB, s.user(8));
          t.forward(scale);
          s.run_out(16 * kMiB, 0, s.forward(1));
        },
        4, true);
    return trace.report().findings.front().id;
  };
  EXPECT_EQ(first(false), "rank_imbalance");
  EXPECT_EQ(first(true), "capacity");
}

// The same program runs on a card that others have filled in part.
TEST(Capacity, ARankThatGetsLessThanTheOthers) {
  const auto run = [](bool one_card) {
    return Trace(
        [one_card](Story& s, uint32_t rank) {
          if (rank != 0 && !one_card) {
            s.device(rank, "GPU-" + std::to_string(rank + 1), kNotKnown);
            s.use_device(rank);
            s.on(rank, 0);
          }
          Training t(s, {.layers = 6, .activation = 64 * kMiB, .weight = 2 * kMiB});
          if (rank != 0) return t.step();
          for (int i = 0; i < 6; ++i) s.alloc(64 * kMiB, s.forward(1));
          s.run_out(64 * kMiB, 0, s.forward(1));
        },
        3, true, kNotKnown);
  };
  const Finding first = run(false).report().findings.front();
  EXPECT_EQ(first.id, "stray_context");
  EXPECT_EQ(first.rank, 0);
  ASSERT_FALSE(first.advice.empty());
  EXPECT_NE(first.advice[0].detail.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_EQ(run(false).finding("stray_context", 2048 * kMiB).id, "stray_context");
  EXPECT_EQ(run(true).finding("stray_context").id, "") << "ranks that share a card";
}

// The model's passes keep what they compute, and nothing says for what.
TEST(Capacity, TheLargestLineIsNamedWhereNothingElseIsKnown) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    for (int i = 0; i < 12; ++i) {
      for (const int line : {1, 2, 3}) s.alloc((line == 2 ? 24 : 12) * kMiB, s.forward(line));
      s.alloc(512, s.user(30));
    }
    s.run_out(12 * kMiB, 0, s.forward(1));
  });
  const Finding f = trace.finding("capacity");
  ASSERT_NE(advice_of(f, "look_at_largest"), nullptr);
  // Another finding may well tell what could be given up.
  EXPECT_EQ(advice_of(f, "look_at_largest")->detail.find("nothing"), std::string::npos);
  EXPECT_NE(f.advice[0].detail.find("288.0 MiB"), std::string::npos) << f.advice[0].detail;
  // What waits for a backward pass cannot be freed earlier.
  EXPECT_EQ(f.advice[0].detail.find("free them earlier"), std::string::npos) << f.advice[0].detail;
  EXPECT_NE(f.advice[0].detail.find("torch.utils.checkpoint"), std::string::npos)
      << f.advice[0].detail;
  const Finding activations = trace.finding("activation_peak");
  EXPECT_EQ(activations.severity, kWarning);
  EXPECT_NE(advice_of(activations, "keep_fewer_activations"), nullptr);
}

TEST(Capacity, WeightsThatAreOlderThanTheRecordingHaveNoLine) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    for (int i = 0; i < 24; ++i) s.older_block(64 * kMiB);
    for (int i = 0; i < 6; ++i) {
      for (int line = 1; line < 8; ++line) s.free(s.alloc(16 * kMiB, s.forward(line)));
    }
  });
  const Finding f = trace.finding("capacity", kContextBytes + 1024 * kMiB);
  EXPECT_TRUE(says(f, ": all older than the recording")) << f.summary;
  ASSERT_NE(advice_of(f, "smaller_weights"), nullptr);
  const std::string& detail = advice_of(f, "smaller_weights")->detail;
  EXPECT_TRUE(detail.starts_with("make the weights that are older than the recording take less: "))
      << detail;
}

// 2 GiB of PyTorch and 512 MiB of a context beside another process, on a card of 140 GiB.
Trace beside_another(uint64_t others, bool lists, bool torch = true) {
  return Trace::on_card(140 * kGiB, [=](Story& s, uint32_t) {
    s.driver_alloc(2 * kGiB, torch ? "torch" : "program", MemoryKind::kDevice);
    if (torch) s.alloc(2 * kGiB, s.user(7));
    for (int i = 0; i < 8; ++i) {
      s.tick(200'000'000);
      // It comes late, and holds as much again for a moment.
      const uint64_t other = i < 2 ? 0 : i == 5 ? 2 * others : others;
      s.counter(CounterKind::kDeviceUsed, 2 * kGiB + 512 * kMiB + other);
      if (lists) s.counters_of_processes({{101, 2 * kGiB + 512 * kMiB}, {999, other}});
    }
    if (torch) s.free(s.alloc(kMiB, s.user(8)));
  });
}

TEST(Capacity, ACardOfAnotherSizeIsTheProgramsAlone) {
  for (const uint64_t others : {uint64_t{0}, 3 * kGiB, 60 * kGiB}) {
    for (const bool torch : {true, false}) {
      const Trace trace = beside_another(others, true, torch);
      for (const uint64_t mib : {1U, 100U, 512U, 1024U, 2048U, 2500U}) {
        const Finding f = trace.finding("capacity", mib * kMiB);
        EXPECT_EQ(f.id, "capacity") << others << " on " << mib;
        EXPECT_EQ(says(f, "without the other processes of the recording"), others != 0)
            << f.summary;
        EXPECT_TRUE(!torch || says(f, "needs 512.0 MiB outside PyTorch")) << f.summary;
      }
      for (const uint64_t gib : {3U, 4U, 12U, 80U}) {
        EXPECT_EQ(trace.finding("capacity", gib * kGiB).id, "") << others << " on " << gib;
        EXPECT_EQ(trace.finding("other_process", gib * kGiB).id, "");
      }
    }
  }
  const Finding f = beside_another(3 * kGiB, true).finding("capacity", 1024 * kMiB);
  EXPECT_TRUE(says(f, "2.0 GiB allocated at the peak, and 512.0 MiB are left")) << f.summary;
}

// NVML lists nobody, as in some containers.
TEST(Capacity, ProcessesThatAreNotToldApartLeaveRoomOnAnotherCard) {
  const Trace trace = beside_another(60 * kGiB, false);
  EXPECT_EQ(trace.finding("capacity", 2 * kGiB).id, "capacity");
  EXPECT_EQ(trace.finding("capacity", 3 * kGiB).id, "");
}

// The holes are why it failed, but the smaller card would be too small without them.
TEST(Capacity, ARunThatFailedForItsHolesOnASmallerCard) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(s.alloc(21 * kMiB, s.forward(1)));
    s.alloc(40 * kMiB, s.forward(1));
    for (size_t i = 0; i < blocks.size(); i += 2) s.free(blocks[i]);
    s.run_out(30 * kMiB, 20 * kMiB, s.forward(4));
  });
  ASSERT_EQ(trace.finding("fragmentation").severity, kError);
  EXPECT_EQ(trace.finding("capacity").id, "");
  EXPECT_EQ(trace.finding("capacity", 256 * kMiB).id, "capacity");
}

// A server: weights, and two caches of keys and values that one line makes.
Trace server_with(uint64_t weights_mib, uint64_t cache_mib) {
  return Trace::on_card(kNotKnown, [=](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(weights_mib * kMiB / 4, s.setup());
    for (int i = 0; i < 2; ++i) s.alloc(cache_mib * kMiB / 2, s.stack({"grow cache.py:73"}));
    for (int i = 0; i < 6; ++i) s.free(s.alloc(16 * kMiB, s.forward(1, "decode serve.py:22")));
  });
}

TEST(Capacity, OnASmallerCardWhatTakesTheMostIsToLookAt) {
  struct Case {
    uint64_t weights_mib, cache_mib, card_mib;
    bool cache_first;
  };
  for (const Case& c :
       {Case{320, 1720, 2400, true}, Case{320, 1720, 1200, true}, Case{320, 1720, 800, true},
        Case{320, 1720, 600, true}, Case{40, 400, 900, true}, Case{600, 900, 1800, true},
        Case{1720, 320, 2400, false}, Case{8000, 800, 6000, false}}) {
    const Finding f =
        server_with(c.weights_mib, c.cache_mib).finding("capacity", c.card_mib * kMiB);
    ASSERT_EQ(f.id, "capacity") << c.weights_mib << " " << c.card_mib;
    const bool names_cache =
        advice_of(f, "look_at_largest") != nullptr && headline_of(f.frames) == "grow cache.py:73";
    EXPECT_EQ(names_cache, c.cache_first) << c.weights_mib << " " << c.card_mib;
    const bool too_large = c.weights_mib * kMiB + kContextBytes > c.card_mib * kMiB;
    EXPECT_EQ(says(f, "weights take"), !c.cache_first || too_large) << f.summary;
  }
  EXPECT_EQ(server_with(320, 1720).finding("capacity", 4096 * kMiB).id, "");
}

// All calls of a line count together, and one that holds about as much is named, too.
TEST(Capacity, TheLargestLineIsTheSumOfItsCalls) {
  struct Case {
    uint64_t other_mib;
    std::string_view text;
  };
  for (const auto& [other, text] :
       {Case{300, "576.0 MiB are of tiles.py:21, more than of any other line: "},
        Case{560, "576.0 MiB are of tiles.py:21, and about as much of tiles.py:30: "},
        Case{576, "576.0 MiB are of tiles.py:21, and as much of tiles.py:30: "}}) {
    const uint64_t bytes = other * kMiB;
    const Trace trace = Trace::on_card(kNotKnown, [bytes](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
      for (const int call : {1, 2, 3}) {
        s.alloc(192 * kMiB, s.stack({"run tiles.py:21", "main tiles.py:" + std::to_string(call)}));
      }
      s.alloc(bytes, s.stack({"stack tiles.py:30", "main tiles.py:4"}));
      for (int i = 0; i < 6; ++i) s.free(s.alloc(kMiB, s.forward(1)));
    });
    const Finding f = trace.finding("capacity", kContextBytes + 300 * kMiB);
    const Advice* advice = advice_of(f, "look_at_largest");
    ASSERT_NE(advice, nullptr);
    EXPECT_TRUE(advice->detail.starts_with(text)) << advice->detail;
  }
}

// What the request that failed is computed from cannot be freed before it.
TEST(Capacity, TheInputOfTheLineThatFailedIsNotFreedEarlier) {
  const auto advice = [](const std::string& other) {
    const Trace trace = Trace::on_card(1024 * kMiB, [&](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
      for (int i = 0; i < 40; ++i) s.free(s.alloc(kMiB, s.stack({"search filter.py:70"})));
      s.alloc(400 * kMiB, s.stack({other, "main filter.py:100"}));
      s.alloc(398 * kMiB, s.stack({"search filter.py:77", "main filter.py:100"}));
      s.run_out(400 * kMiB, 0, s.stack({"search filter.py:77", "main filter.py:100"}));
    });
    const Finding f = trace.finding("capacity");
    const Advice* const look = advice_of(f, "look_at_largest");
    return look == nullptr ? std::string() : look->detail;
  };
  const std::string input = advice("search filter.py:76");
  EXPECT_EQ(input,
            "400.0 MiB are of filter.py:76, and about as much of filter.py:77: make them smaller; "
            "the line that failed works on what filter.py:76 made");
  const std::string other = advice("load data.py:5");
  EXPECT_TRUE(other.ends_with("make them smaller, or free them earlier")) << other;
}

// Gradients have no line, and neither they nor activations can be freed earlier.
TEST(Capacity, GradientsAreNoLine) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step(1);
  });
  for (const uint64_t card : {uint64_t{16}, uint64_t{64}, uint64_t{256}}) {
    const Finding f = trace.finding("capacity", kContextBytes + card * kMiB);
    const Advice* advice = advice_of(f, "look_at_largest");
    if (advice == nullptr) continue;
    EXPECT_EQ(advice->detail.find("Backward"), std::string::npos) << advice->detail;
    const bool of_gradients = advice->detail.find("gradients") != std::string::npos;
    const bool of_activations = advice->detail.find("activations, kept") != std::string::npos;
    EXPECT_EQ(advice->detail.find("free them earlier") == std::string::npos,
              of_gradients || of_activations)
        << advice->detail;
  }
}

// Nor can states of an optimizer, at whose line there is nothing to make smaller.
TEST(Capacity, StatesAreOfTheirOptimizer) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    Training t(s, {.activation = kMiB, .weight = 32 * kMiB});
    for (int i = 0; i < 6; ++i) t.step(1);
  });
  const Finding f = trace.finding("capacity", kContextBytes + 64 * kMiB);
  const Advice* advice = advice_of(f, "look_at_largest");
  ASSERT_NE(advice, nullptr);
  EXPECT_NE(advice->detail.find(" are of the optimizer that steps at "), std::string::npos)
      << advice->detail;
  EXPECT_EQ(advice->detail.find("free them earlier"), std::string::npos) << advice->detail;
}

// Half the batch is enough for one card, but not for a smaller one.
TEST(Capacity, ASmallerStepIsNotTheOnlyAdviceIfItDoesNotFit) {
  const Trace trace = Trace::on_card(kNotKnown, [](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step(8);
  });
  const uint64_t peak = trace.model().processes[0].framework[0].allocated_peak.bytes;
  const Finding halved = trace.finding("capacity", kContextBytes + peak * 3 / 4);
  EXPECT_NE(advice_of(halved, "halve_batch"), nullptr);
  EXPECT_EQ(advice_of(halved, "look_at_largest"), nullptr);
  const Finding small = trace.finding("capacity", kContextBytes + peak / 10);
  EXPECT_NE(advice_of(small, "halve_batch"), nullptr);
  EXPECT_NE(advice_of(small, "look_at_largest"), nullptr);
}

// What is older than the history is named only if it is most; otherwise the line that holds most
// is.
TEST(Capacity, OlderBlocksAreBlamedOnlyIfTheyAreMost) {
  const auto advised = [](uint64_t older) {
    return Trace::on_card(kNotKnown,
                          [=](Story& s, uint32_t) {
                            for (int i = 0; i < 3; ++i) s.alloc(64 * kMiB, s.user(1));
                            for (int i = 0; i < 2; ++i) s.alloc(64 * kMiB, s.user(2));
                            s.older_block(older);
                          })
        .finding("capacity", kContextBytes + 128 * kMiB);
  };
  EXPECT_NE(advice_of(advised(300 * kMiB), "look_at_largest"), nullptr);
  EXPECT_EQ(advice_of(advised(300 * kMiB), "record_longer"), nullptr);
  EXPECT_NE(advice_of(advised(400 * kMiB), "record_longer"), nullptr);
}

}  // namespace
}  // namespace tidemark
