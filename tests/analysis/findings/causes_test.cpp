// Findings that follow from the lives of blocks relative to the passes of a training program: for
// each, a run that has it and similar ones that do not.
#include <gtest/gtest.h>

#include <array>

#include "tests/support/model_story.h"

namespace tidemark {
namespace {

using Ids = std::vector<std::string>;
enum class Losses { kSummed, kEach, kHeads, kPipeline, kRecurrence };

// `cleared_late`: gradients of a step are freed before the first backward pass of the next one.
// `fails`: in another step, after so many forward passes.
Trace micro_batches(Losses losses, bool cleared_late = false, bool fails = false, int passes = 2) {
  return Trace([=](Story& s, uint32_t) {
    Model model(s);
    Blocks old;
    const auto clear = [&] {
      for (const uint64_t block : old) s.free(block);
      old.clear();
    };
    for (int i = 0; i < 6; ++i) {
      std::vector<Blocks> alive;
      Blocks gradients;
      Blocks inputs;
      for (int part = 0; part < 4; ++part) {
        Blocks kept;
        inputs.push_back(s.alloc(2 * kMiB, s.user(5)));
        if (losses != Losses::kHeads || part == 0) kept = model.forward("train train.py:10");
        kept.push_back(s.alloc(12 * kMiB, s.forward(50, "train train.py:11")));
        const uint64_t loss = s.alloc(kScalar, s.user(12));
        alive.push_back(std::move(kept));
        if (losses == Losses::kEach) {
          clear();
          model.backward(alive.back(), gradients);
          alive.clear();
        }
        s.free(loss);
      }
      if (losses == Losses::kPipeline) std::reverse(alive.begin(), alive.end());
      clear();
      Blocks state;  // the gradient that each step of a recurrence passes to the one before it
      for (; !alive.empty(); alive.pop_back()) {
        model.backward(alive.back(), gradients, losses == Losses::kRecurrence ? &state : nullptr);
      }
      for (const uint64_t block : state) s.free(block);
      for (const uint64_t block : inputs) s.free(block);
      if (cleared_late) std::swap(old, gradients);
      model.step(gradients);
    }
    if (!fails) return;
    for (int part = 0; part < passes; ++part) {
      s.alloc(2 * kMiB, s.user(5));
      const Blocks kept = model.forward("train train.py:10");
      s.alloc(12 * kMiB, s.forward(50, "train train.py:11"));
      const uint64_t loss = s.alloc(kScalar, s.user(12));
      if (losses != Losses::kEach) continue;
      Blocks gradients;
      model.backward(kept, gradients);
      s.free(loss);
    }
    s.run_out(64 * kMiB, 10 * kMiB, s.forward(1));
  });
}

TEST(Causes, LossesSummedUpToAnError) {
  const Trace summed = micro_batches(Losses::kSummed, false, true);
  ASSERT_FALSE(summed.report().findings.empty());
  const Finding f = summed.report().findings.front();
  EXPECT_EQ(f.id, "accumulated_graphs");
  EXPECT_EQ(f.severity, kError);
  EXPECT_TRUE(micro_batches(Losses::kEach, false, true).finding("accumulated_graphs").id.empty());
}

// Memory runs out in the first step, before any backward pass. `loss`: computed for each pass;
// otherwise they are the steps of a recurrence.
Trace first_step(bool losses) {
  return Trace([=](Story& s, uint32_t) {
    Model model(s);
    for (int part = 0; part < 4; ++part) {
      s.alloc(2 * kMiB, s.user(5));
      model.forward("train train.py:10");
      if (losses)
        s.alloc(kScalar,
                s.stack({"cross_entropy torch/nn/functional.py:3494", "train train.py:12"}));
    }
    s.run_out(64 * kMiB, 10 * kMiB, s.forward(1, "train train.py:10"));
  });
}

TEST(Causes, LossesSummedInTheFirstStep) {
  const Report report = first_step(true).report();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].id, "accumulated_graphs");
  EXPECT_EQ(report.findings[0].severity, kError);
  EXPECT_EQ(report.findings[0].evidence[0].second, 4U);
  EXPECT_TRUE(first_step(false).finding("accumulated_graphs").id.empty());
}

// The step that fails sums up more losses than those before it.
TEST(Causes, TheStepThatFailsTellsWhatIsSaved) {
  const Trace summed = micro_batches(Losses::kSummed, false, true, 8);
  const Finding f = summed.finding("accumulated_graphs");
  EXPECT_EQ(f.evidence[0].second, 8U);
  const uint64_t pass = f.evidence[1].second / 8;
  EXPECT_GT(f.advice[0].saves_bytes, 6 * pass);
  EXPECT_LT(f.advice[0].saves_bytes, 8 * pass);
}

TEST(Causes, GradientsClearedAfterTheForwardPassesAreNotHeldTwice) {
  const Trace summed = micro_batches(Losses::kSummed, true);
  expect_saves(summed.finding("accumulated_graphs"), summed, micro_batches(Losses::kEach, true),
               0.03);
}

