// The order in which findings are told.
#include <gtest/gtest.h>

#include "analysis/findings/one_cause.h"
#include "analysis/findings/rules.h"

namespace tidemark {
namespace {

Finding finding(std::string id, int64_t rank, uint64_t saves) {
  Finding f;
  f.id = std::move(id);
  f.severity = kWarning;
  f.rank = rank;
  f.frames = {"encode vae.py:7"};
  f.advice.push_back({"act", "act", saves});
  return f;
}

// On each rank, whichever saves more.
TEST(FindingOrder, APartThatIsComputedForNothingComesBeforeItsLargestOperation) {
  std::vector<Finding> found = {
      finding("one_operation_peak", 0, 900), finding("one_operation_peak", 1, 800),
      finding("unused_gradients", 0, 700), finding("unused_gradients", 1, 600),
      finding("one_operation_peak", 2, 500)};
  sort_findings(found);
  std::vector<std::pair<std::string, int64_t>> order;
  for (const Finding& f : found) order.emplace_back(f.id, f.rank);
  const std::vector<std::pair<std::string, int64_t>> wanted = {{"unused_gradients", 0},
                                                               {"one_operation_peak", 0},
                                                               {"unused_gradients", 1},
                                                               {"one_operation_peak", 1},
                                                               {"one_operation_peak", 2}};
  EXPECT_EQ(order, wanted);
}

TEST(FindingOrder, GrowthOfOneRankComesBeforeItsDifferenceToTheOthers) {
  std::vector<Finding> found = {finding("rank_imbalance", 1, 900), finding("creep", 1, 700),
                                finding("creep", 0, 800)};
  sort_findings(found);
  std::vector<std::pair<std::string, int64_t>> order;
  for (const Finding& f : found) order.emplace_back(f.id, f.rank);
  const std::vector<std::pair<std::string, int64_t>> wanted = {
      {"creep", 0}, {"creep", 1}, {"rank_imbalance", 1}};
  EXPECT_EQ(order, wanted);
}

TEST(FindingOrder, GrowthComesBeforeTheHolesThatItLeaves) {
  std::vector<Finding> found = {finding("fragmentation", 0, 900), finding("creep", 0, 700)};
  sort_findings(found);
  EXPECT_EQ(found.front().id, "creep");
}

TEST(FindingOrder, AHigherLimitComesLastIfTheCauseIsKnown) {
  const auto order = [](bool leaks) {
    std::vector<Finding> found = {finding("memory_fraction", 0, 0), finding("capacity", 0, 0)};
    if (leaks) found.push_back(finding("creep", 0, 700));
    for (Finding& f : found) f.severity = kError;
    sort_findings(found);
    std::vector<std::string> ids;
    for (const Finding& f : found) ids.push_back(f.id);
    return ids;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(order(true), (Ids{"creep", "capacity", "memory_fraction"}));
  EXPECT_EQ(order(false), (Ids{"memory_fraction", "capacity"}));
}

Finding on_smaller_card(uint64_t allocated, uint64_t reserved, uint64_t limit, uint64_t saves) {
  Finding f = finding("capacity", 0, saves);
  f.evidence = {
      {"allocated_bytes", allocated}, {"reserved_bytes", reserved}, {"limit_bytes", limit}};
  return f;
}

std::vector<std::string> sorted_ids(std::vector<Finding> found) {
  keep_one_of_each_cause(found);
  sort_findings(found);
  std::vector<std::string> ids;
  for (const Finding& f : found) ids.push_back(f.id);
  return ids;
}

using Ids = std::vector<std::string>;

TEST(FindingOrder, OnASmallerCardWhatCostsNothingComesFirst) {
  EXPECT_EQ(sorted_ids({on_smaller_card(800, 1200, 1000, 700), finding("activation_peak", 0, 700),
                        finding("unused_gradients", 0, 150), finding("fragmentation", 0, 100)}),
            (Ids{"unused_gradients", "fragmentation", "capacity", "activation_peak"}));
  // Without one, the greatest saving is first.
  EXPECT_EQ(sorted_ids({finding("activation_peak", 0, 700), finding("unused_gradients", 0, 500)}),
            (Ids{"activation_peak", "unused_gradients"}));
}

TEST(FindingOrder, HolesDoNotMatterFirstWhereTooMuchIsAllocated) {
  const Finding holes = finding("fragmentation", 0, 900);
  EXPECT_EQ(sorted_ids({holes, on_smaller_card(1100, 2000, 1000, 0),
                        finding("one_operation_peak", 0, 500)}),
            (Ids{"one_operation_peak", "fragmentation", "capacity"}));
  EXPECT_EQ(sorted_ids({holes, on_smaller_card(1100, 2000, 1000, 0),
                        finding("one_operation_peak", 0, 50)}),
            (Ids{"one_operation_peak", "capacity", "fragmentation"}));
}

TEST(FindingOrder, PoolsExplainTheHolesThatTheyLeave) {
  for (const char* pools : {"graph_private_pool", "stream_pools"}) {
    Finding cause = finding(pools, 0, 600);
    cause.evidence = {{"idle_bytes", 900}};
    Finding holes = finding("fragmentation", 0, 200);
    holes.evidence = {{"peak_cost_bytes", 1000}};
    Finding sizes = finding("shape_variance", 0, 200);
    sizes.evidence = {{"peak_cost_bytes", 1000}};
    EXPECT_EQ(sorted_ids({holes, sizes, cause}), (Ids{pools}));
    holes.rank = 1;
    EXPECT_EQ(sorted_ids({holes, cause}), (Ids{pools, "fragmentation"})) << "of another rank";
    holes.rank = 0;
    holes.severity = kError;
    EXPECT_EQ(sorted_ids({holes, cause}), (Ids{"fragmentation", pools})) << "the request failed";
    holes.severity = kWarning;
    holes.evidence = {{"peak_cost_bytes", 4000}};
    EXPECT_EQ(sorted_ids({holes, cause}), (Ids{pools, "fragmentation"})) << "there are others";
  }
}

TEST(FindingOrder, CapacityTellsWhichFindingIsEnough) {
  std::vector<Finding> found = {on_smaller_card(800, 1200, 1000, 0),
                                finding("stream_pools", 0, 300)};
  found[0].advice = {{"look_at_largest", "look", 0}, {"halve_batch", "halve", 100}};
  keep_one_of_each_cause(found);
  ASSERT_EQ(found[0].advice.size(), 2U);
  EXPECT_EQ(found[0].advice[0].action, "see_stream_pools");
  EXPECT_EQ(found[0].advice[1].action, "halve_batch");
  found = {on_smaller_card(800, 1200, 1000, 0), finding("stream_pools", 0, 100)};
  keep_one_of_each_cause(found);
  EXPECT_EQ(found[0].advice[0].action, "act") << "not enough";
}

TEST(FindingOrder, WhatLowersThePeakEnoughSparesASmallerStep) {
  const auto run = [](const char* id, uint64_t saved) {
    std::vector<Finding> found = {on_smaller_card(1100, 1200, 1000, 0), finding(id, 0, saved),
                                  finding("activation_peak", 0, 300)};
    found[0].advice = {{"halve_batch", "halve", 400}, {"checkpoint", "compute again", 300}};
    keep_one_of_each_cause(found);
    return found;
  };
  const std::vector<Finding> enough = run("creep", 300);
  ASSERT_EQ(enough.size(), 2U) << "activation_peak repeats what is not needed";
  ASSERT_EQ(enough[0].advice.size(), 1U);
  EXPECT_EQ(enough[0].advice[0].action, "see_creep");
  EXPECT_EQ(enough[0].advice[0].saves_bytes, 300U);
  EXPECT_EQ(run("creep", 100)[0].advice[0].action, "halve_batch") << "not enough";
  EXPECT_EQ(run("pinned_growth", 300)[0].advice[0].action, "halve_batch") << "host memory";
  EXPECT_EQ(run("creep", 100).size(), 3U);
}

// Holes that a request did not fit into tell more than the limit around them.
TEST(FindingOrder, ALimitComesAfterHolesThatFailed) {
  Finding holes = finding("fragmentation", 0, 0);
  Finding limit = finding("memory_fraction", 0, 0);
  holes.severity = limit.severity = kError;
  EXPECT_EQ(sorted_ids({limit, holes}), (Ids{"fragmentation", "memory_fraction"}));
}

}  // namespace
}  // namespace tidemark
