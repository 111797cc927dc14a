// Runs that end because weights fill the memory: no smaller batch helps.
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/names/stack_lines.h"
#include "tests/support/finding_parts.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

const std::string kTorch = "/usr/lib/python3/site-packages/torch/";

constexpr uint64_t kCard = uint64_t{2} << 30;

bool advises(const Finding& f, std::string_view action) {
  return advice_of(f, action) != nullptr;
}

// A model of layers with different sizes.
void make_model(Story& s, uint64_t scale, uint32_t stack) {
  for (uint64_t i = 1; i <= 8; ++i) s.alloc(scale * i * kMiB, stack);
}

uint32_t moved(Story& s, int line) {
  return s.stack({"convert " + kTorch + "nn/modules/module.py:1300",
                  "_apply " + kTorch + "nn/modules/module.py:900",
                  "to " + kTorch + "nn/modules/module.py:1300",
                  "main train.py:" + std::to_string(line)});
}

// Layers that `Model.__init__` makes on the card, each in a line of its own.
void construct(Story& s, uint64_t scale, int line) {
  for (uint64_t i = 1; i <= 8; ++i) {
    s.alloc(scale * i * kMiB, s.stack({"__init__ torch/nn/modules/linear.py:100",
                                       "__init__ model.py:" + std::to_string(i),
                                       "main train.py:" + std::to_string(line)}));
  }
}

TEST(Weights, OfATeacherThatFillTheCard) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    make_model(s, 1, moved(s, 12));
    make_model(s, 20, moved(s, 14));
    for (int i = 0; i < 3; ++i) s.alloc(60 * kMiB, s.forward(1));
    s.run_out(60 * kMiB, 10 * kMiB, s.forward(2));
  });
  const Finding f = trace.report().findings.front();
  EXPECT_EQ(f.id, "capacity");
  EXPECT_EQ(headline_of(f.frames), "main train.py:14");
  EXPECT_TRUE(says(f,
                   "weights take 756.0 MiB, which the batch does not change: 720.0 MiB of "
                   "train.py:14"))
      << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "smaller_weights");
  EXPECT_EQ(f.advice[0].saves_bytes, 360 * kMiB);
}

TEST(Weights, TheLayersOfOneModelAreNotSeveral) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    construct(s, 20, 12);
    s.alloc(60 * kMiB, s.forward(1));
    s.run_out(60 * kMiB, 10 * kMiB, s.forward(2));
  });
  const Finding f = trace.finding("capacity");
  EXPECT_TRUE(
      says(f, "weights take 720.0 MiB, which the batch does not change: all of train.py:12"))
      << f.summary;
  EXPECT_EQ(f.frames.front(), "forward torch/nn/modules/op.py:2");
}

// An average of the weights, of which nobody says what it is but its sizes.
TEST(Weights, ACopyIsNamed) {
  const auto run = [](uint64_t scale) {
    return Trace::on_card(kCard, [scale](Story& s, uint32_t) {
      make_model(s, 4, moved(s, 12));
      make_model(s, scale, s.stack({"deepcopy /usr/lib/python3/copy.py:150", "main train.py:16"}));
      for (int i = 0; i < 3; ++i) s.alloc(60 * kMiB, s.forward(1));
      s.run_out(60 * kMiB, 10 * kMiB, s.forward(2));
    });
  };
  const Finding f = run(4).finding("capacity");
  EXPECT_EQ(headline_of(f.frames), "main train.py:16");
  EXPECT_TRUE(says(f, "train.py:16 made a copy of those of train.py:12")) << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "move_copy");
  EXPECT_EQ(f.advice[0].saves_bytes, 144 * kMiB);
  EXPECT_FALSE(says(run(5).finding("capacity"), "copy")) << "other sizes";
}

// Weights that are converted to 16 bits while all of them are there.
TEST(Weights, ACopyInHalfThePrecision) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    for (uint64_t i = 1; i <= 8; ++i) s.alloc(16 * i * kMiB, moved(s, 12));
    for (uint64_t i = 1; i <= 6; ++i) s.alloc(8 * i * kMiB, s.stack({"convert load.py:48"}));
    s.run_out(56 * kMiB, 10 * kMiB, s.stack({"convert load.py:48"}));
  });
  const Finding f = trace.finding("capacity");
  EXPECT_TRUE(says(f, "load.py:48 made a copy of those of train.py:12 (half the sizes)"))
      << f.summary;
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].action, "free_old_weights");
  EXPECT_EQ(f.advice[0].saves_bytes, 576 * kMiB);
}