// Tasks of meta-learning: gradients of an inner pass (create_graph) are part of the graph that the
// loss of the task has. `each`: a backward pass follows every task.
Trace tasks(bool each, int inner_passes) {
  return Trace([=](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < 6; ++i) {
      std::vector<Blocks> alive;
      Blocks gradients;
      for (int task = 0; task < 5; ++task) {
        Blocks kept = {s.alloc(2 * kMiB, s.user(5))};
        const auto add = [&](const Blocks& more) {
          kept.insert(kept.end(), more.begin(), more.end());
        };
        for (int pass = 0; pass < inner_passes; ++pass) {
          add(model.forward("adapt train.py:20"));
          for (uint64_t layer = 1; layer <= 5; ++layer) add({s.alloc(layer * 2 * kMiB, 0)});
        }
        add(model.forward("train train.py:10"));
        s.free(s.alloc(kScalar, s.user(12)));
        alive.push_back(std::move(kept));
        if (!each) continue;
        model.backward(alive.back(), gradients);
        alive.clear();
      }
      for (; !alive.empty(); alive.pop_back()) model.backward(alive.back(), gradients);
      model.step(gradients);
    }
  });
}

TEST(Causes, LossesSummedOverTasksWithGradientsOfTheirOwn) {
  for (const int inner_passes : {1, 2, 5}) {
    const Trace summed = tasks(false, inner_passes);
    EXPECT_EQ(summed.alarms(), (Ids{"accumulated_graphs"})) << inner_passes;
    const Finding f = summed.finding("accumulated_graphs");
    ASSERT_FALSE(f.frames.empty());
    EXPECT_EQ(f.frames[0], "work train.py:12");
    EXPECT_EQ(f.evidence[0].second, 5U);
    expect_saves(f, summed, tasks(true, inner_passes), 0.05);
    EXPECT_TRUE(tasks(true, inner_passes).finding("accumulated_graphs").id.empty());
  }
}

// A critic whose backward pass retains its graph, which its variable holds until the next step, and
// a generator that is trained after it. `penalty`: on the critic's gradients, with its own pass.
Trace adversaries(bool penalty) {
  return Trace([=](Story& s, uint32_t) {
    Model model(s);
    Blocks last;
    for (int i = 0; i < 8; ++i) {
      const Blocks made = model.forward("train train.py:10");
      Blocks graph;
      const auto add = [&](const Blocks& more) {
        graph.insert(graph.end(), more.begin(), more.end());
      };
      if (penalty) {
        add(model.forward("penalty train.py:20"));
        for (uint64_t layer = 1; layer <= 5; ++layer) add({s.alloc(layer * 2 * kMiB, 0)});
        s.free(s.alloc(kScalar, s.user(21)));
      }
      add(model.forward("train train.py:12"));
      const uint64_t loss = s.alloc(kScalar, s.user(13));
      for (const uint64_t block : last) s.free(block);
      Blocks gradients;
      model.backward({}, gradients);  // frees nothing
      last = std::move(graph);
      last.push_back(loss);
      model.step(gradients);
      const Blocks second = model.forward("train train.py:15");
      s.free(s.alloc(kScalar, s.user(16)));
      model.backward(second, gradients);
      model.backward(made, gradients);
      model.step(gradients);
    }
  });
}

TEST(Causes, APassThatRetainsItsGraphAccumulatesNothing) {
  for (const bool penalty : {false, true}) {
    EXPECT_TRUE(adversaries(penalty).finding("accumulated_graphs").id.empty()) << penalty;
    EXPECT_TRUE(adversaries(penalty).finding("eval_keeps_graph").id.empty()) << penalty;
  }
}

TEST(Causes, AGraphThatAnotherPassUsesIsDetachedFromOneOfThem) {
  const Finding f = adversaries(false).finding("retained_graph");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_TRUE(f.advice[0].detail.starts_with("another backward pass uses a part of this graph"))
      << f.advice[0].detail;
  EXPECT_NE(f.advice[0].detail.find("saves at least"), std::string::npos);
}

TEST(Causes, LossesSummedOverMicroBatches) {
  const Trace summed = micro_batches(Losses::kSummed);
  EXPECT_EQ(summed.alarms(), (Ids{"accumulated_graphs"}));
  const Finding f = summed.finding("accumulated_graphs");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:12");
  EXPECT_EQ(f.evidence[0].second, 4U);
  // Inputs are not among them: what the table of categories shows.
  const Report whole = summed.report();
  for (const CategoryShare& c : whole.ranks[0].devices[0].categories) {
    if (c.category != Category::kActivation) continue;
    EXPECT_EQ(f.evidence[1].second, c.bytes);
  }
  expect_saves(f, summed, micro_batches(Losses::kEach));
}

TEST(Causes, AccumulationHeadsPipelinesAndRecurrencesAreNotSummedLosses) {
  for (const Losses losses :
       {Losses::kEach, Losses::kHeads, Losses::kPipeline, Losses::kRecurrence}) {
    EXPECT_EQ(micro_batches(losses).alarms(), Ids{}) << static_cast<int>(losses);
  }
}

enum class Pair { kSummed, kSmaller, kEach, kJoined, kCompared, kChained };

// Two batches, each with its own lines for the pass and the loss. `kJoined`: by a function that
// saves what it is computed from. `kCompared`: as are the results of both. `kChained`: the second
// pass adds to the result of the first, and the gradient of that sum is in one block for both.
Trace two_batches(Pair pair) {
  return Trace([=](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < 6; ++i) {
      std::vector<Blocks> alive;
      Blocks gradients;
      Blocks losses;
      for (int part = 0; part < 2; ++part) {
        const bool smaller = pair == Pair::kSmaller && part == 1;
        alive.push_back(
            model.forward("train train.py:" + std::to_string(10 + part), smaller ? 6 : 1));
        losses.push_back(s.alloc(kScalar, s.user(20 + part)));
        if (pair != Pair::kEach) continue;
        model.backward(alive.back(), gradients);
        alive.clear();
      }
      const uint64_t saved = pair == Pair::kJoined     ? s.alloc(kScalar, s.user(30))
                             : pair == Pair::kCompared ? s.alloc(16384, s.user(30))
                                                       : 0;
      const uint64_t loss = s.alloc(kScalar, s.user(31));
      const uint64_t state = pair == Pair::kChained ? s.alloc(6 * kMiB, 0) : 0;
      for (; !alive.empty(); alive.pop_back()) model.backward(alive.back(), gradients);
      for (const uint64_t block : {saved, loss, state}) {
        if (block != 0) s.free(block);
      }
      if (pair == Pair::kChained) s.free(s.alloc(kMiB, 0));
      model.step(gradients);
      for (const uint64_t block : losses) s.free(block);
    }
  });
}

