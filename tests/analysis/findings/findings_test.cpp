// For every finding, a synthetic run that has it and a similar one that does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/insight/card/limit.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Ids = std::vector<std::string>;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(Findings, HealthyTrainingHasNone) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 10; ++i) t.step();
  });
  EXPECT_EQ(trace.alarms(), Ids{});
}

TEST(Findings, CapacityAndActivationPeak) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 3; ++i) t.step();
    const auto kept = t.forward(2);  // twice the batch, then out of memory
    s.run_out(256 * kMiB, 10 * kMiB, s.forward(1));
    for (const uint64_t a : kept) s.free(a);
  });
  EXPECT_EQ(trace.alarms(), (Ids{"activation_peak", "capacity"}));
  const Finding f = trace.finding("capacity");
  EXPECT_EQ(f.severity, kError);
  ASSERT_FALSE(f.advice.empty());
  for (size_t i = 1; i < f.advice.size(); ++i) {
    EXPECT_GE(f.advice[i - 1].saves_bytes, f.advice[i].saves_bytes);
  }
}

TEST(Findings, HalfTheBatchSavesWhatARunWithHalfOfItSaves) {
  const auto run = [](uint64_t scale) {
    return Trace([scale](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 6; ++i) t.step(scale);
    });
  };
  const Trace twice = run(2);
  const Trace once = run(1);
  const uint64_t saved = twice.model().processes[0].framework[0].allocated_peak.bytes -
                         once.model().processes[0].framework[0].allocated_peak.bytes;
  EXPECT_EQ(twice.finding("activation_peak").severity, "");  // there is room for more
  const Finding f = twice.finding("activation_peak", 512 * kMiB);
  ASSERT_FALSE(f.advice.empty());
  uint64_t promised = 0;
  for (const Advice& a : f.advice) {
    if (a.action != "halve_batch") continue;
    promised = a.saves_bytes;
    EXPECT_NE(a.detail.find("activations, inputs and the passes' temporaries shrink"),
              std::string::npos);
  }
  EXPECT_NEAR(static_cast<double>(promised), static_cast<double>(saved),
              0.1 * static_cast<double>(saved));
}

bool advises(const Finding& f, std::string_view action) {
  return std::any_of(f.advice.begin(), f.advice.end(),
                     [&](const Advice& a) { return a.action == action; });
}

TEST(Findings, FragmentationWhenHolesWouldHaveBeenEnough) {
  const auto run = [](bool holes) {
    return Trace([holes](Story& s, uint32_t) {
      std::vector<uint64_t> scratch;
      for (int i = 0; i < 12; ++i) {
        scratch.push_back(s.alloc(24 * kMiB, s.user(1)));
        if (holes) s.free(scratch.back());
        s.alloc(14 * kMiB, s.user(2));  // takes the first part of the hole and pins the rest
      }
      for (int i = 0; i < 40; ++i) {  // continues without growing, in the small holes
        const uint64_t a = s.alloc(5 * kMiB, s.user(9));
        s.free(s.alloc(3 * kMiB, s.user(10)));
        s.free(a);
      }
      s.run_out(48 * kMiB, 4 * kMiB, s.user(3));
    });
  };
  EXPECT_EQ(run(true).alarms(), (Ids{"fragmentation"}));
  EXPECT_EQ(run(false).alarms(), (Ids{"capacity"}));
  const Finding f = run(true).finding("fragmentation");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:2");
  EXPECT_TRUE(advises(f, "move_pins"));
}

// Segments that a list made while it grew, one after the other, are free. The weights came first
// and keep nothing of them.
TEST(Findings, TheLineThatLeftFreeSegmentsIsNamed) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 100; ++i) s.alloc(9 * kMiB, s.user(1));
    uint64_t list = 0;
    for (uint64_t i = 1; i < 60; ++i) {
      const uint64_t longer = s.alloc(10 * i * kMiB, s.user(2));
      if (list != 0) s.free(list);
      list = longer;
    }
  });
  const Finding f = trace.finding("fragmentation");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:2");
  EXPECT_FALSE(advises(f, "move_pins"));
  EXPECT_NE(f.summary.find("in segments without any block"), std::string::npos) << f.summary;
  EXPECT_EQ(f.summary.find("left from before"), std::string::npos) << f.summary;
  EXPECT_TRUE(advises(f, "empty_cache"));
}

// States of sessions of three customers, one after the other; two customers leave. They came before
// anything was freed, so that nothing could have been allocated earlier.
TEST(Findings, SurvivorsThatKeepSegmentsAreNamed) {
  const Trace trace([](Story& s, uint32_t) {
    std::vector<uint64_t> gone;
    for (int i = 0; i < 90; ++i) {
      const uint64_t state = s.alloc(6 * kMiB, s.user(32));
      if (i % 3 != 0) gone.push_back(state);
    }
    for (const uint64_t state : gone) s.free(state);
    for (int i = 0; i < 100; ++i) s.free(s.alloc(kMiB, s.user(50)));
    s.run_out(200 * kMiB, kMiB, s.user(67));
  });
  const Finding f = trace.finding("fragmentation");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:32");
  EXPECT_NE(f.summary.find("of the holes are beside blocks of train.py:32 that stay"),
            std::string::npos)
      << f.summary;
  EXPECT_TRUE(advises(f, "group_lifetimes"));
}

// Batches that get longer and longer, on a card with room: no cached block fits again.
TEST(Findings, WhatIsReservedTwiceOverIsSaidAlsoWhereThereIsRoom) {
  const auto run = [](bool grows) {
    return Trace::on_card(uint64_t{64} << 30, [grows](Story& s, uint32_t) {
      for (uint64_t i = 0; i < 40; ++i) {
        const uint64_t bytes = (100 + (grows ? 5 * i : 200)) * kMiB;
        std::vector<uint64_t> blocks;
        for (int k = 0; k < 4; ++k) blocks.push_back(s.alloc(bytes, s.user(1)));
        for (const uint64_t block : blocks) s.free(block);
      }
    });
  };
  const Finding f = run(true).finding("fragmentation");
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_TRUE(advises(f, "allocator_settings"));
  EXPECT_TRUE(run(false).finding("fragmentation").id.empty());
}

// What a first part has left in the cache, which another stream cannot use.
TEST(Findings, HolesThatNoSettingAvoidsAreNotNotedWhileMemoryIsNotScarce) {
  const auto run = [](uint64_t stream, uint64_t card) {
    return Trace::on_card(card, [stream](Story& s, uint32_t) {
      std::vector<uint64_t> blocks;
      for (int k = 0; k < 40; ++k) blocks.push_back(s.alloc(100 * kMiB, s.user(1)));
      for (const uint64_t block : blocks) s.free(block);
      s.on(stream, 0);
      s.free(s.alloc(800 * kMiB, s.user(2)));
    });
  };
  constexpr uint64_t kHalfFull = uint64_t{7} << 30;
  EXPECT_EQ(run(0, kHalfFull).finding("fragmentation").severity, kInfo);
  EXPECT_TRUE(run(7, kHalfFull).finding("fragmentation").id.empty());
  EXPECT_EQ(run(7, uint64_t{5} << 30).finding("fragmentation").severity, kWarning) << "scarce";
}

// What the running step allocates is no long-lived block that could be allocated first.
TEST(Findings, BlocksOfTheRunningStepAreNoPins) {
  const Trace trace([](Story& s, uint32_t) {
    const Training t(s, {});
    std::vector<uint64_t> scratch;
    for (int i = 0; i < 30; ++i) {
      scratch.push_back(s.alloc(24 * kMiB, s.forward(1)));
      s.free(scratch.back());
      s.alloc(14 * kMiB, s.forward(2));
    }
    s.run_out(48 * kMiB, 4 * kMiB, s.forward(3));
  });
  const Finding f = trace.finding("fragmentation");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "forward torch/nn/modules/op.py:3");
  EXPECT_FALSE(advises(f, "move_pins"));
}