// Of a copy in half the precision, the original can be freed, and its size counts.
TEST(Weights, AnOriginalThatIsLargerThanItsCopy) {
  const auto run = [](uint64_t copied) {
    return Trace::on_card(kCard, [copied](Story& s, uint32_t) {
      for (uint64_t i = 1; i <= 8; ++i) s.alloc(8 * i * kMiB, moved(s, 12));
      for (uint64_t i = 1; i <= copied; ++i) s.alloc(4 * i * kMiB, moved(s, 13));
      for (int i = 0; i < 3; ++i) s.alloc(60 * kMiB, s.forward(1));
      s.run_out(60 * kMiB, 10 * kMiB, s.forward(2));
    });
  };
  const Finding f = run(8).finding("capacity");
  EXPECT_TRUE(says(f, "train.py:13 made a copy of those of train.py:12 (half the sizes)"))
      << f.summary;
  EXPECT_TRUE(advises(f, "free_old_weights"));
  EXPECT_FALSE(says(run(4).finding("capacity"), "copy")) << "of a few layers";
}

// Copies for saving that are held for some steps look like inputs.
TEST(Weights, ACopyThatIsHeldForSomeSteps) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    make_model(s, 6, moved(s, 12));
    Training t(s, {});
    std::vector<uint64_t> copy;
    for (int step = 0; step < 20; ++step) {
      t.step();
      if (step % 5 == 2) {
        for (const uint64_t block : copy) s.free(block);
        copy.clear();
      }
      if (step % 5 != 4) continue;
      for (uint64_t i = 1; i <= 8; ++i) copy.push_back(s.alloc(6 * i * kMiB, s.user(16)));
    }
    s.alloc(60 * kMiB, s.forward(1));
    s.run_out(60 * kMiB, 10 * kMiB, s.forward(2));
  });
  const Finding f = trace.finding("capacity");
  EXPECT_TRUE(says(f, "train.py:16 made a copy of those of train.py:12")) << f.summary;
}

TEST(Weights, LoadedWhileTheOldOnesLive) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    make_model(s, 20, s.stack({"load_model serve.py:12", "main serve.py:3"}));
    const uint32_t load = s.stack({"load_model serve.py:12", "swap serve.py:25"});
    for (int i = 0; i < 20; ++i) s.free(s.alloc(4 * kMiB, s.forward(1, "answer serve.py:40")));
    for (uint64_t i = 1; i <= 6; ++i) s.alloc(20 * i * kMiB, load);
    s.run_out(140 * kMiB, 136 * kMiB, load);
  });
  const Finding f = trace.report().findings.front();
  EXPECT_EQ(f.id, "capacity");
  EXPECT_EQ(headline_of(f.frames), "load_model serve.py:12");
  EXPECT_TRUE(says(f, ": all of serve.py:12, which")) << f.summary;
  EXPECT_TRUE(says(f, "which made the same sizes twice (720.0 MiB and 420.0 MiB)")) << f.summary;
  ASSERT_EQ(f.advice.size(), 1U);
  EXPECT_EQ(f.advice[0].action, "free_old_weights");
  EXPECT_EQ(f.advice[0].saves_bytes, 720 * kMiB);
}

// A reference model beside the one that is trained is not an old version of it.
TEST(Weights, OfASecondModelThatIsUsed) {
  for (const bool in_steps : {false, true}) {  // made when steps have run: old weights
    const Trace trace = Trace::on_card(4 * kCard, [=](Story& s, uint32_t) {
      const auto make = [&](int line) {
        make_model(s, 20,
                   s.stack({"load_model tune.py:48", "main tune.py:" + std::to_string(line)}));
      };
      make(70);
      if (!in_steps) make(71);
      for (int i = 0; i < 12; ++i) {
        if (in_steps && i == 6) make(71);
        for (const int line : {1, 2}) s.free(s.alloc(4 * kMiB, s.forward(line)));
        s.optimizer_mark();
      }
    });
    const Finding f = trace.finding("capacity", 1640 * kMiB);
    EXPECT_EQ(advises(f, "free_old_weights"), in_steps) << f.summary;
    EXPECT_EQ(advises(f, "move_copy"), !in_steps) << f.summary;
  }
}

