// Copies of weights, and weights of the program's own, in plans: they follow no batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

using Frames = std::vector<std::string>;

PlanOutcome planned(const Trace& trace, const PlanChange& change) {
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  EXPECT_TRUE(planner) << (planner ? "" : planner.error().message);
  if (!planner) return {};
  Result<PlanOutcome> outcome = (*planner)->plan(change);
  EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);
  return outcome ? *outcome : PlanOutcome{};
}
PlanOutcome with_batch(double factor, const Trace& trace) {
  PlanChange change;
  change.batch = factor;
  return planned(trace, change);
}
PlanOutcome in_precision(PlanPrecision precision, const Trace& trace) {
  PlanChange change;
  change.precision = precision;
  return planned(trace, change);
}
uint64_t peak_of(const Trace& trace) {
  return trace.model().processes[0].framework[0].allocated_peak.bytes;
}

constexpr int kLayers = 4;
constexpr uint64_t kWeight = 8 * kMiB;
constexpr uint64_t kResult = 16 * kMiB;

// A line of a layer, as a snapshot with native frames has it.
uint32_t in_layer(Story& s, const Frames& native) {
  Frames frames = native;
  for (const char* frame : {"einsum torch/functional.py:407", "forward model.py:20",
                            "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}) {
    frames.emplace_back(frame);
  }
  return s.stack(frames);
}

// Products of layers, whose results stay. `copies`: with autocast.
Trace products(bool copies) {
  return Trace([copies](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const uint32_t cast =
        in_layer(s, {"malloc(unsigned) a.cpp:1", "at::_ops::_to_copy::call(x) b.cpp:2",
                     "at::autocast::cached_cast(x) c.cpp:3"});
    const uint32_t product =
        in_layer(s, {"malloc(unsigned) a.cpp:1", "at::_ops::bmm::call(x) b.cpp:4",
                     "at::_ops::einsum::call(x) b.cpp:5"});
    for (int i = 0; i < kLayers; ++i) {
      if (copies) s.alloc(kWeight / 2, cast);
      s.alloc(kResult, product);
    }
  });
}

TEST(CopiedWeights, CopiesOfAutocastFollowNoBatch) {
  const Trace trace = products(true);
  const PlanOutcome twice = with_batch(2, trace);
  EXPECT_EQ(twice.likely.allocated_peak, peak_of(trace) + kLayers * kResult);
}

TEST(CopiedWeights, AModelIn16BitsMakesNone) {
  const PlanOutcome half = in_precision(PlanPrecision::kHalf, products(true));
  EXPECT_EQ(half.likely.allocated_peak, kLayers * (kWeight / 2 + kResult));
}

TEST(CopiedWeights, AutocastAddsThemAndHalvesProducts) {
  const PlanOutcome outcome = in_precision(PlanPrecision::kAutocast, products(false));
  EXPECT_EQ(outcome.likely.allocated_peak, kLayers * (kWeight + kWeight / 2 + kResult / 2));
  EXPECT_LT(outcome.low_reserved, outcome.likely.reserved_peak);
}

// Nor does the advice to halve it count them.
TEST(CopiedWeights, HalvingTheBatchLeavesThem) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const uint32_t cast = in_layer(
        s, {"at::_ops::_to_copy::call(x) b.cpp:2", "at::autocast::cached_cast(x) c.cpp:3"});
    const uint32_t product = in_layer(s, {"at::_ops::bmm::call(x) b.cpp:4"});
    for (int i = 0; i < kLayers; ++i) {
      s.alloc(kWeight / 2, cast);
      s.alloc(kResult, product);
    }
    s.run_out(kResult, kMiB, product);
  });
  uint64_t saved = 0;
  const Report report = trace.report();
  for (const Finding& finding : report.findings) {
    for (const Advice& advice : finding.advice) {
      if (advice.action == "halve_batch") saved = advice.saves_bytes;
    }
  }
  EXPECT_EQ(saved, kLayers * kResult / 2);
}

TEST(CopiedWeights, ReplicasOfAModelFollowNoBatch) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const uint32_t replicate =
        s.stack({"broadcast_coalesced torch/nn/parallel/comm.py:66",
                 "replicate torch/nn/parallel/replicate.py:95",
                 "forward torch/nn/parallel/data_parallel.py:180",
                 "_call_impl torch/nn/modules/module.py:1", "train train.py:10"});
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, replicate);
    for (int i = 0; i < kLayers; ++i) s.alloc(kResult, s.forward(1));
  });
  EXPECT_EQ(with_batch(2, trace).likely.allocated_peak, peak_of(trace) + kLayers * kResult);
}

