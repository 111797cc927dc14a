// The order in which findings are told.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tidemark