// 115 MiB are free in two holes, in segments of the request's stream and pool or of others.
TEST(Findings, OnlyHolesThatTheRequestCanUseAreTooSmall) {
  const auto summary = [](uint64_t stream, uint32_t pool) {
    const Trace trace([&](Story& s, uint32_t) {
      s.alloc(400 * kMiB, s.user(1));
      s.on(stream, pool);
      const uint64_t freed[] = {s.alloc(120 * kMiB, s.user(2)), s.alloc(120 * kMiB, s.user(2))};
      for (const uint64_t block : freed) s.free(block);
      s.alloc(30 * kMiB, s.user(3));
      s.alloc(95 * kMiB, s.user(3));
      s.on(0, 0);
      s.run_out(stream == 0 && pool == 0 ? 100 * kMiB : 50 * kMiB, 0, s.user(4));
    });
    return trace.finding("fragmentation").summary;
  };
  EXPECT_NE(summary(0, 0).find("the largest, 90.0 MiB, is too small"), std::string::npos)
      << summary(0, 0);
  for (const auto& [stream, pool] : {std::pair{7U, 0U}, std::pair{0U, 1U}}) {
    EXPECT_EQ(summary(stream, pool).find("too small"), std::string::npos) << summary(stream, pool);
    EXPECT_NE(summary(stream, pool).find("other streams and pools"), std::string::npos);
  }
}

TEST(Findings, MemoryFractionOnlyWhenTheCardHadMemory) {
  const auto run = [](uint64_t device_free) {
    return Trace([device_free](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) s.alloc(100 * kMiB, s.user(1));
      s.run_out(100 * kMiB, device_free, s.user(1));
    });
  };
  EXPECT_EQ(run(10 * kGiB).alarms(), (Ids{"capacity", "memory_fraction"}));
  EXPECT_EQ(run(50 * kMiB).alarms(), (Ids{"capacity"}));
}

TEST(Findings, CreepNamesTheLineAndWhatItHolds) {
  const auto run = [](bool keeps) {
    return Trace([keeps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 20; ++i) {
        t.step();
        const uint64_t logged = s.alloc(4 * kMiB, s.user(77));
        if (!keeps) s.free(logged);
      }
    });
  };
  const Trace creeping = run(true);
  EXPECT_EQ(creeping.alarms(), (Ids{"creep"}));
  const Finding f = creeping.finding("creep");
  ASSERT_EQ(f.frames.size(), 1U);
  EXPECT_EQ(f.frames[0], "work train.py:77");
  EXPECT_EQ(creeping.report().ranks[0].devices[0].steps.growth_bytes_per_step, 4.0 * kMiB);
  // 20 blocks are live at the end; the last peak included 19 or 20.
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), 19.0 * 4 * kMiB, 4.0 * kMiB);
  EXPECT_EQ(run(false).alarms(), Ids{});
}

// What stays in reference cycles is freed in the middle of a forward pass, at another place each
// time; a list of the program is cleared at one place.
TEST(Findings, MemoryThatOnlyTheCycleCollectorFrees) {
  const auto run = [](bool collected) {
    return Trace([collected](Story& s, uint32_t) {
      Training t(s, {});
      std::vector<uint64_t> cycles;
      const auto free_all = [&] {
        for (const uint64_t a : cycles) s.free(a);
        cycles.clear();
      };
      for (int i = 0; i < 30; ++i) {
        t.step();
        for (int layer = 1; layer <= 3; ++layer) {
          const uint64_t a = s.alloc(2 * kMiB, s.forward(10 + layer));
          if (collected && i % 9 == 8 && layer == 1 + i / 9) free_all();
          s.free(a);
        }
        if (!collected && i % 9 == 8) free_all();
        cycles.push_back(s.alloc(20 * kMiB, s.user(80)));
      }
    });
  };
  const Finding f = run(true).finding("creep");
  EXPECT_EQ(f.severity, kInfo);
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:80");
  EXPECT_EQ(f.advice.at(0).action, "break_cycles");
  EXPECT_EQ(run(false).finding("creep").advice.at(0).action, "keep_less");
}

TEST(Findings, RetainedGraphIsNotCalledCreep) {
  const auto run = [](bool keeps) {
    return Trace([keeps](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 10; ++i) t.step(1, keeps);
    });
  };
  const Trace kept = run(true);
  EXPECT_EQ(kept.alarms(), (Ids{"retained_graph"}));
  const uint64_t saved = kept.model().processes[0].framework[0].allocated_peak.bytes -
                         run(false).model().processes[0].framework[0].allocated_peak.bytes;
  EXPECT_NEAR(static_cast<double>(kept.finding("retained_graph").advice[0].saves_bytes),
              static_cast<double>(saved), 0.1 * static_cast<double>(saved));
}

// Requests that a server handles one after the other: some keep what they hold, or the last one
// does because it is not finished.
TEST(Findings, CachesOfFinishedRequestsThatStay) {
  const auto run = [](auto keeps) {
    return Trace([=](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(64 * kMiB, s.setup());
      for (int request = 0; request < 12; ++request) {
        std::vector<uint64_t> cache;
        for (int token = 0; token < 18; ++token) {
          const uint64_t work = s.alloc(3 * kMiB, s.forward(1, "generate serve.py:31"));
          cache.push_back(s.alloc(2 * kMiB, s.forward(2, "generate serve.py:31")));
          s.free(work);
        }
        if (keeps(request)) continue;
        for (const uint64_t block : cache) s.free(block);
      }
    });
  };
  const Finding f = run([](int request) { return request % 2 == 0; }).finding("creep");
  EXPECT_EQ(f.severity, kInfo);
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "forward torch/nn/modules/op.py:2");
  EXPECT_EQ(f.evidence[0].second, 6 * 18 * 2 * kMiB);
  EXPECT_TRUE(run([](int request) { return request == 11; }).finding("creep").id.empty());
  EXPECT_TRUE(run([](int) { return false; }).finding("creep").id.empty());
  const Finding all = run([](int) { return true; }).finding("creep");
  EXPECT_EQ(all.severity, kInfo);
  EXPECT_EQ(all.summary,
            "one line of the model allocated 432.0 MiB in 216 blocks, and none was freed");
}

TEST(Findings, AGraphThatOnlySomeStepsRetainIsNotCalledCreep) {
  const Trace kept([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 48; ++i) t.step(1, i % 8 == 7);
  });
  EXPECT_EQ(kept.alarms(), (Ids{"retained_graph"}));
}

// Six layers in each of ten steps whose graphs stay are no sixty layers.
TEST(Findings, LayersToRecomputeAreThoseOfOneStep) {
  const Trace kept([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 10; ++i) t.step(1, true);
  });
  std::string text;
  for (const Advice& a : kept.finding("activation_peak", 720 * kMiB).advice) {
    if (a.action == "checkpoint") text = a.detail;
  }
  EXPECT_NE(text.find("each of the 6 repeated layers"), std::string::npos) << text;
}

// A line may allocate several times in a layer, some of a pass's layers may be gone at the peak,
// and several passes may follow each other. `kinds`: of layers, which allocate from lines of their
// own.
std::string text_of_recomputing(int micro_batches, int kinds) {
  const Trace trace([=](Story& s, uint32_t) {
    std::vector<uint64_t> weights;
    for (int i = 0; i < 8; ++i) weights.push_back(s.alloc(2 * kMiB, s.setup()));
    for (int step = 0; step < 5; ++step) {
      std::vector<uint64_t> graph;
      for (int m = 0; m < micro_batches; ++m) {
        const uint64_t input = s.alloc(4 * kMiB, s.user(5));
        for (int layer = 0; layer < 8; ++layer) {
          const int line = 1 + layer * kinds / 8 * 10;
          for (const int in_layer : {0, 0, 1, 0, 2, 2}) {
            graph.push_back(s.alloc(8 * kMiB, s.forward(line + in_layer)));
          }
        }
        if (m + 1 < micro_batches) s.free(s.alloc(kMiB, s.user(6)));
        if (m + 1 == micro_batches) {
          for (int i = 0; i < 12; ++i) {  // the last two layers
            s.free(graph.back());
            graph.pop_back();
          }
          const uint64_t large = s.alloc(200 * kMiB, 0);  // the peak
          for (; !graph.empty(); graph.pop_back()) s.free(graph.back());
          s.free(large);
        }
        s.free(input);
      }
      s.optimizer_mark();
    }
  });
  for (const Advice& a : trace.finding("activation_peak", kGiB).advice) {
    if (a.action == "checkpoint") return a.detail;
  }
  return "";
}