TEST(Causes, LossesOfTwoLinesSummed) {
  const Trace summed = two_batches(Pair::kSummed);
  EXPECT_EQ(summed.alarms(), (Ids{"accumulated_graphs"}));
  const Finding f = summed.finding("accumulated_graphs");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:31");
  expect_saves(f, summed, two_batches(Pair::kEach));
  EXPECT_EQ(two_batches(Pair::kSmaller).alarms(), (Ids{"accumulated_graphs"}));
  for (const Pair pair : {Pair::kEach, Pair::kJoined, Pair::kCompared, Pair::kChained}) {
    EXPECT_EQ(two_batches(pair).alarms(), Ids{}) << static_cast<int>(pair);
  }
}

// Its gradients are never freed: no optimizer knows them.
enum class Teacher { kWithGradients, kWithout, kCleared };

Trace distillation(Teacher teacher, bool momentum = true) {
  return Trace([=](Story& s, uint32_t) {
    Model student(s);
    Model other(s);
    Blocks added;
    for (int i = 0; i < 8; ++i) {
      Blocks gradients;
      const Blocks kept = student.forward("train train.py:10");
      Blocks taught;
      if (teacher == Teacher::kWithout) {
        for (int k = 0; k < 12; ++k) {
          taught.push_back(s.alloc(8 * kMiB, s.forward(1, "train train.py:20")));
          if (taught.size() < 4) continue;
          s.free(taught.front());
          taught.erase(taught.begin());
        }
        for (const uint64_t block : taught) s.free(block);
      } else {
        taught = other.forward("train train.py:20");
      }
      s.free(s.alloc(kScalar, s.user(21)));
      if (teacher != Teacher::kWithout) other.backward(taught, added);
      student.backward(kept, gradients);
      student.step(gradients, momentum);
      if (teacher != Teacher::kCleared) continue;
      for (const uint64_t block : added) s.free(block);
      added.clear();
    }
  });
}

TEST(Causes, TeacherRunWithGradients) {
  const Trace taught = distillation(Teacher::kWithGradients);
  EXPECT_EQ(taught.alarms(), (Ids{"unused_gradients"}));
  const Finding f = taught.finding("unused_gradients");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "train train.py:20");
  expect_saves(f, taught, distillation(Teacher::kWithout));
  EXPECT_EQ(distillation(Teacher::kWithout).alarms(), Ids{});
  EXPECT_EQ(distillation(Teacher::kCleared).alarms(), Ids{});
}

// A second encoder computes keys, of which a queue keeps the last ones: with their graphs, if it
// runs with gradients. Its pass lies between that of the model and the backward pass, which uses
// the oldest result, but not its graph.
Trace keys_in_queue(bool with_gradients) {
  return Trace([=](Story& s, uint32_t) {
    Model model(s);
    Model encoder(s);
    std::vector<Blocks> queue;
    for (int i = 0; i < 12; ++i) {
      Blocks gradients;
      const Blocks kept = model.forward("train train.py:10");
      Blocks keys;
      if (with_gradients) keys = encoder.forward("train train.py:20");
      for (int k = 0; k < 12 && !with_gradients; ++k) {
        keys.push_back(s.alloc(8 * kMiB, s.forward(1, "train train.py:20")));
        if (keys.size() == 1) continue;
        s.free(keys.front());
        keys.erase(keys.begin());
      }
      queue.push_back(keys);
      Blocks oldest;
      if (queue.size() > 3) {
        oldest = {queue.front().back()};
        queue.front().pop_back();
        for (const uint64_t block : queue.front()) s.free(block);
        queue.erase(queue.begin());
      }
      s.free(s.alloc(kScalar, s.user(21)));
      oldest.insert(oldest.end(), kept.begin(), kept.end());
      model.backward(oldest, gradients);
      model.step(gradients);
    }
  });
}

TEST(Causes, KeysWithGraphsInAQueue) {
  const Trace queue = keys_in_queue(true);
  EXPECT_EQ(queue.alarms(), (Ids{"eval_keeps_graph"}));
  const Finding f = queue.finding("eval_keeps_graph");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "train train.py:20");
  EXPECT_EQ(keys_in_queue(false).alarms(), Ids{});
}

// Without states it is not known which gradients an optimizer steps: those that survive may be set
// to zero, and those that are freed may not.
TEST(Causes, GradientsThatSurviveUnderAnOptimizerWithoutStates) {
  const Trace taught = distillation(Teacher::kWithGradients, false);
  EXPECT_EQ(taught.alarms(), Ids{});
  const Finding f = taught.finding("unused_gradients");
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_EQ(f.advice.at(0).detail.find("if no optimizer uses them"), 0U) << f.advice[0].detail;
}