// Each version that a server loads stays.
Trace reloading(int versions, bool runs_out) {
  return Trace(
      [=](Story& s, uint32_t) {
        const uint32_t load = s.stack({"load_model serve.py:12", "swap serve.py:25"});
        for (int version = 0; version < versions; ++version) {
          make_model(s, 20, load);
          for (int i = 0; i < 20; ++i) {
            s.free(s.alloc(4 * kMiB, s.forward(i % 4, "answer serve.py:40")));
          }
        }
        if (!runs_out) return;
        for (uint64_t i = 1; i <= 6; ++i) s.alloc(20 * i * kMiB, load);
        s.run_out(140 * kMiB, 136 * kMiB, load);
      },
      1, false, 3500 * kMiB);
}

TEST(Weights, OfSeveralVersions) {
  const Finding failed = reloading(4, true).finding("capacity");
  EXPECT_TRUE(says(failed, "which made the same sizes 5 times (3.2 GiB in all)")) << failed.summary;
  ASSERT_FALSE(failed.advice.empty());
  EXPECT_EQ(failed.advice[0].saves_bytes, (3 * 720 + 420) * kMiB);
  const Finding note = reloading(4, false).finding("creep");
  EXPECT_EQ(note.severity, kInfo);
  ASSERT_FALSE(note.advice.empty());
  EXPECT_EQ(note.advice[0].saves_bytes, 3 * 720 * kMiB);
  EXPECT_TRUE(reloading(2, false).finding("creep").id.empty());  // perhaps both are used
}

// With other settings of the allocator one more tensor would fit, but more would have followed.
TEST(Weights, OfAModelThatIsTooLarge) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    for (int i = 0; i < 100; ++i) s.alloc(9 * kMiB, moved(s, 12));
    s.run_out(9 * kMiB, 18 * kMiB, moved(s, 12));
  });
  const Finding f = trace.finding("capacity");
  EXPECT_TRUE(advises(f, "smaller_weights"));
  EXPECT_FALSE(advises(f, "allocator_settings"));
  EXPECT_FALSE(advises(f, "halve_batch"));
}

// Half the precision is no advice where the kernels tell that the model has it.
TEST(Weights, Of16BitsAreQuantized) {
  const auto advice = [](const char* kernel) {
    MemorySink sink;
    TraceWriter writer(sink);
    Story s(writer, 1, -1, 0, kCard);
    for (int i = 0; i < 100; ++i) s.alloc(9 * kMiB, moved(s, 12));
    s.run_out(9 * kMiB, 18 * kMiB, moved(s, 12));
    Kernel k{};
    k.start_ns = s.tick();
    k.duration_ns = 1000;
    k.name = 1000;
    writer.append_string(k.name, kernel);
    writer.append(k);
    writer.finish();
    const Result<TraceReader> reader = open_bytes_as_trace(sink.bytes);
    const Result<TraceModel> trace = load_trace({&*reader, 1});
    const Result<Report> report = make_report(*trace, {});
    for (const Finding& f : report->findings) {
      if (f.id == "capacity" && !f.advice.empty()) return f.advice[0].detail;
    }
    return std::string();
  };
  const std::string in_16 = advice("nvjet_sm90_tst_96x128_64x7_1x2_h_bz_TNN");
  EXPECT_NE(in_16.find("quantized to 8 bits"), std::string::npos) << in_16;
  EXPECT_EQ(in_16.find("half the precision"), std::string::npos) << in_16;
  const std::string in_32 =
      advice("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3");
  EXPECT_NE(in_32.find("half the precision"), std::string::npos) << in_32;
}

TEST(Weights, ThatTakeLittleAreNotTheCause) {
  const Trace trace = Trace::on_card(kCard, [](Story& s, uint32_t) {
    make_model(s, 4, moved(s, 12));
    for (int i = 0; i < 6; ++i) s.alloc(60 * kMiB, s.forward(1));
    s.run_out(60 * kMiB, 10 * kMiB, s.forward(2));
  });
  const Finding f = trace.finding("capacity");
  EXPECT_FALSE(says(f, "weights")) << f.summary;
  EXPECT_FALSE(advises(f, "smaller_weights"));
}

}  // namespace
}  // namespace tidemark