TEST(Findings, LayersToRecomputeAreCountedInOneCallOfTheModel) {
  constexpr std::string_view kEight = "around each of the 8 repeated layers";
  EXPECT_NE(text_of_recomputing(1, 1).find(kEight), std::string::npos) << text_of_recomputing(1, 1);
  EXPECT_NE(text_of_recomputing(2, 1).find(kEight), std::string::npos) << text_of_recomputing(2, 1);
  // Two kinds of four layers.
  EXPECT_NE(text_of_recomputing(1, 2).find("around each repeated layer"), std::string::npos)
      << text_of_recomputing(1, 2);
}

// Of a small model, too, whose whole pass is over after a few allocations.
TEST(Findings, EvaluationThatKeepsItsGraph) {
  const auto run = [](int layers, bool keeps) {
    return Trace([=](Story& s, uint32_t) {
      Training::Shape shape;
      shape.layers = layers;
      Training t(s, shape);
      for (int i = 0; i < 9; ++i) {
        t.step();
        if (i % 3 != 2) continue;
        if (keeps) {
          for (const uint64_t a : t.forward(4, "validate train.py:30")) s.free(a);
        } else {
          for (int k = 0; k < 3 * layers; ++k) s.free(s.alloc(32 * kMiB, s.forward(1)));
        }
      }
    });
  };
  for (const int layers : {3, 6}) {
    const Trace keeping = run(layers, true);
    EXPECT_EQ(keeping.alarms(), (Ids{"eval_keeps_graph"})) << layers;
    const uint64_t saved =
        keeping.model().processes[0].framework[0].allocated_peak.bytes -
        run(layers, false).model().processes[0].framework[0].allocated_peak.bytes;
    const Finding f = keeping.finding("eval_keeps_graph");
    EXPECT_EQ(headline_of(f.frames), "validate train.py:30");
    // The peak is just before the last block of the last layer.
    EXPECT_EQ(f.evidence[2].second, (static_cast<uint64_t>(layers) * 80 - 16) * kMiB);
    EXPECT_LE(f.advice[0].saves_bytes, saved);
    // What a pass holds without a graph is a larger part of a small one.
    EXPECT_GE(static_cast<double>(f.advice[0].saves_bytes),
              (layers == 3 ? 0.5 : 0.9) * static_cast<double>(saved));
    EXPECT_EQ(run(layers, false).alarms(), Ids{}) << layers;
  }
}

// Enough bytes are free, but neither a hole nor the card has them in one piece.
TEST(Findings, FreeMemoryInPiecesIsNamed) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(988 * kMiB, s.user(1));
    s.free(s.alloc(20 * kMiB, s.user(2)));
    s.alloc(4 * kMiB, s.user(3));
    s.run_out(20 * kMiB, 6 * kMiB, s.user(4));
  });
  EXPECT_EQ(
      trace.finding("capacity").summary,
      "out of memory: 20.0 MiB requested; 22.0 MiB free, but in pieces: 16.0 MiB in holes and "
      "6.0 MiB that was not reserved (992.0 MiB of 1014.0 MiB in use); the other 15.0 GiB of the "
      "card were not free");
}

// The driver has more than the request, but less than the segment it would be part of.
TEST(Findings, SegmentThatIsLargerThanTheRequestIsNamed) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(1000 * kMiB, s.user(1));
    s.run_out(3 * kMiB, 15 * kMiB, s.user(2));
  });
  EXPECT_EQ(
      trace.finding("capacity").summary,
      "out of memory: 3.0 MiB requested, for which PyTorch asks the driver for a segment of "
      "20.0 MiB; 15.0 MiB free (1000.0 MiB of 1015.0 MiB in use); the other 15.0 GiB of the card "
      "were not free");
}

// Rounded, the request would be as large as what is free.
TEST(Findings, ARequestThatMissesByLittleIsNamed) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(1000 * kMiB, s.user(1));
    s.alloc(512, s.user(1));
    s.run_out(48 * kMiB, 46 * kMiB, s.user(2));
  });
  EXPECT_EQ(trace.finding("capacity").summary,
            "out of memory: 48.0 MiB requested, 512 B more than is free (1000.0 MiB of 1.0 GiB in "
            "use); the other 15.0 GiB of the card were not free");
}

// The end is printed with fewer digits than it has, and may be copied from there.
TEST(Findings, TheEndAsItIsPrintedIsAnInstant) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3000; ++i) s.free(s.alloc(kMiB, s.user(1)));
  });
  const int64_t length_ns = trace.model().end_ns - trace.model().start_ns;
  EXPECT_TRUE(check_time(trace.model(), length_ns));
  EXPECT_TRUE(check_time(trace.model(), length_ns + 1));
  const Status late = check_time(trace.model(), 2 * length_ns);
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find(fmt::format("the trace ends at {}: it has no {}",
                                                  duration_text(length_ns),
                                                  duration_text(2 * length_ns))),
            std::string::npos)
      << late.error().message;
}

TEST(Findings, OptimizerSpikeWhenItRunsOutInsideTheStep) {
  const auto run = [](bool in_step) {
    return Trace([in_step](Story& s, uint32_t) {
      Training t(s, {});
      t.step();
      s.run_out(1000 * kMiB, 10 * kMiB, in_step ? s.optimizer("_multi_tensor_adam") : s.user(5));
    });
  };
  EXPECT_EQ(run(true).alarms(), (Ids{"activation_peak", "capacity", "optimizer_state_spike"}));
  EXPECT_EQ(run(false).alarms(), (Ids{"activation_peak", "capacity"}));
}

TEST(Findings, FusedOptimizerSavesItsTemporaries) {
  const auto run = [](bool temporaries) {
    return Trace([temporaries](Story& s, uint32_t) {
      Training t(s, {6, kMiB, 64 * kMiB, temporaries, true});
      for (int i = 0; i < 4; ++i) t.step();
    });
  };
  const Trace foreach_run = run(true);
  EXPECT_EQ(foreach_run.finding("optimizer_state_spike").severity, "");  // there is room for more
  const Finding f = foreach_run.finding("optimizer_state_spike", 3 * kGiB);
  EXPECT_EQ(f.severity, kInfo);
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "fused_optimizer");
  // Without them the peak is a little earlier in the step.
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), 6.0 * 64 * kMiB, 2.0 * kMiB);
}

// A class of the program has no such option.
TEST(Findings, AnOptimizerOfTheProgramIsNotFused) {
  const Trace trace([](Story& s, uint32_t) {
    const uint32_t step =
        s.stack({"step my_adam.py:30", "wrapper torch/optim/optimizer.py:9", "train train.py:12"});
    for (int i = 0; i < 6; ++i) s.alloc(64 * kMiB, s.setup());
    for (int i = 0; i < 4; ++i) {
      const uint64_t kept = s.alloc(8 * kMiB, s.forward(1));
      std::vector<uint64_t> blocks;
      for (int k = 0; k < 6; ++k) blocks.push_back(s.alloc(64 * kMiB, 0));
      s.free(kept);
      for (int k = 0; k < 6; ++k) blocks.push_back(s.alloc(64 * kMiB, step));
      for (const uint64_t block : blocks) s.free(block);
    }
  });
  const Finding f = trace.finding("optimizer_state_spike", 3 * kGiB / 2);
  EXPECT_EQ(f.id, "optimizer_state_spike");
  for (const Advice& a : f.advice) EXPECT_NE(a.action, "fused_optimizer");
}