// Adapters beside the weights of every layer are trained. `frozen`: the weights have no gradients,
// and of a layer's results only one is not saved any more.
Trace adapters(bool frozen) {
  return Trace([=](Story& s, uint32_t) {
    constexpr size_t kLayers = 6;
    constexpr std::array<uint64_t, 4> kSizes = {5 * kMiB, 40960, 24576, 3 * kMiB};
    for (size_t i = 0; i < kLayers; ++i) {
      for (const uint64_t bytes : kSizes) s.alloc(bytes, s.setup());
    }
    for (int step = 0; step < 10; ++step) {
      const auto weight = [&](uint64_t bytes, uint64_t& input) {
        const uint64_t gradient = frozen ? 0 : s.alloc(bytes, 0);
        if (input != 0) s.free(input);
        if (!frozen && step != 0) s.free(gradient);  // after it was added to the first one
      };
      std::array<std::array<uint64_t, 4>, kLayers> saved{};
      for (auto& [normed, low, hidden, active] : saved) {
        normed = s.alloc(8 * kMiB, s.forward(1));
        low = s.alloc(512 << 10, s.forward(2));
        hidden = s.alloc(8 * kMiB, s.forward(3));
        active = s.alloc(16 * kMiB, s.forward(4));
        s.free(s.alloc(4 * kMiB, s.forward(5)));
        if (!frozen) continue;
        s.free(active);
        active = 0;
      }
      Blocks used;
      uint64_t passed = s.alloc(8 * kMiB, 0);
      for (auto layer = saved.rbegin(); layer != saved.rend(); ++layer) {
        auto& [normed, low, hidden, active] = *layer;
        const uint64_t of_active = s.alloc(16 * kMiB, 0);
        weight(kSizes[0], active);
        s.free(passed);
        const uint64_t of_hidden = s.alloc(8 * kMiB, 0);
        s.free(hidden);
        s.free(of_active);
        used.push_back(s.alloc(kSizes[1], 0));
        s.free(low);
        used.push_back(s.alloc(kSizes[2], 0));
        passed = s.alloc(8 * kMiB, 0);
        weight(kSizes[3], normed);  // which the adapter needs as well
        s.free(of_hidden);
      }
      s.free(passed);
      s.optimizer_mark();
      for (size_t i = 0; step == 0 && i < kLayers; ++i) {
        for (const size_t k : {1U, 2U}) s.alloc(kSizes[k], s.optimizer("_single_tensor_sgd"));
      }
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      for (const uint64_t block : used) s.free(block);
    }
  });
}

TEST(Causes, WeightsBesideAdaptersAreNotFrozen) {
  const Trace trained = adapters(false);
  EXPECT_EQ(trained.alarms(), (Ids{"unused_gradients"}));
  const Finding f = trained.finding("unused_gradients");
  EXPECT_EQ(f.evidence[2].second, 6 * 16 * kMiB);
  expect_saves(f, trained, adapters(true), 0.12);
  EXPECT_EQ(f.advice[0].detail.find("no_grad"), std::string::npos) << f.advice[0].detail;
  EXPECT_EQ(adapters(true).alarms(), Ids{});
}

// Only the head of a transformer is trained. The last gradient that a pass computes is that of the
// embedding; with it, the pass frees the gradient of an activation, as large as the weights.
Trace trained_head(bool frozen) {
  return Trace([=](Story& s, uint32_t) {
    constexpr size_t kLayers = 24;
    constexpr uint64_t kHead = 256 << 10;
    for (const uint64_t bytes : {24 * kMiB, kHead}) s.alloc(bytes, s.setup());
    for (size_t i = 0; i < kLayers; ++i) {
      for (const uint64_t bytes : {16 * kMiB, uint64_t{4096}}) s.alloc(bytes, s.setup());
    }
    for (int step = 0; step < 10; ++step) {
      std::array<std::array<uint64_t, 2>, kLayers> saved{};
      for (auto& [normed, active] : saved) {
        normed = s.alloc(16 * kMiB, s.forward(1));
        active = s.alloc(20 * kMiB, s.forward(2));
        if (frozen) s.free(normed);
        if (frozen) s.free(active);
      }
      const uint64_t features = s.alloc(16 * kMiB, s.forward(3));
      uint64_t passed = frozen ? 0 : s.alloc(16 * kMiB, 0);
      const uint64_t of_head = s.alloc(kHead, 0);
      s.free(features);
      const auto weight = [&](uint64_t bytes) {
        const uint64_t gradient = s.alloc(bytes, 0);
        if (step != 0) s.free(gradient);  // after it was added to the first one
      };
      for (auto layer = saved.rbegin(); !frozen && layer != saved.rend(); ++layer) {
        const uint64_t next = s.alloc(16 * kMiB, 0);
        weight(16 * kMiB);
        s.free((*layer)[1]);
        s.free(passed);
        passed = next;
        weight(4096);
        s.free((*layer)[0]);
      }
      if (!frozen) {
        weight(24 * kMiB);
        s.free(passed);
      }
      s.optimizer_mark();
      if (step == 0) s.alloc(kHead, s.optimizer("_single_tensor_sgd"));
      s.free(s.alloc(kHead, s.optimizer("_single_tensor_sgd")));
      s.free(of_head);
    }
  });
}

TEST(Causes, ThePartBeforeATrainedHeadIsNotFrozen) {
  const Trace trained = trained_head(false);
  const Finding f = trained.finding("unused_gradients");
  EXPECT_EQ(f.evidence[0].second, 24 * (16 * kMiB + 4096) + 24 * kMiB);
  EXPECT_EQ(f.evidence[2].second, 24 * (16 + 20) * kMiB);
  expect_saves(f, trained, trained_head(true), 0.12);
  EXPECT_NE(f.advice[0].detail.find("no_grad"), std::string::npos) << f.advice[0].detail;
  EXPECT_EQ(trained_head(true).alarms(), Ids{});
}

