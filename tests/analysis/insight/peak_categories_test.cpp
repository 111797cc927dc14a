// Categories, the shares of a peak, and what a change would have saved.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "analysis/history/curve.h"
#include "analysis/history/history_replay.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/categories/categories.h"
#include "tests/support/step_story.h"
#include "tests/support/story.h"
#include "tests/support/toy_allocator.h"

namespace tidemark {
namespace {

TEST(Curve, ThinningKeepsTheExtremes) {
  const AllocatorRules rules;
  for (const uint64_t seed : {41U, 42U, 43U}) {
    ToyAllocator toy(rules, seed);
    while (toy.events.size() < 3000) toy.random_step();
    HistoryReplay replay(0, rules);
    for (const FrameworkEvent& event : toy.events) replay.apply(event);
    const AllocationHistory model = std::move(replay).finish();
    for (const size_t points : {1U, 7U, 100U, 10000U}) {
      const auto curve = thinned_curve(model, points);
      ASSERT_LE(curve.size(), points);
      uint64_t allocated = 0;
      uint64_t reserved = 0;
      size_t at = 0;
      for (uint32_t e = 0; e < model.event_count(); ++e) {
        while (model.time_ns[e] > curve[at].end_ns) ++at;
        ASSERT_LE(curve[at].allocated_low, toy.totals[e].allocated);
        ASSERT_GE(curve[at].allocated_high, toy.totals[e].allocated);
        ASSERT_GE(curve[at].reserved_high, toy.totals[e].reserved);
      }
      for (const CurvePoint& p : curve) {
        allocated = std::max(allocated, p.allocated_high);
        reserved = std::max(reserved, p.reserved_high);
      }
      EXPECT_EQ(allocated, model.allocated_peak.bytes);
      EXPECT_EQ(reserved, model.reserved_peak.bytes);
    }
  }
}

TEST(Rehearsal, IsThePeakOfTheChangedHistory) {
  const AllocatorRules rules;
  std::mt19937_64 rng(51);
  ToyAllocator toy(rules, 52);
  while (toy.events.size() < 2500) toy.random_step();
  HistoryReplay replay(0, rules);
  for (const FrameworkEvent& event : toy.events) replay.apply(event);
  const AllocationHistory model = std::move(replay).finish();
  for (int round = 0; round < 20; ++round) {
    Rehearsal rehearsal(model);
    std::vector<int64_t> level(model.event_count());
    for (const Allocation& a : model.allocations) {
      uint32_t begin = a.birth;
      uint32_t end = std::min(a.release, model.event_count());
      if (rng() % 3 == 0) {
        const uint32_t from = a.birth + static_cast<uint32_t>(rng() % 400);
        rehearsal.leave_out_from(a, from);
        end = std::min(end, from);
      }
      if (rng() % 5 == 0) {
        begin -= static_cast<uint32_t>(rng() % std::min(a.birth + 1, uint32_t{400}));
        rehearsal.hold_from(a, begin);
      }
      for (uint32_t e = begin; e < end; ++e) level[e] += static_cast<int64_t>(a.block_bytes);
    }
    EXPECT_EQ(rehearsal.peak_bytes(),
              static_cast<uint64_t>(*std::max_element(level.begin(), level.end())));
  }
}

// A history that begins with what the step before has left: that goes, and comes again smaller.
TEST(Rehearsal, WhatTheStepBeforeLeftDoesNotRemain) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 3; ++i) s.free_older(100 * kMiB);
    for (int step = 0; step < 2; ++step) s.free(s.alloc(400 * kMiB, s.forward(1)));
  });
  const AllocationHistory& model = trace.model().processes[0].framework[0];
  Rehearsal rehearsal(model);
  for (const Allocation& a : model.allocations) {
    if (!a.seeded) rehearsal.leave_out(a, 0.75);
  }
  EXPECT_EQ(rehearsal.saved_bytes(), 300 * kMiB);
}