TEST(Findings, CacheThrashNamesEmptyCache) {
  const auto run = [](bool empties) {
    return Trace([empties](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 8; ++i) {
        t.step();
        if (empties) {
          s.empty_cache(s.stack({"empty_cache torch/cuda/memory.py:200", "train train.py:14"}));
        }
      }
    });
  };
  const Trace thrashing = run(true);
  EXPECT_EQ(thrashing.alarms(), (Ids{"cache_thrash"}));
  EXPECT_EQ(thrashing.finding("cache_thrash").advice[0].action, "remove_empty_cache");
  // Without the stack of the call: on a card with room for more, only a request empties the cache.
  const Trace unnamed([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 8; ++i) {
      t.step();
      s.empty_cache(0);
    }
  });
  EXPECT_EQ(unnamed.finding("cache_thrash").advice[0].action, "remove_empty_cache");
  // With the stack of the request for which it was emptied, whatever the card seems to have.
  const Trace retries([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) {
      const uint64_t hidden = s.alloc(400 * kMiB, s.forward(1));
      s.free(s.alloc(200 * kMiB, s.forward(2)));
      s.free(hidden);
      s.empty_cache(s.forward(1));
    }
  });
  EXPECT_EQ(retries.finding("cache_thrash").advice[0].action, "make_room");
  EXPECT_EQ(run(false).alarms(), Ids{});
}

// torch.cuda.graph() empties the cache itself before it captures.
TEST(Findings, CapturesThatEmptyTheCacheDoNotThrash) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) {
      s.free(s.alloc(400 * kMiB, s.forward(1)));
      s.empty_cache(s.stack({"empty_cache torch/cuda/memory.py:200",
                             "__enter__ torch/cuda/graphs.py:250", "capture serve.py:66"}));
    }
  });
  EXPECT_TRUE(trace.finding("cache_thrash").id.empty());
}

// Where segments are freed with the stack that they were reserved with, that is no cause.
TEST(Findings, CacheThrashWithoutStacksOfFrees) {
  const auto tell = [](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) {
      const uint64_t hidden = s.alloc(400 * kMiB, s.forward(1));
      s.free(s.alloc(200 * kMiB, s.forward(1)));
      s.free(hidden);
      s.empty_cache(s.forward(1));
    }
  };
  const Trace roomy(tell);
  EXPECT_EQ(roomy.finding("cache_thrash").advice[0].action, "remove_empty_cache");
  for (const uint64_t card : {uint64_t{0}, kGiB}) {  // not known, and nearly full
    const Advice advice = Trace::on_card(card, tell).finding("cache_thrash").advice[0];
    EXPECT_EQ(advice.action, "make_room");
    EXPECT_NE(advice.detail.find("does not name who"), std::string::npos) << advice.detail;
  }
}

// The size of the card is not known. Whatever was reserved, segments were returned when the next
// one would have made it more than ever.
TEST(Findings, RetriesTellWhereACardIsFull) {
  const auto limit = [](uint64_t last) {
    const Trace trace = Trace::on_card(0, [=](Story& s, uint32_t) {
      const auto cached = [&](uint64_t mib) { s.free(s.alloc(mib * kMiB, s.forward(1))); };
      const uint64_t held = s.alloc(300 * kMiB, s.forward(2));
      cached(150);
      s.empty_cache(0);
      cached(560);
      s.empty_cache(0);
      cached(700);
      s.free(held);
      s.empty_cache(0);
      cached(last);
    });
    const ProcessModel& process = trace.model().processes[0];
    return limit_of(process, process.framework[0]);
  };
  EXPECT_EQ(limit(800).source, LimitSource::kRetries);
  EXPECT_EQ(limit(800).bytes, 1000 * kMiB);
  EXPECT_TRUE(limit(800).at_least);
  EXPECT_FALSE(limit(1100).is_known());  // more was reserved than what did not fit before
}

// One model is dropped, with the cache, before another is loaded in its place.
TEST(Findings, ModelsThatReplaceEachOtherAreNoThrash) {
  const Trace swaps([](Story& s, uint32_t) {
    for (int model = 0; model < 6; ++model) {
      std::vector<uint64_t> weights;
      for (int i = 0; i < 6; ++i) weights.push_back(s.alloc(64 * kMiB, s.setup()));
      for (int pass = 0; pass < 40; ++pass) {
        const uint64_t hidden = s.alloc(4 * kMiB, s.forward(0));
        s.free(s.alloc(kMiB, s.forward(1)));
        s.free(hidden);
      }
      for (const uint64_t block : weights) s.free(block);
      s.empty_cache(s.stack({"empty_cache torch/cuda/memory.py:200", "swap serve.py:60"}));
    }
  });
  EXPECT_TRUE(swaps.finding("cache_thrash").id.empty());
}

// Sizes in an order without a trend.
uint64_t scattered(int step) {
  return static_cast<uint64_t>(step * 7 % 20);
}

TEST(Findings, ShapeVarianceWhenSizesNeverReturn) {
  const auto run = [](bool varies) {
    return Trace([varies](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) {
        const uint64_t n = varies ? 20 + 4 * scattered(i) : 100;
        const uint64_t x = s.alloc(2 * kMiB, s.user(1));
        const uint64_t a = s.alloc(n * kMiB, s.forward(1, "work train.py:10"));
        const uint64_t b = s.alloc(n * kMiB, s.forward(2, "work train.py:10"));
        s.free(a);
        s.free(b);
        s.free(x);
      }
    });
  };
  const Trace varying = run(true);
  EXPECT_EQ(varying.alarms(), Ids{});  // there is room: no more than a note
  // With the sizes of the longest in every step, two blocks of 96 MiB and the input's segment.
  const uint64_t reserved = varying.model().processes[0].framework[0].reserved_peak.bytes;
  const Finding f = varying.finding("shape_variance");
  const auto pad = std::find_if(f.advice.begin(), f.advice.end(),
                                [](const Advice& a) { return a.action == "pad_shapes"; });
  ASSERT_NE(pad, f.advice.end());
  EXPECT_EQ(pad->saves_bytes, reserved - (2 * 96 + 20) * kMiB);
  EXPECT_NE(pad->detail.find("saves up to"), std::string::npos) << pad->detail;
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_TRUE(run(false).finding("shape_variance").id.empty());
}

// Sizes that differ in every step and cost nothing: blocks of 60 MiB serve them all. Nor is a cache
// to which each token adds a shape that the program could fix.
TEST(Findings, ShapesThatCostNothingAreNoShapeVariance) {
  const Trace harmless([](Story& s, uint32_t) {
    s.free(s.alloc(60 * kMiB, s.forward(3)));
    for (int i = 0; i < 20; ++i) {
      const uint64_t x = s.alloc(2 * kMiB, s.user(1));
      s.free(s.alloc((40 + scattered(i)) * kMiB, s.forward(1, "work train.py:10")));
      s.free(x);
    }
  });
  EXPECT_TRUE(harmless.finding("shape_variance").id.empty());
  const Trace growing([](Story& s, uint32_t) {
    s.alloc(200 * kMiB, s.setup());
    uint64_t cache = s.alloc(20 * kMiB, s.forward(1, "answer serve.py:10"));
    for (uint64_t i = 1; i < 12; ++i) {
      const uint64_t x = s.alloc(2 * kMiB, s.user(1));
      const uint64_t longer = s.alloc((20 + 4 * i) * kMiB, s.forward(1, "answer serve.py:10"));
      s.free(cache);
      cache = longer;
      s.free(x);
    }
  });
  EXPECT_TRUE(growing.finding("shape_variance").id.empty());
}

// Batches sorted by their lengths, the shortest first.
TEST(Findings, StepsThatBecomeLongerAreShapeVariance) {
  const Trace sorted([](Story& s, uint32_t) {
    for (uint64_t i = 0; i < 20; ++i) {
      const uint64_t x = s.alloc(2 * kMiB, s.user(1));
      const uint64_t a = s.alloc((20 + 8 * i) * kMiB, s.forward(1, "work train.py:10"));
      const uint64_t b = s.alloc((20 + 8 * i) * kMiB, s.forward(2, "work train.py:10"));
      s.free(a);
      s.free(b);
      s.free(x);
    }
  });
  const Finding f = sorted.finding("shape_variance");
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_TRUE(f.summary.starts_with("each step asks for larger blocks")) << f.summary;
}