// Cross-validation: the models of earlier folds stay, each with the gradients of its last step,
// which its optimizer used.
TEST(Causes, GradientsOfEarlierModelsWereUsed) {
  const Trace folds([](Story& s, uint32_t) {
    for (int fold = 0; fold < 4; ++fold) {
      Model model(s);
      Blocks gradients;
      for (int i = 0; i < 5; ++i) {
        const Blocks kept = model.forward("train train.py:10");
        for (const uint64_t block : gradients) s.free(block);
        gradients.clear();
        model.backward(kept, gradients);
        s.optimizer_mark();
        s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      }
    }
  });
  EXPECT_TRUE(folds.finding("unused_gradients").id.empty());
}

// zero_grad(set_to_none=False): gradients stay, and every later pass adds to them.
TEST(Causes, GradientsThatAreSetToZeroAreUsed) {
  const Trace zeroed([](Story& s, uint32_t) {
    Model model(s);
    Blocks gradients;
    for (int i = 0; i < 8; ++i) {
      model.backward(model.forward("train train.py:10"), gradients);
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
    }
  });
  EXPECT_EQ(zeroed.alarms(), Ids{});
}

// What the optimizer makes for the parameters.
enum class Makes {
  kStates,         // for all
  kStatesOfFreed,  // for the one whose gradient is freed
  kTemporaries,    // for all, in every step
};

// Most gradients are set to zero, one is freed in every step.
Trace zeroed_and_freed(Makes makes) {
  constexpr std::array<uint64_t, 5> kWeights = {9 * kMiB, 2 * kMiB, 3 * kMiB, 8192, 5 * kMiB};
  return Trace([=](Story& s, uint32_t) {
    for (const uint64_t bytes : kWeights) s.alloc(bytes, s.setup());
    for (int i = 0; i < 8; ++i) {
      Blocks kept;
      for (int k = 0; k < 10; ++k) kept.push_back(s.alloc(16 * kMiB, s.forward(1 + k)));
      s.free(s.alloc(kScalar, s.user(11)));
      const uint64_t freed = s.alloc(kWeights[0], 0);
      for (const uint64_t bytes : kWeights) {
        const uint64_t gradient = bytes == kWeights[0] ? 0 : s.alloc(bytes, 0);
        for (int k = 0; k < 2; ++k, kept.pop_back()) s.free(kept.back());
        if (gradient != 0 && i != 0) s.free(gradient);  // added to the first one
      }
      s.optimizer_mark();
      for (const uint64_t bytes : kWeights) {
        if (makes == Makes::kTemporaries) s.free(s.alloc(bytes, s.optimizer("_multi_tensor_sgd")));
        if (i != 0 || makes == Makes::kTemporaries) continue;
        if (makes == Makes::kStatesOfFreed && bytes != kWeights[0]) continue;
        for (int k = 0; k < 2; ++k) s.alloc(bytes, s.optimizer("_init_group"));
      }
      s.free(s.alloc(kMiB, s.optimizer("_multi_tensor_adam")));
      s.free(freed);
    }
  });
}

TEST(Causes, GradientsOfParametersWithStatesAreUsed) {
  EXPECT_EQ(zeroed_and_freed(Makes::kStates).alarms(), Ids{});
  EXPECT_EQ(zeroed_and_freed(Makes::kTemporaries).finding("unused_gradients").id, "");
  EXPECT_EQ(zeroed_and_freed(Makes::kStatesOfFreed).alarms(), (Ids{"unused_gradients"}));
}

// The distillation above, in a history that began when the unused gradients were already there:
// every pass adds to them.
enum class Body {
  kUnused,
  kFrozen,        // nothing is added, as in a part that needs no gradients
  kZeroed,        // it is trained, with two states for each parameter
  kLikeItsSizes,  // unused, and layers compute results in the sizes of its parameters
  kBesideOthers,  // the same, and small gradients are freed only after something else is allocated
};
Trace recorded_late(Body body_is) {
  const bool frozen = body_is == Body::kFrozen;
  const bool like_its_sizes = body_is == Body::kLikeItsSizes || body_is == Body::kBesideOthers;
  constexpr std::array<uint64_t, 4> kHead = {2 * kMiB, 3 * kMiB, 8192, 12288};
  constexpr std::array<uint64_t, 5> kBody = {4 * kMiB, 5 * kMiB, 4096, 9 * kMiB, 6144};
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) {
      const std::string caller = "train train.py:10";
      Blocks body;
      for (int k = 0; k < 10; ++k) body.push_back(s.alloc(16 * kMiB, s.forward(1, caller)));
      for (const uint64_t bytes : kBody) {
        if (like_its_sizes) s.free(s.alloc(bytes, s.forward(3, caller)));
      }
      const uint64_t head = s.alloc(7 * kMiB, s.forward(2, caller));
      s.free(s.alloc(kScalar, s.user(11)));
      Blocks gradients;
      for (const uint64_t bytes : kHead) gradients.push_back(s.alloc(bytes, 0));
      s.free(head);
      for (const uint64_t bytes : kBody) {
        const uint64_t gradient = s.alloc(frozen ? 16 * kMiB : bytes, 0);
        for (int k = 0; k < 2; ++k, body.pop_back()) s.free(body.back());
        if (body_is == Body::kBesideOthers && bytes < kMiB) s.free(s.alloc(512, 0));
        s.free(gradient);
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      for (const uint64_t block : gradients) s.free(block);
    }
    for (const uint64_t bytes : kHead) s.older_block(bytes);
    for (const uint64_t bytes : kBody) s.older_block(bytes);
    const int others = frozen ? 0 : body_is == Body::kZeroed ? 3 : 1;
    for (int k = 0; k < others; ++k) {
      for (const uint64_t bytes : kBody) s.older_block(bytes);
    }
  });
}