TEST(Peak, SharesOfEverySortAddUp) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 12; ++i) {
      if (i == 0) s.begin_free(s.alloc(40 * kMiB, s.user(1)));  // pending from here on
      t.step();
    }
  });
  ReportOptions options;
  options.stacks = 1000;
  options.tree_share = 0;
  const DeviceReport d = trace.report(options).ranks[0].devices[0];
  const auto sum = [](const auto& shares) {
    uint64_t bytes = 0;
    for (const auto& share : shares) bytes += share.bytes;
    return bytes;
  };
  EXPECT_EQ(d.at_totals.pending(), 40 * kMiB);
  EXPECT_EQ(sum(d.stacks), d.at_totals.allocated);
  EXPECT_EQ(sum(d.categories), d.at_totals.allocated);
  EXPECT_EQ(sum(d.sizes), d.at_totals.allocated);
  EXPECT_EQ(sum(d.ages), d.at_totals.allocated);
  // A node of the tree holds its own bytes and those of its children.
  std::vector<uint64_t> children(d.tree.size() + 1);
  for (const TreeNode& node : d.tree) children[node.parent] += node.bytes;
  for (size_t i = 0; i < d.tree.size(); ++i) EXPECT_LE(children[i + 1], d.tree[i].bytes);
  uint64_t without_stack = 0;
  for (const StackShare& s : d.stacks) without_stack += s.frames.empty() ? s.bytes : 0;
  EXPECT_EQ(children[0] + without_stack, d.at_totals.allocated);
  EXPECT_GT(d.pushed_by.bytes, 0U);
}

// Two ways of the interpreter from one line of Python to the next are one branch.
TEST(StackTree, HasNoFramesOfTheInterpreterBetweenThoseOfPython) {
  const Trace trace([](Story& s, uint32_t) {
    for (const char* way : {"eval ceval.cpp:1", "call object.cpp:2"}) {
      s.alloc(4 * kMiB, s.stack({"add tensor.cpp:5", "forward model.py:3", way, "main train.py:1",
                                 "start boot.cpp:9"}));
    }
  });
  ReportOptions options;
  options.tree_share = 0;
  const std::vector<TreeNode> tree = trace.report(options).ranks[0].devices[0].tree;
  ASSERT_EQ(tree.size(), 3U);
  EXPECT_EQ(tree[0].frame, "main train.py:1");
  EXPECT_EQ(tree[1].frame, "forward model.py:3");
  EXPECT_TRUE(tree[2].frame.starts_with("add")) << tree[2].frame;
  EXPECT_EQ(tree[2].bytes, 8 * kMiB);
}

TEST(Categories, MatchTheTrainingLoop) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 6; ++i) t.step();
  });
  std::map<Category, uint64_t> bytes;
  const Report report = trace.report();
  for (const CategoryShare& c : report.ranks[0].devices[0].categories) {
    bytes[c.category] = c.bytes;
  }
  const Training::Shape shape;
  EXPECT_EQ(bytes[Category::kParameter], 6 * shape.weight);
  EXPECT_EQ(bytes[Category::kOptimizerState], 12 * shape.weight);
  EXPECT_EQ(bytes[Category::kActivation], 6 * 5 * shape.activation / 2);
  EXPECT_EQ(bytes[Category::kInput], 4 * kMiB);
}

std::map<Category, uint64_t> bytes_at_peak(const Trace& trace) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found =
      categorize(process, model, roles, find_steps(process, model, roles), false);
  std::map<Category, uint64_t> bytes;
  for (size_t i = 0; i < found.of.size(); ++i) {
    if (model.allocations[i].alive_at(model.allocated_peak.event)) {
      bytes[found.of[i]] += model.allocations[i].block_bytes;
    }
  }
  return bytes;
}