TEST(Findings, LayersOfDifferentSizesAreNoShapeVariance) {
  const auto run = [](bool varies) {
    return Trace([varies](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) {
        const uint64_t x = s.alloc(2 * kMiB, s.user(1));
        std::vector<uint64_t> layers;
        for (uint64_t k = 0; k < 18; ++k) {
          const uint64_t step = varies ? scattered(i) : 0;
          layers.push_back(s.alloc((20 + 4 * k + step) * kMiB, s.forward(1, "work train.py:2")));
        }
        for (const uint64_t a : layers) s.free(a);
        s.free(s.alloc(700 * kMiB, s.user(3)));  // does not fit in what was freed
        s.free(x);
      }
    });
  };
  EXPECT_EQ(run(false).alarms(), Ids{});
  EXPECT_TRUE(run(false).finding("shape_variance").id.empty());
  const Trace varying = run(true);
  EXPECT_EQ(varying.finding("shape_variance").severity, kInfo);
  // Those of the batch: how the layers differ does not count.
  EXPECT_EQ(varying.finding("shape_variance").evidence[0].second, 20U);
  EXPECT_NE(varying.finding("shape_variance").summary.find("one line has 20 different ones in 20"),
            std::string::npos);
}

// Where there is room, sizes that vary and cost little are no problem.
TEST(Findings, ShapeVarianceThatCostsLittle) {
  const auto run = [](uint64_t card, uint64_t weights) {
    return Trace::on_card(
               card * kMiB,
               [weights](Story& s, uint32_t) {
                 for (uint64_t i = 0; i < weights; i += 100) s.alloc(100 * kMiB, s.setup());
                 for (int i = 0; i < 20; ++i) {
                   const uint64_t x = s.alloc(2 * kMiB, s.user(1));
                   std::vector<uint64_t> layers;
                   for (uint64_t k = 0; k < 18; ++k) {
                     const uint64_t mib = 20 + 4 * k + scattered(i);
                     layers.push_back(s.alloc(mib * kMiB, s.forward(1, "work train.py:2")));
                   }
                   for (const uint64_t a : layers) s.free(a);
                   s.free(s.alloc(700 * kMiB, s.user(3)));  // does not fit in what was freed
                   s.free(x);
                 }
               })
        .finding("shape_variance")
        .id;
  };
  EXPECT_EQ(run(80000, 0), "shape_variance");
  EXPECT_EQ(run(5000, 1500), "shape_variance");
  EXPECT_EQ(run(80000, 1500), "");
}

// A loop that runs more often in one step than in another requests blocks of the same few sizes.
TEST(Findings, AnotherNumberOfTheSameSizesIsNoShapeVariance) {
  for (const uint64_t sizes : {1U, 2U, 3U}) {
    const Trace trace([&](Story& s, uint32_t) {
      for (int i = 0; i < 20; ++i) {
        const uint64_t x = s.alloc(2 * kMiB, s.user(1));
        std::vector<uint64_t> pieces;
        for (uint64_t k = 0; k < 4 + scattered(i); ++k) {
          const uint64_t mib = sizes < 3 ? 30 + 7 * (k % sizes) : 30 + scattered(i) % sizes * 20;
          pieces.push_back(s.alloc(mib * kMiB, s.forward(1, "work train.py:2")));
        }
        for (const uint64_t a : pieces) s.free(a);
        s.free(s.alloc(900 * kMiB, s.user(3)));  // does not fit in what was freed
        s.free(x);
      }
    });
    EXPECT_TRUE(trace.finding("shape_variance").id.empty()) << sizes;
  }
}

// Graphs that are captured one after the other, each into one of `pools`. Each leaves a result.
Trace captures(uint64_t pools) {
  return Trace([pools](Story& s, uint32_t) {
    for (uint32_t i = 0; i < 4; ++i) {
      s.on(7, 1 + static_cast<uint32_t>(i % pools));
      const uint64_t small = s.alloc(60 * kMiB, s.forward(1));
      s.free(s.alloc((100 - 20 * i) * kMiB, s.forward(2)));
      s.free(small);
      s.alloc(30 * kMiB, s.forward(3));
    }
    s.on(0, 0);
    s.free(s.alloc(200 * kMiB, s.forward(4)));  // the program goes on without them
  });
}

TEST(Findings, IdlePrivatePools) {
  const auto reserved = [](const Trace& trace) {
    return trace.model().processes[0].framework[0].reserved_peak.bytes;
  };
  const Trace apart = captures(4);
  EXPECT_EQ(apart.alarms(), (Ids{"graph_private_pool"}));
  const Finding f = apart.finding("graph_private_pool");
  EXPECT_FALSE(f.frames.empty());
  EXPECT_EQ(f.advice[0].saves_bytes, reserved(apart) - reserved(captures(1)));
  EXPECT_NE(f.summary.find("reserved in 4 private pools at the end"), std::string::npos)
      << f.summary;
  EXPECT_EQ(captures(1).alarms(), Ids{});
  EXPECT_EQ(captures(1).finding("graph_private_pool").id, "") << "graphs that share are no news";
}

TEST(Findings, RankThatKeepsMoreThanTheOthers) {
  const auto run = [](bool extra) {
    return Trace(
        [extra](Story& s, uint32_t rank) {
          Training t(s, {});
          for (int i = 0; i < 6; ++i) t.step();
          if (extra && rank == 0) s.alloc(400 * kMiB, s.user(50));
        },
        3, true);
  };
  const Trace uneven = run(true);
  EXPECT_EQ(uneven.alarms(), (Ids{"rank_imbalance"}));
  const Finding f = uneven.finding("rank_imbalance");
  EXPECT_EQ(f.rank, 0);
  EXPECT_EQ(f.frames, (Ids{"work train.py:50"}));
  EXPECT_EQ(f.advice[0].action, "move_extras");
  EXPECT_EQ(run(false).alarms(), Ids{});
}

// All ranks allocate through one line; the memory is kept by a caller that only one of them has, or
// that all have.
TEST(Findings, OnlyTheLineThatNoOtherRankRunsIsItsOwn) {
  const auto advice = [](bool all_have_it) {
    const Trace trace(
        [=](Story& s, uint32_t rank) {
          Training t(s, {});
          for (int i = 0; i < 6; ++i) t.step();
          const auto through_helper = [&](uint64_t bytes, const std::string& caller) {
            return s.alloc(bytes, s.stack({"make pool.py:18", caller, "main train.py:1"}));
          };
          through_helper(40 * kMiB, "weights train.py:3");
          if (all_have_it && rank != 0) s.free(through_helper(kMiB, "hoard train.py:5"));
          if (rank == 0) through_helper(400 * kMiB, "hoard train.py:5");
        },
        3, true);
    return trace.finding("rank_imbalance").advice.at(0).detail;
  };
  EXPECT_EQ(advice(false).find("only this rank runs train.py:5: "), 0u) << advice(false);
  EXPECT_EQ(advice(true).find("the same lines hold more"), 0u) << advice(true);
}

// The ranks are in other phases at their peaks, and one of them computes in 16 bits.
TEST(Findings, NativeFramesOfOneRankAreNoLinesOfItsOwn) {
  const Trace trace(
      [](Story& s, uint32_t rank) {
        Training t(s, {});
        for (int i = 0; i < 6; ++i) t.step();
        const std::string line = "softmax net.py:6";
        if (rank == 0) {
          s.alloc(400 * kMiB,
                  s.stack({"at::_ops::exp::call ops.cpp:1", "at::autocast::wrap autocast.cpp:1",
                           line, "main train.py:1"}));
        } else {
          s.free(
              s.alloc(kMiB, s.stack({"at::_ops::exp::call ops.cpp:1", line, "main train.py:1"})));
        }
      },
      3, true);
  const Finding f = trace.finding("rank_imbalance");
  EXPECT_EQ(f.advice.at(0).action, "balance_ranks") << f.advice.at(0).detail;
}