TEST(Causes, UnusedGradientsOlderThanTheHistory) {
  const Trace late = recorded_late(Body::kUnused);
  const Finding f = late.finding("unused_gradients");
  EXPECT_EQ(f.severity, kWarning);
  ASSERT_GE(f.evidence.size(), 3U);
  // The last gradient is freed when nothing more is allocated, but by the pass, as no other is.
  EXPECT_EQ(f.evidence[0].second, 18 * kMiB + 4096 + 6144);
  EXPECT_EQ(f.evidence[2].second, 10 * 16 * kMiB);
  const Report report = late.report();
  uint64_t parameters = 0;
  for (const CategoryShare& c : report.ranks[0].devices[0].categories) {
    if (c.category == Category::kParameter) parameters += c.bytes;
  }
  EXPECT_EQ(parameters, 23 * kMiB + 30720);  // once each
  EXPECT_TRUE(recorded_late(Body::kFrozen).finding("unused_gradients").id.empty());
  EXPECT_TRUE(recorded_late(Body::kZeroed).finding("unused_gradients").id.empty());
  const Finding like = recorded_late(Body::kLikeItsSizes).finding("unused_gradients");
  ASSERT_EQ(like.severity, kWarning);
  EXPECT_EQ(like.evidence[0].second, f.evidence[0].second);
  const Finding beside = recorded_late(Body::kBesideOthers).finding("unused_gradients");
  ASSERT_EQ(beside.severity, kWarning);
  EXPECT_EQ(beside.evidence[0].second, 18 * kMiB);
}

// A teacher like the student, under autocast: the copies of weights that the forward pass makes in
// half precision have the size of another weight. `taught_first`: the gradients of the teacher come
// first. `models`: blocks of each weight that are older than the history.
Trace with_teacher(bool taught_first, int models) {
  constexpr std::array<uint64_t, 5> kWeights = {8 * kMiB, 6 * kMiB, 3 * kMiB, 8192, 12288};
  return Trace([=](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) {
      std::array<Blocks, 2> kept;  // of student and teacher
      for (size_t who = 0; who < kept.size(); ++who) {
        const std::string caller = who == 0 ? "train train.py:10" : "train train.py:20";
        kept[who].push_back(s.alloc(3 * kMiB, s.forward(1, caller)));
        for (int k = 0; k < 9; ++k) kept[who].push_back(s.alloc(16 * kMiB, s.forward(2, caller)));
      }
      s.free(s.alloc(kScalar, s.user(11)));
      Blocks gradients;
      for (const bool taught : {taught_first, !taught_first}) {
        Blocks& activations = kept[taught ? 1 : 0];
        for (const uint64_t bytes : kWeights) {
          const uint64_t gradient = s.alloc(bytes, 0);
          for (int k = 0; k < 2; ++k, activations.pop_back()) s.free(activations.back());
          if (taught) {
            s.free(gradient);
          } else {
            gradients.push_back(gradient);
          }
        }
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
      for (const uint64_t block : gradients) s.free(block);
    }
    for (int k = 0; k < models; ++k) {
      for (const uint64_t bytes : kWeights) s.older_block(bytes);
    }
  });
}

TEST(Causes, GradientsOfATeacherOlderThanTheHistory) {
  // Both models, the teacher's gradients, and one or two states for each weight.
  for (const Trace& late : {with_teacher(true, 4), with_teacher(true, 5), with_teacher(false, 5)}) {
    const Finding f = late.finding("unused_gradients");
    ASSERT_GE(f.evidence.size(), 3U);
    EXPECT_EQ(f.evidence[0].second, 17 * kMiB + 20480);
    ASSERT_FALSE(f.frames.empty());
    EXPECT_EQ(f.frames.back(), "train train.py:20");
  }
  // Or one model that every step uses twice, with two states, and a moving average or none: its
  // second gradients are added to the first.
  for (const int models : {3, 4}) {
    EXPECT_TRUE(with_teacher(false, models).finding("unused_gradients").id.empty()) << models;
  }
}

// Everything that the model computes has one size but for a few small results.
TEST(Causes, EqualLayersAreNotOneOperation) {
  const Trace equal([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) {
      Blocks kept;
      for (int k = 0; k < 24; ++k) kept.push_back(s.alloc(8 * kMiB, s.forward(1 + k % 2)));
      for (int k = 0; k < 5; ++k) kept.push_back(s.alloc(2 * kMiB / 2, s.forward(10 + k)));
      for (; !kept.empty(); kept.pop_back()) {
        s.free(s.alloc(kMiB / 2, 0));
        s.free(kept.back());
      }
      s.optimizer_mark();
      s.free(s.alloc(kMiB, s.optimizer("_single_tensor_sgd")));
    }
  });
  EXPECT_TRUE(equal.finding("one_operation_peak").id.empty());
}

// Results of one line, kept under no_grad: no graph holds them.
TEST(Causes, KeptResultsOfOneOperationAreNoGraph) {
  const Trace kept([](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < 12; ++i) {
      Blocks gradients;
      model.backward(model.forward("train train.py:10"), gradients);
      model.step(gradients);
      for (int batch = 0; batch < 4; ++batch) {
        s.free(s.alloc(8 * kMiB, s.forward(1, "evaluate train.py:70")));
        s.alloc(4 * kMiB, s.forward(36, "evaluate train.py:70"));
      }
    }
  });
  EXPECT_EQ(kept.alarms(), (Ids{"creep"}));
}