// Each step replaces the weights by new ones.
TEST(CopiedWeights, OwnWeightsAndStatesFollowNoBatch) {
  const Trace trace([](Story& s, uint32_t) {
    std::vector<uint64_t> weights;
    for (int i = 0; i < kLayers; ++i) {
      weights.push_back(s.alloc(
          kWeight, s.stack({"__init__ layer.py:19", "__init__ model.py:30", "train train.py:5"})));
    }
    for (int i = 0; i < kLayers; ++i) {
      s.alloc(kWeight, s.stack({"__init__ optimizer.py:27", "train train.py:6"}));
    }
    for (int step = 0; step < 3; ++step) {
      const uint64_t input = s.alloc(kMiB, s.user(8));
      std::vector<uint64_t> kept;
      for (int i = 0; i < kLayers; ++i) kept.push_back(s.alloc(kResult, s.forward(1)));
      std::vector<uint64_t> gradients;
      for (int i = 0; i < kLayers; ++i) {
        gradients.push_back(s.alloc(kWeight, s.node("MmBackward0")));
        s.free(kept[static_cast<size_t>(i)]);
      }
      s.optimizer_mark();
      for (uint64_t& weight : weights) {
        const uint64_t next = s.alloc(
            kWeight, s.stack({"step optimizer.py:64", "wrapper torch/optim/optimizer.py:493",
                              "train train.py:12"}));
        s.free(std::exchange(weight, next));
      }
      for (const uint64_t gradient : gradients) s.free(gradient);
      s.free(input);
    }
  });
  const PlanOutcome twice = with_batch(2, trace);
  EXPECT_LE(twice.likely.allocated_peak, peak_of(trace) + kLayers * kResult + kMiB);
}

TEST(CopiedWeights, WithoutGradientsZero2SaysThatItDividesNone) {
  PlanChange change;
  change.ranks = 2;
  const auto tells = [&](PlanShard shard) {
    change.shard = shard;
    const std::vector<std::string> said = planned(products(false), change).assumptions;
    return std::any_of(said.begin(), said.end(), [](const std::string& text) {
      return text.find("no gradients were found") != text.npos;
    });
  };
  EXPECT_TRUE(tells(PlanShard::kZero2));
  EXPECT_FALSE(tells(PlanShard::kZero1));
}

TEST(CopiedWeights, ARecordingInAnotherPrecisionIsAnotherProgram) {
  const Trace first = products(false);
  const Trace second = products(true);
  const auto planner = Planner::prepare(first.model().processes[0], 0, {});
  ASSERT_TRUE(planner);
  const Status learnt = (*planner)->learn(second.model().processes[0], Dimension::kBatch);
  ASSERT_FALSE(learnt);
  EXPECT_NE(learnt.error().message.find("16 bits"), std::string::npos);
}

// A history that begins in a step of the optimizer knows older gradients by their stacks.
TEST(CopiedWeights, StatesFollowGradientsOfAHistoryWithoutABackwardPass) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) {
      s.older_block(kWeight, s.node("MmBackward0"));
      for (int state = 0; state < 2; ++state) s.alloc(kWeight, s.optimizer("_init_group"));
      s.free(s.alloc(kWeight, s.optimizer("_single_tensor_adam")));
    }
  });
  PlanChange change;
  change.optimizer = PlanOptimizer::kAdamW8bit;
  EXPECT_LT(planned(trace, change).likely.allocated_peak, peak_of(trace) / 2);
}

bool autocasts(const Trace& trace) {
  const ProcessModel& process = trace.model().processes[0];
  return RecordedProgram(process, process.framework[0]).autocasts();
}

// A model in 32 bits without native frames. Its results have half the size of its weights.
TEST(CopiedWeights, ResultsOfHalfAWeightAreNoCopiesOfAutocast) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(4 * kMiB, s.setup());
    for (int i = 0; i < 4; ++i) {
      const uint64_t sigmoid = s.alloc(2 * kMiB, s.forward(1));
      s.alloc(2 * kMiB, s.forward(1));
      s.free(sigmoid);
      s.alloc(kMiB, s.forward(2));
    }
  });
  EXPECT_FALSE(autocasts(trace));
}

// Its copies stay to the end of autocast. The driver's stacks have native frames in any case, which
// say nothing of PyTorch's.
TEST(CopiedWeights, CopiesOfAutocastAreThereForAllWeights) {
  const Trace trace([](Story& s, uint32_t) {
    const uint32_t native = s.stack(
        {"at::_ops::_to_copy::call(x) Copy.cpp:1", "at::autocast::cached_cast autocast.cpp:2"});
    s.driver_alloc(20 * kMiB, "torch", MemoryKind::kDevice, 0, 0, native);
    for (int i = 0; i < 4; ++i) s.alloc(4 * kMiB, s.setup());
    for (int i = 0; i < 4; ++i) {
      s.alloc(2 * kMiB, s.forward(1));
      s.alloc(3 * kMiB, s.forward(1));
      s.alloc(kMiB, s.forward(2));
    }
  });
  EXPECT_TRUE(autocasts(trace));
}