TEST(Findings, RankWithMoreData) {
  const Trace trace(
      [](Story& s, uint32_t rank) {
        Training t(s, {});
        for (int i = 0; i < 6; ++i) t.step(rank == 1 ? 2 : 1);
      },
      3, true);
  EXPECT_EQ(trace.alarms(), (Ids{"rank_imbalance"}));
  EXPECT_EQ(trace.finding("rank_imbalance").rank, 1);
  EXPECT_EQ(trace.finding("rank_imbalance").advice[0].action, "balance_ranks");
}

// The growth is the cause; the difference between the ranks follows from it.
TEST(Findings, RankThatLeaksIsNotOneWithMoreData) {
  const Trace trace(
      [](Story& s, uint32_t rank) {
        Training t(s, {});
        for (int i = 0; i < 20; ++i) {
          t.step();
          const uint64_t logged = s.alloc(16 * kMiB, s.user(77));
          if (rank != 1) s.free(logged);
        }
      },
      3, true);
  EXPECT_EQ(trace.alarms(), (Ids{"creep", "rank_imbalance"}));
  EXPECT_EQ(trace.finding("rank_imbalance").rank, 1);
  EXPECT_EQ(trace.finding("rank_imbalance").advice[0].action, "stop_growth");
}

// Samples are kept with their graphs; the loss after them is that of the pass that is trained.
TEST(Findings, ALossOfAnotherPassIsNotWhatIsKept) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 24; ++i) {
      if (i % 2 == 1) t.forward(1, "draw train.py:43");
      std::vector<uint64_t> trained = t.forward();
      s.free(s.alloc(4, s.user(11)));
      for (; !trained.empty(); trained.pop_back()) {
        const uint64_t passed = s.alloc(8 * kMiB, 0);
        s.free(trained.back());
        s.free(passed);
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_adam")));
    }
  });
  const Finding f = trace.finding("retained_graph");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "release_results");
}

// Some batches are given up after their forward pass, and something keeps their results.
TEST(Findings, GraphsFromWhichNoLossWasComputed) {
  const auto action = [](bool loss) {
    const Trace trace([loss](Story& s, uint32_t) {
      Training t(s, {});
      for (int i = 0; i < 24; ++i) {
        if (i % 2 == 1) {
          t.forward();
          if (loss) s.alloc(4, s.user(11));
        }
        t.step();
      }
    });
    EXPECT_EQ(trace.alarms(), (Ids{"retained_graph"}));
    const Finding f = trace.finding("retained_graph");
    return f.advice.empty() ? "" : f.advice[0].action;
  };
  EXPECT_EQ(action(false), "release_results");
  EXPECT_EQ(action(true), "detach");
}

TEST(Findings, NcclBuffersOfManyCommunicators) {
  const auto run = [](int communicators) {
    return Trace([communicators](Story& s, uint32_t) {
      for (int c = 0; c < communicators; ++c) {
        s.driver_alloc(300 * kMiB, "nccl", MemoryKind::kDevice);
        for (int i = 0; i < 3; ++i) s.driver_alloc(20 * kMiB, "nccl", MemoryKind::kDevice);
      }
    });
  };
  EXPECT_EQ(run(5).alarms(), (Ids{"nccl_overhead"}));
  EXPECT_EQ(run(5).finding("nccl_overhead").advice[0].saves_bytes, 4 * 360 * kMiB);
  EXPECT_TRUE(run(1).finding("nccl_overhead").id.empty()) << "what any job needs";
}

TEST(Findings, StrayContexts) {
  const auto run = [](bool strays) {
    return Trace(
        [strays](Story& s, uint32_t process) {
          s.driver_alloc(process == 0 || !strays ? kGiB : 2 * kMiB, "torch", MemoryKind::kDevice);
          for (uint64_t pid = 101; pid <= 103; ++pid) {
            s.counter(CounterKind::kProcessUsed, pid == 101 ? 2 * kGiB : 500 * kMiB, pid);
          }
        },
        3);
  };
  EXPECT_EQ(run(true).alarms(), (Ids{"stray_context"}));
  EXPECT_EQ(run(true).finding("stray_context").advice[0].saves_bytes, 1000 * kMiB);
  EXPECT_EQ(run(false).alarms(), Ids{});
}

// The second process uses another card and holds only a context on the first.
TEST(Findings, StrayContextsCountOnTheirOwnCard) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        s.driver_alloc(process == 0 ? 10 * kGiB : kMiB, "torch", MemoryKind::kDevice);
        s.counter(CounterKind::kProcessUsed, 10 * kGiB + 512 * kMiB, 101);
        s.counter(CounterKind::kProcessUsed, 512 * kMiB, 102);
        if (process == 0) return;
        s.device(1, "GPU-2");
        s.driver_alloc(10 * kGiB, "torch", MemoryKind::kDevice, 0, 1);
        s.counter(CounterKind::kProcessUsed, 10 * kGiB + 512 * kMiB, 102, 1);
      },
      2);
  const Finding f = trace.finding("stray_context");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].saves_bytes, 512 * kMiB);
  EXPECT_EQ(f.severity, kWarning);
}

TEST(Findings, SmallStrayContextsAreANote) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        s.driver_alloc(process == 0 ? kGiB : kMiB, "torch", MemoryKind::kDevice);
        s.counter(CounterKind::kProcessUsed, 100 * kMiB, 102);
      },
      2);
  EXPECT_EQ(trace.alarms(), Ids{});
  EXPECT_EQ(trace.finding("stray_context").severity, kInfo);
}

// Two processes that both call their card device 3, as CUDA_VISIBLE_DEVICES can make them.
TEST(Findings, OtherProcessesAreToldApartByCard) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        s.device(3, process == 0 ? "GPU-3" : "GPU-4");
        s.driver_alloc(kGiB, "torch", MemoryKind::kDevice, 0, 3);
        s.counter(CounterKind::kProcessUsed, 4 * kGiB, 999 + process, 3);
      },
      2);
  EXPECT_EQ(trace.alarms(), (Ids{"other_process", "other_process"}));
}

// Two hosts number their cards and their processes alike.
TEST(Findings, OtherProcessesAndStrayContextsAreOfOneHost) {
  const auto run = [](uint64_t second_pid) {
    return Trace(
        [second_pid](Story& s, uint32_t process) {
          s.runs_on(process == 0 ? "a" : "b", process == 0 ? 101 : second_pid);
          s.device(3, "");
          s.driver_alloc(process == 0 ? kGiB : kMiB, "torch", MemoryKind::kDevice, 0, 3);
          s.counter(CounterKind::kProcessUsed, 4 * kGiB, 999, 3);
        },
        2, true);
  };
  EXPECT_EQ(run(101).alarms(), (Ids{"other_process", "other_process", "rank_imbalance"}));
  EXPECT_EQ(run(999).alarms(), (Ids{"other_process", "rank_imbalance"}))
      << "on b, it is the rank itself";
  for (const uint64_t pid : {101U, 999U}) EXPECT_EQ(run(pid).finding("stray_context").id, "");
}

TEST(Findings, OtherProcessesMatterWhenTheyTakeMuchOrTheCardIsFull) {
  const auto run = [](uint64_t gib, bool full, uint64_t own_gib = 4) {
    const Trace trace([gib, full, own_gib](Story& s, uint32_t) {
      s.device(3, "GPU-3", 140 * kGiB);
      s.driver_alloc(own_gib * kGiB, "torch", MemoryKind::kDevice, 0, 3);
      s.counter(CounterKind::kProcessUsed, gib * kGiB, 999, 3);
      s.counter(CounterKind::kDeviceUsed, full ? 130 * kGiB : (gib + own_gib) * kGiB, 0, 3);
    });
    Ids ids;
    for (const Finding& f : trace.report().findings) ids.push_back(f.id);  // notes, too
    return ids;
  };
  for (const uint64_t gib : {1U, 2U, 5U, 10U, 27U}) EXPECT_EQ(run(gib, false), Ids{}) << gib;
  EXPECT_EQ(run(0, true), Ids{});
  EXPECT_EQ(run(1, true), (Ids{"other_process"}));
  EXPECT_EQ(run(2, true), (Ids{"other_process"}));
  EXPECT_EQ(run(28, false), Ids{}) << "half of the card is free";
  EXPECT_EQ(run(68, false), (Ids{"other_process"}));
  EXPECT_EQ(run(30, false, 60), (Ids{"other_process"}));
}