// The saving is of all lines that leak, so all are named.
TEST(Causes, TwoLinesThatLeakAreBothNamed) {
  const Trace leaks([](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < 12; ++i) {
      Blocks gradients;
      model.backward(model.forward("train train.py:10"), gradients);
      s.alloc(8 * kMiB, s.user(57));
      s.alloc(6 * kMiB, s.stack({"log log.py:12", "work train.py:58"}));
      model.step(gradients);
    }
  });
  const Finding f = leaks.finding("creep");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_NE(f.advice[0].detail.find("train.py:57 and log.py:12"), std::string::npos)
      << f.advice[0].detail;
}

// A request between two steps, when nothing of them is alive.
TEST(Causes, AdviceForARequestBetweenSteps) {
  const Trace between([](Story& s, uint32_t) {
    Model model(s);
    for (int i = 0; i < 6; ++i) {
      Blocks gradients;
      model.backward(model.forward("train train.py:10"), gradients);
      model.step(gradients);
    }
    s.run_out(14336 * kMiB, 1024 * kMiB, s.user(75));
  });
  for (const Advice& advice : between.finding("capacity").advice) {
    EXPECT_NE(advice.action, "halve_batch");
    EXPECT_NE(advice.action, "checkpoint");
  }
  EXPECT_FALSE(between.finding("capacity").id.empty());
}

enum class Loaded { kKept, kFreed, kAssigned };

Trace resumed(Loaded loaded) {
  return Trace([loaded](Story& s, uint32_t) {
    Blocks blocks;
    const uint32_t load =
        s.stack({"_cuda torch/_utils.py:90", "persistent_load torch/serialization.py:7",
                 "load torch/serialization.py:5", "resume train.py:40"});
    for (int i = 0; i < 6; ++i) blocks.push_back(s.alloc(12 * kMiB, load));
    Training::Shape shape;
    shape.weight = 12 * kMiB;
    if (loaded == Loaded::kAssigned) shape.weight = kMiB;
    Training t(s, shape);
    if (loaded == Loaded::kFreed) {
      for (const uint64_t block : blocks) s.free(block);
    }
    for (int i = 0; i < 8; ++i) t.step();
  });
}

TEST(Causes, CheckpointThatStaysOnTheCard) {
  const Trace kept = resumed(Loaded::kKept);
  EXPECT_EQ(kept.alarms(), (Ids{"checkpoint_kept"}));
  const Finding f = kept.finding("checkpoint_kept");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames.back(), "resume train.py:40");
  expect_saves(f, kept, resumed(Loaded::kFreed));
  EXPECT_EQ(resumed(Loaded::kFreed).alarms(), Ids{});
  EXPECT_EQ(resumed(Loaded::kAssigned).alarms(), Ids{});  // the model has no other copy
}

// Each rank loads to the card that the checkpoint was saved from, and trains on its own.
TEST(Causes, CheckpointOnACardWhereNothingIsComputed) {
  const auto run = [](bool freed, bool moves) {
    return Trace([=](Story& s, uint32_t) {
      const uint32_t load = s.stack(
          {"_cuda torch/_utils.py:90", "load torch/serialization.py:5", "resume train.py:40"});
      Blocks blocks;
      s.on(64, 0);
      for (int i = 0; i < 6; ++i) blocks.push_back(s.alloc(20 * kMiB, load));
      if (moves) s.free(s.alloc(20 * kMiB, s.forward(1)));
      if (freed) {
        for (const uint64_t block : blocks) s.free(block);
      }
      s.use_device(1);
      s.on(0, 0);
      Training t(s, {});
      for (int i = 0; i < 8; ++i) t.step();
    });
  };
  const Trace kept = run(false, false);
  EXPECT_EQ(kept.alarms(), (Ids{"checkpoint_kept"}));
  const Finding f = kept.finding("checkpoint_kept");
  EXPECT_EQ(f.device, 0);
  EXPECT_EQ(f.advice.at(0).saves_bytes, 120 * kMiB);
  EXPECT_EQ(run(true, false).alarms(), Ids{});
  EXPECT_EQ(run(false, true).alarms(), Ids{});  // a part of the model is there
}

// A loss over many classes, with logits of `times` the size of a layer's activations.
Trace classes(uint64_t times) {
  return Trace([times](Story& s, uint32_t) {
    Training t(s, {});
    s.alloc(100 * kMiB, s.setup());  // the weights of all classes
    const uint32_t loss =
        s.stack({"cross_entropy torch/nn/functional.py:3500", "loss train.py:31"});
    for (int i = 0; i < 8; ++i) {
      const Blocks kept = t.forward();
      const Blocks large = {s.alloc(times * 8 * kMiB, s.forward(9)),
                            s.alloc(times * 8 * kMiB, loss)};
      const uint64_t gradient = s.alloc(times * 8 * kMiB, 0);
      for (const uint64_t block : large) s.free(block);
      s.free(s.alloc(100 * kMiB, 0));  // added to the gradient
      s.free(gradient);
      for (const uint64_t block : kept) {
        const uint64_t passed = s.alloc(8 * kMiB, 0);
        s.free(block);
        s.free(passed);
      }
      s.optimizer_mark();
    }
  });
}

