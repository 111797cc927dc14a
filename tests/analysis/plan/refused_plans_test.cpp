// What plans are refused for, and what they say of the card.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "analysis/insight/card/limit.h"
#include "analysis/plan/plan.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

std::string refusal_of(const Trace& trace, const PlanChange& change) {
  const auto planner = Planner::prepare(trace.model().processes[0], 0, {});
  if (!planner) return planner.error().message;
  const Result<PlanOutcome> outcome = (*planner)->plan(change);
  return outcome ? "" : outcome.error().message;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

TEST(RefusedPlans, AProgramWithoutModulesIsNotARecordingWithoutStacks) {
  const Trace own_lines([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) s.free(s.alloc(8 * kMiB, s.user(5)));
  });
  const std::string no_model = refusal_of(own_lines, {});
  EXPECT_TRUE(has(no_model, "a program that calls an nn.Module or trains")) << no_model;
  EXPECT_FALSE(has(no_model, "record it with tidemark run")) << no_model;
  const Trace no_stacks([](Story& s, uint32_t) {
    for (int i = 0; i < 8; ++i) s.free(s.alloc(8 * kMiB, 0));
  });
  const std::string unknown = refusal_of(no_stacks, {});
  EXPECT_TRUE(has(unknown, "record it with tidemark run")) << unknown;
}

TEST(RefusedPlans, LayersNeedModules) {
  const auto trained = [](bool modules) {
    return Trace([modules](Story& s, uint32_t) {
      for (int i = 0; i < 4; ++i) {
        s.alloc(8 * kMiB, modules ? s.forward(1) : s.user(4));
        s.tag(s.alloc(8 * kMiB, s.user(5)), Category::kGradient);
      }
    });
  };
  PlanChange change;
  change.checkpoint = true;
  const std::string none = refusal_of(trained(false), change);
  EXPECT_TRUE(has(none, "--checkpoint needs layers, and no call of an nn.Module")) << none;
  const std::string unnamed = refusal_of(trained(true), change);
  EXPECT_TRUE(has(unnamed, "--checkpoint needs the nn.Modules of the program")) << unnamed;
}

// Its cached blocks do not all fit, which the allocator finds out and frees them.
Trace two_sizes() {
  return Trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(kMiB, s.setup());
    for (int pass = 0; pass < 3; ++pass) {
      s.free(s.alloc(100 * kMiB, s.forward(1)));
      s.free(s.alloc(160 * kMiB, s.forward(2)));
    }
  });
}

TEST(PlansOnACard, WhatIsReservedWithoutALimitNeedNotFit) {
  const Trace trace = two_sizes();
  PlanOptions options;
  options.whatif.card_bytes = kContextBytes + 200 * kMiB;
  const auto planner = Planner::prepare(trace.model().processes[0], 0, options);
  ASSERT_TRUE(planner) << planner.error().message;
  const Result<PlanOutcome> outcome = (*planner)->plan({});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_GT(outcome->high_reserved, (*planner)->capacity());
  EXPECT_TRUE(outcome->fits());
  EXPECT_FALSE(outcome->may_not_fit);
  EXPECT_EQ((*planner)->limit_source_for({}), LimitSource::kCard);
}

TEST(PlansOnACard, AMemoryFractionIsTheLimit) {
  const Trace trace = two_sizes();
  PlanOptions options;
  options.whatif.recorded_conf = "per_process_memory_fraction:0.25";
  const auto planner = Planner::prepare(trace.model().processes[0], 0, options);
  ASSERT_TRUE(planner) << planner.error().message;
  EXPECT_EQ((*planner)->capacity(), uint64_t{4} << 30);
  EXPECT_EQ((*planner)->limit_source_for({}), LimitSource::kFraction);
}

}  // namespace
}  // namespace tidemark