TEST(Findings, OtherProcessesAreANoteWhileTheCardHasRoom) {
  for (const uint64_t used : {72U, 100U, 110U, 130U}) {
    const Trace trace([used](Story& s, uint32_t) {
      s.device(3, "GPU-3", 140 * kGiB);
      s.driver_alloc(4 * kGiB, "torch", MemoryKind::kDevice, 0, 3);
      s.counter(CounterKind::kProcessUsed, 40 * kGiB, 999, 3);
      s.counter(CounterKind::kDeviceUsed, used * kGiB, 0, 3);
    });
    EXPECT_EQ(trace.finding("other_process").severity, used < 105 ? kInfo : kWarning) << used;
  }
}

TEST(Findings, OtherProcessesThatAreNotInTheTrace) {
  const auto run = [](uint64_t pid) {
    return Trace([pid](Story& s, uint32_t) {
      s.driver_alloc(kGiB, "torch", MemoryKind::kDevice);
      s.counter(CounterKind::kProcessUsed, 4 * kGiB, pid);
    });
  };
  EXPECT_EQ(run(999).alarms(), (Ids{"other_process"}));
  EXPECT_EQ(run(101).alarms(), Ids{});  // this process
}

// Each process reads the card at instants of its own, but it is one card.
TEST(Findings, ACardHasOneHighestUse) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        s.device(1, "GPU-a");
        s.device(2, process == 0 ? "GPU-b" : "GPU-c");
        for (const int64_t device : {1, 2}) {
          s.driver_alloc(kGiB, "torch", MemoryKind::kDevice, 0, device);
          s.counter(CounterKind::kDeviceUsed, (process + 4) * kGiB, 0, device);
        }
      },
      2);
  const auto used = [report = trace.report()](size_t process, int64_t device) {
    for (const DeviceReport& d : report.ranks.at(process).devices) {
      if (d.device == device) return d.device_used_peak;
    }
    return Peak{};
  };
  EXPECT_EQ(used(0, 1).bytes, 5 * kGiB);
  EXPECT_EQ(used(1, 1).bytes, 5 * kGiB);
  EXPECT_EQ(used(0, 1).time_ns, used(1, 1).time_ns);
  EXPECT_EQ(used(0, 2).bytes, 4 * kGiB);
  EXPECT_EQ(used(1, 2).bytes, 5 * kGiB);
}

TEST(Findings, OtherProcessesHaveATime) {
  const Trace trace([](Story& s, uint32_t) {
    s.driver_alloc(kGiB, "torch", MemoryKind::kDevice);
    s.counter(CounterKind::kProcessUsed, 2 * kGiB, 101);
    for (const uint64_t gib : {1U, 4U, 8U, 6U}) {
      s.tick(1'000'000'000);
      s.counter(CounterKind::kProcessUsed, gib * kGiB, 999);
    }
  });
  EXPECT_EQ(
      trace.finding("other_process").summary,
      "processes outside this recording hold 8.0 GiB of the card at +3.000 s, and at least half as "
      "much from +2.000 s until then");
}

// 1 GiB more with each of 8 steps, on a card of 16 GiB of which another process holds 5.
TEST(Findings, GrowthOutsidePyTorchFillsWhatIsLeftOfTheCard) {
  const auto full_at = [](uint64_t others) {
    const Trace trace([others](Story& s, uint32_t) {
      Training t(s, {});
      for (uint64_t i = 1; i <= 8; ++i) {
        t.step();
        s.driver_alloc(kGiB, "program", MemoryKind::kDevice, 0, 0, s.user(40));
        if (others != 0) s.counter(CounterKind::kDeviceUsed, others + i * kGiB);
      }
    });
    const Finding f = trace.finding("creep");
    for (const auto& [name, value] : f.evidence) {
      if (name == "full_at_step") return value;
    }
    return uint64_t{0};
  };
  EXPECT_EQ(full_at(5 * kGiB), 12U);
  EXPECT_EQ(full_at(0), 16U);  // PyTorch reserves less than 1 GiB
}

// Others on the card grow as well: when it is full cannot be told from one of them.
TEST(Findings, GrowthOnASharedCardHasNoEnd) {
  const auto summary = [](uint32_t processes, const std::string& settings = "") {
    const Trace trace(
        [&](Story& s, uint32_t) {
          if (!settings.empty()) s.setting("PYTORCH_CUDA_ALLOC_CONF", settings);
          Training t(s, {});
          for (int i = 0; i < 10; ++i) {
            t.step();
            s.alloc(64 * kMiB, s.user(40));
          }
        },
        processes);
    return trace.finding("creep").summary;
  };
  EXPECT_NE(summary(1).find("the card is full at about step"), std::string::npos);
  EXPECT_NE(summary(1, "per_process_memory_fraction:0.25").find("the memory fraction is used up"),
            std::string::npos)
      << summary(1, "per_process_memory_fraction:0.25");
  EXPECT_NE(summary(2), "");
  EXPECT_EQ(summary(2).find("full"), std::string::npos) << summary(2);
}

// A program that limits itself leaves most of the card to others.
TEST(Findings, OtherProcessesBesideAMemoryFraction) {
  const auto run = [](uint64_t device_free, uint64_t others = kGiB) {
    return Trace([device_free, others](Story& s, uint32_t) {
             s.driver_alloc(kGiB, "torch", MemoryKind::kDevice);
             s.counter(CounterKind::kProcessUsed, others, 999);
             s.alloc(kGiB, s.user(1));
             s.run_out(256 * kMiB, device_free, s.user(2));
           })
        .alarms();
  };
  EXPECT_EQ(run(10 * kGiB), (Ids{"capacity", "memory_fraction"}));
  EXPECT_EQ(run(4 * kGiB, 8 * kGiB), (Ids{"capacity", "memory_fraction"}));
  EXPECT_EQ(run(kMiB), (Ids{"capacity", "other_process"}));
}

// A sampler beside the training, both recorded: the one that fails is not the one that is large.
TEST(Findings, CapacityTellsOfOtherRecordedProcesses) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        const uint64_t held = process == 0 ? 12 * kGiB : kGiB;
        s.driver_alloc(held, "torch", MemoryKind::kDevice);
        s.alloc(held, s.user(1));
        if (process == 1) s.run_out(4 * kGiB, 3 * kGiB, s.user(2));
      },
      2);
  const std::string summary = trace.finding("capacity").summary;
  EXPECT_NE(summary.find("; other recorded processes held 12.0 GiB of this card"),
            std::string::npos)
      << summary;
}

// What the other one holds is a cache that it does not use.
TEST(Findings, CapacityNamesTheIdleCacheOfAnotherProcess) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        const uint64_t held = process == 0 ? 12 * kGiB : kGiB;
        s.driver_alloc(held, "torch", MemoryKind::kDevice);
        const uint64_t block = s.alloc(held, s.user(1));
        if (process == 0) {
          s.free(block);
        } else {
          s.wait(1'000'000'000);
          s.run_out(4 * kGiB, 3 * kGiB, s.user(2));
        }
      },
      2);
  const Finding f = trace.finding("capacity");
  EXPECT_NE(f.summary.find("12.0 GiB of that is free in the cache of process 101"),
            std::string::npos)
      << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "empty_other_cache");
  EXPECT_EQ(f.advice[0].saves_bytes, 12 * kGiB);
}