TEST(Causes, OperationThatHoldsMostOfThePeak) {
  const Trace large = classes(40);
  EXPECT_EQ(large.alarms(), Ids{});  // there is room: no more than a note
  const Finding f = large.finding("one_operation_peak");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_NE(f.advice[0].detail.find("cross entropy"), std::string::npos) << f.advice[0].detail;
  EXPECT_EQ(f.evidence[1].second, 3U);
  expect_saves(f, large, classes(2));
  EXPECT_EQ(f.severity, kInfo);
  EXPECT_TRUE(classes(4).finding("one_operation_peak").id.empty());  // no more than a hidden layer
}

Trace streams(int count, bool again) {
  return Trace([=](Story& s, uint32_t) {
    s.alloc(100 * kMiB, s.setup());
    for (int i = 0; i < (again ? 12 : count); ++i) {
      s.on(static_cast<uint64_t>(i % count + 1) * 64, 0);
      s.free(s.alloc(60 * kMiB, s.user(30)));
      s.on(0, 0);
      s.free(s.alloc(2 * kMiB, s.user(31)));
    }
  });
}

TEST(Causes, StreamsThatTakeTurns) {
  const Trace turns = streams(4, true);
  EXPECT_EQ(turns.alarms(), (Ids{"stream_pools"}));
  const Finding f = turns.finding("stream_pools");
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:30");
  EXPECT_EQ(f.advice[0].saves_bytes, 3 * 60 * kMiB);
  EXPECT_EQ(streams(4, false).finding("stream_pools").severity, kInfo);
  EXPECT_TRUE(streams(1, true).finding("stream_pools").id.empty());
}

// Batches are dropped long before the stream that copies them is known to be done.
TEST(Causes, FreedBlocksThatWaitForAnotherStream) {
  const auto run = [](size_t waiting) {
    return Trace([waiting](Story& s, uint32_t) {
      for (int i = 0; i < 8; ++i) s.alloc(16 * kMiB, s.setup());
      std::vector<uint64_t> dropped;
      for (int i = 0; i < 60; ++i) {
        const uint64_t batch = s.alloc(64 * kMiB, s.user(44));
        s.begin_free(batch);
        dropped.push_back(batch);
        if (dropped.size() <= waiting) continue;
        s.finish_free(dropped.front());
        dropped.erase(dropped.begin());
      }
    });
  };
  const Finding f = run(10).finding("stream_pools");
  EXPECT_EQ(f.severity, kWarning);
  ASSERT_FALSE(f.frames.empty());
  EXPECT_EQ(f.frames[0], "work train.py:44");
  ASSERT_FALSE(f.advice.empty());
  EXPECT_EQ(f.advice[0].saves_bytes, 10 * 64 * kMiB);
  EXPECT_TRUE(run(0).finding("stream_pools").id.empty());
}

// One stream after the other needs more than all before it: on one stream, nothing could be reused.
TEST(Causes, StreamsThatCouldNotShareAreNoFinding) {
  const Trace growing([](Story& s, uint32_t) {
    s.alloc(100 * kMiB, s.setup());
    for (uint64_t i = 0; i < 8; ++i) {
      s.on((i % 4 + 1) * 64, 0);
      s.free(s.alloc((100 + 20 * (i % 4)) * kMiB, s.user(30)));
      s.on(0, 0);
      s.free(s.alloc(2 * kMiB, s.user(31)));
    }
  });
  EXPECT_TRUE(growing.finding("stream_pools").id.empty());
}

// Every epoch makes a new copy of the weights and keeps the old ones, or replaces them.
Trace copies(bool keeps) {
  return Trace([keeps](Story& s, uint32_t) {
    Training t(s, {});
    uint64_t last = 0;
    for (int i = 0; i < 16; ++i) {
      t.step();
      const uint64_t copy = s.alloc(40 * kMiB, s.user(50));
      if (!keeps && last != 0) s.free(last);
      last = copy;
    }
  });
}

TEST(Causes, TheNewestOfWhatGrowsIsStillNeeded) {
  const Trace growing = copies(true);
  expect_saves(growing.finding("creep"), growing, copies(false), 0.01);
}

// A validation pass over large layers: under no_grad, a layer lives until the next ones have used
// it.
Trace validated(bool keeps) {
  return Trace([keeps](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 8; ++i) {
      t.step();
      if (i % 4 != 3) continue;
      Blocks alive;
      for (int k = 0; k < 50; ++k) {
        alive.push_back(s.alloc(40 * kMiB, s.forward(k % 4 + 1, "validate train.py:30")));
        if (keeps || alive.size() < 7) continue;
        s.free(alive.front());
        alive.erase(alive.begin());
      }
      for (const uint64_t block : alive) s.free(block);
    }
  });
}

TEST(Causes, ValidationUnderNoGradStillHoldsItsLayers) {
  const Trace kept = validated(true);
  expect_saves(kept.finding("eval_keeps_graph"), kept, validated(false), 0.03);
}

// Smaller batches in more passes keep as much until one backward pass.
TEST(Causes, MoreAccumulationStepsDoNotHelpSummedLosses) {
  const auto advice = [](Losses losses) {
    const Finding f = micro_batches(losses).finding("capacity", 700 * kMiB);
    for (const Advice& a : f.advice) {
      if (a.action == "halve_batch") return a.detail;
    }
    return std::string();
  };
  constexpr std::string_view kOnlyIf = "only if backward() is called on each loss";
  EXPECT_NE(advice(Losses::kSummed).find(kOnlyIf), std::string::npos) << advice(Losses::kSummed);
  EXPECT_EQ(advice(Losses::kEach).find(kOnlyIf), std::string::npos);
  EXPECT_NE(advice(Losses::kEach).find("(with twice the accumulation steps)"), std::string::npos);
}

}  // namespace
}  // namespace tidemark