// A block whose fate the history does not show is what the earlier ones of its line were.
TEST(Categories, TheNewestLeakedBlocksAreNoInput) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    for (int i = 0; i < 8; ++i) {
      t.step();
      s.alloc(20 * kMiB, s.user(90));
    }
    s.alloc(4 * kMiB, s.user(8));
    t.forward();
    s.run_out(8 * kMiB, 0, s.forward(1));
  });
  std::map<Category, uint64_t> bytes = bytes_at_peak(trace);
  EXPECT_EQ(bytes[Category::kInput], 4 * kMiB);
  EXPECT_EQ(bytes[Category::kUnknown], 8 * 20 * kMiB);
}

// Gradients of optimizers that allocate nothing, or only in their first step: freed right after the
// step, or before the next one.
TEST(Categories, GradientsAreKnownWithoutAllocationsOfTheOptimizer) {
  for (const bool marks : {true, false}) {
    const Trace trace([marks](Story& s, uint32_t) {
      for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, s.setup());
      std::vector<uint64_t> gradients;
      for (int step = 0; step < 6; ++step) {
        for (const uint64_t g : gradients) s.free(g);
        gradients.clear();
        const uint64_t input = s.alloc(kMiB, s.user(8));
        std::vector<uint64_t> graph;
        for (int i = 0; i < 6; ++i) graph.push_back(s.alloc(3 * kMiB, s.forward(i)));
        for (; !graph.empty(); graph.pop_back()) {
          const uint64_t passed = s.alloc(5 * kMiB, 0);
          gradients.push_back(s.alloc(2 * kMiB, 0));
          s.free(passed);
          s.free(graph.back());
        }
        s.free(input);
        if (marks) {
          s.optimizer_mark();
          for (const uint64_t g : gradients) s.free(g);
          gradients.clear();
        } else if (step == 0) {
          for (int i = 0; i < 6; ++i) s.alloc(2 * kMiB, s.optimizer("_init_group"));
        }
      }
    });
    const ProcessModel& process = trace.model().processes[0];
    const StackRoles roles(process);
    const Categories found = categorize(process, framework(trace), roles,
                                        find_steps(process, framework(trace), roles), false);
    std::map<Category, uint64_t> blocks;
    for (size_t i = 0; i < found.of.size(); ++i) {
      if (roles.of(framework(trace).allocations[i].stack) == StackRole::kBackward) {
        ++blocks[found.of[i]];
      }
    }
    EXPECT_EQ(blocks[Category::kGradient], 36U) << marks;
    EXPECT_EQ(blocks[Category::kTemporary], 36U) << marks;
  }
}

TEST(Categories, ServingHasACacheAndAWorkspace) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 6; ++i) s.alloc(20 * kMiB, s.setup());
    for (int request = 0; request < 8; ++request) {
      const uint64_t prompt = s.alloc(2 * kMiB, s.stack({"serve serve.py:5"}));
      std::vector<uint64_t> cache;
      for (int token = 0; token < 6; ++token) {
        std::vector<uint64_t> longer;
        for (int layer = 0; layer < 4; ++layer) {
          longer.push_back(s.alloc(
              4 * kMiB, s.stack({"extend serve.py:30", "forward torch/nn/modules/module.py:1",
                                 "_call_impl torch/nn/modules/module.py:1", "generate serve.py:40",
                                 "serve serve.py:6"})));
          if (!cache.empty()) {
            s.free(cache.front());
            cache.erase(cache.begin());
          }
          s.free(s.alloc(3 * kMiB, s.forward(2, "generate serve.py:40")));
          if (request == 0 && token == 0 && layer == 0) {
            s.alloc(32 * kMiB, s.forward(2, "generate serve.py:40"));
          }
        }
        cache = longer;
        s.free(s.alloc(512, s.stack({"generate serve.py:41", "serve serve.py:6"})));
      }
      for (const uint64_t a : cache) s.free(a);
      s.free(prompt);
    }
  });
  const auto bytes = bytes_at_peak(trace);
  EXPECT_EQ(bytes.at(Category::kParameter), 120 * kMiB);
  EXPECT_EQ(bytes.at(Category::kWorkspace), 32 * kMiB);
  EXPECT_GE(bytes.at(Category::kKvCache), 16 * kMiB);
}