// Snapshots of ranks, each on a card of its own, that nobody tells apart.
TEST(Findings, CapacityKnowsNoIdleCacheOfUnknownCards) {
  const Trace trace(
      [](Story& s, uint32_t process) {
        const uint64_t block = s.alloc(12 * kGiB, s.user(1));
        if (process == 1) {
          s.free(block);
        } else {
          s.wait(1'000'000'000);
          s.run_out(4 * kGiB, 0, s.user(2));
        }
      },
      2, true, 0);
  const Finding f = trace.finding("capacity");
  EXPECT_EQ(f.id, "capacity");
  EXPECT_EQ(f.summary.find("cache of process"), std::string::npos) << f.summary;
}

TEST(Findings, PinnedMemoryThatGrows) {
  const auto run = [](int pieces) {
    return Trace([pieces](Story& s, uint32_t) {
      s.driver_alloc(kGiB, "torch", MemoryKind::kDevice);
      for (int i = 0; i < 20; ++i) {
        s.driver_alloc(2 * kMiB, "torch", MemoryKind::kDevice);
        if (i < pieces) s.driver_alloc(64 * kMiB, "torch", MemoryKind::kPinned);
      }
    });
  };
  EXPECT_EQ(run(20).alarms(), (Ids{"pinned_growth"}));
  EXPECT_EQ(run(2).alarms(), Ids{});  // a pool that was filled once
}

// A data set that is pinned before the first pass, over a time that a short run does not dwarf, and
// staging buffers that the first pass makes.
TEST(Findings, PinnedMemoryOfTheSetUpDoesNotGrow) {
  const auto run = [](bool set_up, bool first_pass, bool always) {
    return Trace([=](Story& s, uint32_t) {
      const auto pin = [&] { s.driver_alloc(64 * kMiB, "torch", MemoryKind::kPinned); };
      for (int i = 0; i < 20; ++i) {
        s.driver_alloc(2 * kMiB, "torch", MemoryKind::kDevice);
        if (set_up) pin();
      }
      for (int i = 0; i < 40; ++i) {
        s.free(s.alloc(kMiB, s.forward(1)));
        for (int k = 0; first_pass && i == 0 && k < 20; ++k) pin();
        if (always) pin();
      }
    });
  };
  EXPECT_EQ(run(true, false, false).alarms(), Ids{});
  EXPECT_EQ(run(false, true, false).alarms(), Ids{});
  EXPECT_EQ(run(false, false, true).alarms(), (Ids{"pinned_growth"}));
}

TEST(Findings, DriverThatRefused) {
  const Trace trace([](Story& s, uint32_t) {
    s.driver_alloc(kGiB, "program", MemoryKind::kDevice);
    s.driver_refusal(20 * kGiB);
  });
  EXPECT_EQ(trace.alarms(), (Ids{"capacity"}));
}

// The driver refuses a segment, PyTorch frees its cache, and the driver refuses again.
TEST(Findings, RefusalsThatPyTorchHandledAreNoErrorsOfTheirOwn) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(100 * kMiB, s.user(1));
    s.free(s.alloc(200 * kMiB, s.user(1)));
    s.driver_refusal(300 * kMiB, "torch");
    s.empty_cache(s.user(2));
    s.alloc(300 * kMiB, s.user(2));  // fits now: nobody noticed
    s.driver_refusal(50 * kMiB, "cublas");
    s.driver_refusal(400 * kMiB, "torch");
    s.driver_refusal(400 * kMiB, "torch");
    s.run_out(400 * kMiB, 10 * kMiB, s.user(3));
    s.driver_refusal(60 * kMiB, "torch");  // what became of it is not recorded
  });
  const DeviceReport d = trace.report().ranks[0].devices[0];
  EXPECT_EQ(d.alloc_retries, 1U);
  EXPECT_EQ(d.oom_count, 3U);
  ASSERT_EQ(d.ooms.size(), 3U);
  EXPECT_EQ(d.ooms[0].requested_bytes, 50 * kMiB);
  EXPECT_EQ(d.ooms[1].requested_bytes, 400 * kMiB);
  EXPECT_EQ(d.ooms[1].layer, Layer::kFramework);
  EXPECT_EQ(d.ooms[1].refusals, 2U);
  EXPECT_EQ(d.ooms[2].requested_bytes, 60 * kMiB);
  for (size_t i = 1; i < d.ooms.size(); ++i) EXPECT_LT(d.ooms[i - 1].time_ns, d.ooms[i].time_ns);
}

// A memory fraction refuses without asking the driver. Nobody can tell its retries from
// empty_cache().
TEST(Findings, RetriesAreNotKnownWhereAFractionMayHaveRefused) {
  const auto retries = [](const auto& program) {
    const Trace trace([&](Story& s, uint32_t) {
      s.driver_alloc(kGiB, "program", MemoryKind::kDevice);
      s.free(s.alloc(200 * kMiB, s.user(1)));
      program(s);
    });
    return trace.report().ranks[0].devices[0].alloc_retries;
  };
  EXPECT_EQ(retries([](Story& s) { s.alloc(300 * kMiB, s.user(2)); }), 0U);
  EXPECT_EQ(retries([](Story& s) {
              s.empty_cache(s.user(2));
              s.alloc(300 * kMiB, s.user(2));
            }),
            std::nullopt);
  EXPECT_EQ(retries([](Story& s) { s.run_out(400 * kMiB, 100 * kGiB, s.user(3)); }), std::nullopt);
}

// Before a request fails under a memory fraction, the cache is freed: what is reserved then says
// nothing about the limit.
TEST(Findings, TheLimitIsNoLessThanWhatWasEverReserved) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(7 * kGiB, s.user(1));
    s.free(s.alloc(5 * kGiB, s.user(2)));
    s.empty_cache(s.user(3));
    s.alloc(kGiB, s.user(4));
    s.run_out(6 * kGiB, 100 * kGiB, s.user(5));
  });
  const DeviceReport d = trace.report().ranks[0].devices[0];
  EXPECT_EQ(d.limit.bytes, 12 * kGiB);
  EXPECT_TRUE(d.limit.at_least);
  EXPECT_EQ(trace.alarms(), (Ids{"capacity", "memory_fraction"}));
}

// 7 GiB in use and 4 GiB requested fit below 12 GiB, but the holes and what was never reserved are
// too small each.
TEST(Findings, WhatWouldHaveFittedBelowTheLimitFailedForHoles) {
  const Trace trace([](Story& s, uint32_t) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 12; ++i) blocks.push_back(s.alloc(kGiB, s.user(1)));
    for (int i = 0; i < 4; ++i) s.free(blocks[static_cast<size_t>(i)]);
    s.empty_cache(s.user(2));
    const uint64_t wide = s.alloc(2 * kGiB, s.user(3));
    s.alloc(kGiB, s.user(4));
    s.free(wide);
    s.alloc(kMiB * 100, s.user(5));  // keeps the segment of 2 GiB from being returned
    s.free(blocks[4]);
    s.free(blocks[5]);
    s.run_out(4 * kGiB, 100 * kGiB, s.user(6));
  });
  EXPECT_EQ(trace.report().ranks[0].devices[0].limit.bytes, 12 * kGiB);
  EXPECT_EQ(trace.alarms(), (Ids{"fragmentation", "memory_fraction"}));
}

// 19 MiB are free below the limit, and 6 MiB were requested; but for that PyTorch takes a segment
// of 20 MiB, for which there was never enough.
TEST(Findings, ASegmentThatWouldNotFitFailedForCapacity) {
  const Trace trace([](Story& s, uint32_t) {
    s.free(s.alloc(372 * kMiB, s.user(1)));
    s.empty_cache(s.user(2));
    s.alloc(353 * kMiB, s.user(3));
    s.run_out(6 * kMiB, 100 * kGiB, s.user(5));
  });
  EXPECT_EQ(trace.alarms(), (Ids{"capacity", "memory_fraction"}));
}

}  // namespace
}  // namespace tidemark