// Without native frames, where weights need no gradients: each copy is gone after its product.
TEST(CopiedWeights, AutocastIsKnownWithoutABackwardPass) {
  constexpr uint64_t kInput = 3 * kMiB;
  for (const bool casts : {true, false}) {
    const Trace trace([casts](Story& s, uint32_t) {
      for (unsigned i = 0; i < 2 * kLayers; ++i) s.alloc((i % 2 + 1) * kWeight, s.setup());
      for (int pass = 0; pass < 3; ++pass) {
        std::vector<uint64_t> results;
        for (unsigned i = 0; i < 2 * kLayers; ++i) {
          const uint32_t linear = s.stack(
              {"forward torch/nn/modules/linear.py:125", "_call_impl torch/nn/modules/module.py:1",
               "forward model.py:" + std::to_string(20 + i % 2),
               "_call_impl torch/nn/modules/module.py:1", "serve serve.py:10"});
          const uint64_t input = casts ? s.alloc(kInput, linear) : 0;
          const uint64_t weight = casts ? s.alloc((i % 2 + 1) * kWeight / 2, linear) : 0;
          results.push_back(s.alloc(kResult, linear));
          if (casts) s.free(weight);
          if (casts) s.free(input);
        }
        for (const uint64_t result : results) s.free(result);
      }
    });
    const uint64_t weights = 3 * kLayers * kWeight / 2;
    const uint64_t results = 2 * kLayers * kResult;
    EXPECT_EQ(in_precision(PlanPrecision::kHalf, trace).likely.allocated_peak,
              weights + (casts ? kInput + results : results / 2));
  }
}

// A softmax that has 32 bits under autocast has 16 in a model of 16, by whatever names it.
TEST(CopiedWeights, AWholeModelIn16BitsHalvesItsSoftmax) {
  constexpr uint64_t kScores = 24 * kMiB;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const auto in_module = [&](const std::string& line) {
      return s.stack({line, "_call_impl torch/nn/modules/module.py:1", "forward model.py:20",
                      "_call_impl torch/nn/modules/module.py:1", "serve serve.py:10"});
    };
    for (int i = 0; i < kLayers; ++i) {
      const uint64_t weight =
          s.alloc(kWeight / 2, in_module("forward torch/nn/modules/linear.py:125"));
      s.alloc(kResult, in_module("forward torch/nn/modules/linear.py:125"));
      s.free(weight);
      s.alloc(kScores, in_module("forward ops/softmax.py:14"));
    }
  });
  EXPECT_EQ(in_precision(PlanPrecision::kHalf, trace).likely.allocated_peak,
            kLayers * (kWeight / 2 + kResult + kScores / 2));
}

// What follows a product has its type, up to what autocast computes in 32 bits.
TEST(CopiedWeights, AutocastHasScoresAndHiddenLayersIn16Bits) {
  constexpr uint64_t kToken = 5 * kMiB;
  constexpr uint64_t kScores = 12 * kMiB;
  constexpr uint64_t kHidden = 20 * kMiB;
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < kLayers; ++i) s.alloc(kWeight, s.setup());
    const auto call = [&](const std::string& operation, int line, uint64_t bytes) {
      s.alloc(bytes,
              s.stack({"malloc(unsigned) a.cpp:1", "at::_ops::" + operation + "::call(x) b.cpp:2",
                       "forward model.py:" + std::to_string(line),
                       "_call_impl torch/nn/modules/module.py:1", "train train.py:10"}));
    };
    call("index_Tensor", 1, kToken);
    for (int i = 0; i < kLayers; ++i) {
      call("bmm", 2, kScores);
      call("div_Tensor", 3, kScores);
      call("masked_fill_Scalar", 4, kScores);
      call("softmax_int", 5, kScores);
      call("bmm", 6, kToken);
      call("add_Tensor", 7, kToken);
      call("mm", 8, kHidden);
      call("sigmoid", 9, kHidden);
      call("mul_Tensor", 9, kHidden);
      call("mm", 10, kToken);
    }
  });
  const uint64_t layer =
      kWeight + 3 * kScores / 2 + kScores + 2 * kToken + 3 * kHidden / 2;  // a sum and two products
  const uint64_t found = in_precision(PlanPrecision::kAutocast, trace).low_allocated;
  EXPECT_GE(found, kLayers * layer + kToken);
  EXPECT_LE(found, kLayers * layer + kToken + kMiB);  // as blocks are larger than requests
}

}  // namespace
}  // namespace tidemark