TEST(Categories, ShardsOfFsdpAreParametersAndWhatItGathersIsNot) {
  const auto role = [](const std::vector<std::string>& frames) {
    uint32_t stack = 0;
    const Trace trace([&](Story& s, uint32_t) {
      stack = s.stack(frames);
      s.alloc(kMiB, stack);
    });
    const AllocationHistory& model = framework(trace);
    return StackRoles(trace.model().processes[0]).of(model.allocations[0].stack);
  };
  const std::string in = " torch/distributed/fsdp/_fully_shard/";
  EXPECT_EQ(role({"_init_sharded_param" + in + "_fsdp_param.py:390",
                  "__init__" + in + "_fsdp_param.py:200", "fully_shard" + in + "_fully_shard.py:9",
                  "main train.py:4"}),
            StackRole::kModuleSetUp);
  EXPECT_EQ(role({"alloc_storage" + in + "_fsdp_param.py:931",
                  "unshard" + in + "_fsdp_param_group.py:300", "main train.py:9"}),
            StackRole::kCommunication);
  EXPECT_EQ(role({"allocate" + in + "_fsdp_collectives.py:59",
                  "FSDPParamGroup.post_backward" + in + "_fsdp_param_group.py:520",
                  "FSDPState._root_post_backward_final_callback" + in + "_fsdp_state.py:320"}),
            StackRole::kBackward);
}

// What an error ended is not known to have been short-lived.
TEST(Categories, BlocksOfOneLineUpToAnErrorAreOfOneKind) {
  const Trace trace([](Story& s, uint32_t) {
    std::vector<uint64_t> kept;
    for (int i = 0; i < 40; ++i) kept.push_back(s.alloc(48 * kMiB, s.user(137)));
    s.run_out(48 * kMiB, 10 * kMiB, s.user(137));
    for (const uint64_t block : kept) s.free(block);
  });
  const ProcessModel& process = trace.model().processes[0];
  const Categories found = categorize(process, framework(trace), StackRoles(process), {});
  for (const Category category : found.of) EXPECT_EQ(category, Category::kUnknown);
}

// A function of the program that fetches batches may be called load(); the last one is in use.
TEST(Categories, TheLastBatchIsNoModel) {
  const Trace trace([](Story& s, uint32_t) {
    Training t(s, {});
    const uint32_t load = s.stack({"load data.py:33", "train train.py:10"});
    uint64_t batch = s.alloc(5 * kMiB, load);
    for (int i = 0; i < 8; ++i) {
      t.step();
      s.free(batch);
      batch = s.alloc(5 * kMiB, load);
    }
  });
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
  for (size_t i = 0; i < found.of.size(); ++i) {
    if (model.allocations.block_bytes(i) != 5 * kMiB) continue;
    EXPECT_NE(found.of[i], Category::kParameter);
  }
}

TEST(Categories, TagsAreTrusted) {
  const Trace trace([](Story& s, uint32_t) {
    const uint64_t a = s.alloc(10 * kMiB, s.user(1));
    s.tag(a, Category::kParameter);
    const uint64_t b = s.alloc(20 * kMiB, s.user(1));
    s.free(b);
    s.tag(b, Category::kGradient);  // too late: it is freed
    s.alloc(30 * kMiB, s.user(1));
  });
  const AllocationHistory& model = framework(trace);
  EXPECT_EQ(model.allocations[0].category, Category::kParameter);
  EXPECT_EQ(model.allocations[1].category, Category::kUnknown);
  const Categories categories = categorize({}, model, StackRoles{}, {});
  EXPECT_EQ(categories.confidence[0], 10);
}

}  // namespace
}  // namespace tidemark
