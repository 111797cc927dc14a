// What plan and whatif advise where memory grows for as long as the program runs: nothing.
#include <gtest/gtest.h>

#include "export/plan/plan_text.h"
#include "export/whatif/whatif_text.h"

namespace tidemark {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

PlanReport fitted(const std::string& growth) {
  PlanReport report;
  PlanDevice& d = report.devices.emplace_back();
  d.growth = growth;
  d.capacity = d.card_bytes = 8 * kGiB;
  d.outcome.on_card.emplace().reserved_peak = 6 * kGiB;
  PlanFit& fit = d.fit.emplace();
  fit.batch.factor = 0.5;
  fit.outcome.on_card.emplace().reserved_peak = 4 * kGiB;
  fit.cheapest.emplace().batch = 0.5;
  return report;
}

TEST(GrowthText, NoBatchAndNoSettingFits) {
  const std::string text = plan_as_text(fitted("creep"), false);
  EXPECT_FALSE(has(text, "Largest batch")) << text;
  EXPECT_FALSE(has(text, "Cheapest changes")) << text;
  EXPECT_TRUE(has(text, "memory grows for as long as the program runs (creep,")) << text;
  EXPECT_TRUE(has(text, "what was recorded fits, 2.0 GiB left; memory grows (creep)")) << text;
  const std::string json = plan_as_json(fitted("creep"));
  EXPECT_TRUE(has(json, "\"growth\": \"creep\"") || has(json, "\"growth\":\"creep\"")) << json;
  EXPECT_FALSE(has(json, "batch_factor")) << json;
  EXPECT_FALSE(has(json, "cheapest")) << json;
  EXPECT_TRUE(has(plan_as_text(fitted(""), false), "Largest batch that fits: 0.5x"));
  EXPECT_TRUE(has(plan_as_text(fitted(""), false), "Cheapest changes"));
}

TEST(PlanText, OneSampleIsNotSeveral) {
  PlanReport report = fitted("");
  report.samples = 2;
  report.devices[0].fit->batch.samples = 1;
  EXPECT_TRUE(has(plan_as_text(report, false), "fits: 1 sample, 0.5x the recorded batch: "));
  report.devices[0].fit->batch = {};
  EXPECT_TRUE(has(plan_as_text(report, false), "Not even a batch of one sample fits"));
}

TEST(PlanText, ARangeHasTwoEnds) {
  PlanReport report = fitted("");
  PlanOutcome& outcome = report.devices[0].outcome;
  outcome.low_reserved = outcome.likely.reserved_peak = 2 * kGiB;
  outcome.high_reserved = 2 * kGiB + (1 << 20);
  EXPECT_TRUE(has(plan_as_text(report, false), "2.0 GiB reserved,")) << plan_as_text(report, false);
  outcome.high_reserved = 2 * kGiB + (20 << 20);
  EXPECT_TRUE(has(plan_as_text(report, false), "2.0 GiB reserved (2.00 GiB to 2.02 GiB)"));
}

TEST(PlanText, TheUpperEndOfARangeMayNotFit) {
  PlanReport report = fitted("");
  PlanDevice& d = report.devices[0];
  for (PlanOutcome* outcome : {&d.outcome, &d.fit->outcome}) {
    outcome->low_reserved = 3 * kGiB;
    outcome->high_reserved = 9 * kGiB;
  }
  const std::string fits = plan_as_text(report, false);
  EXPECT_TRUE(has(fits, "8.0 GiB: fits, 2.0 GiB left")) << fits;
  EXPECT_TRUE(has(fits, "recorded batch: 4.0 GiB reserved (3.0 GiB to 8.0 GiB) of 8.0 GiB\n"))
      << fits;
  d.outcome.may_not_fit = d.fit->outcome.may_not_fit = true;
  const std::string may_not = plan_as_text(report, false);
  EXPECT_TRUE(has(may_not, "may not fit: at the upper end of the range, 9.0 GiB, it does not; "))
      << may_not;
  EXPECT_TRUE(has(may_not,
                  "(3.0 GiB to 9.0 GiB) of 8.0 GiB; at the upper end of the range, "
                  "9.0 GiB, it does not fit\n"))
      << may_not;
}

TEST(PlanText, SaysWhatLimitsAProgramOnItsCard) {
  PlanReport report = fitted("");
  PlanDevice& d = report.devices[0];
  d.card_bytes = 100 * kGiB;
  d.other_bytes = 17 * kGiB;
  const auto room = [&](LimitSource source) {
    d.capacity_source = source;
    return plan_as_text(report, false);
  };
  const std::string start = "100.0 GiB, of which 8.0 GiB for PyTorch";
  EXPECT_TRUE(has(room(LimitSource::kCard), start + " (CUDA and others held 17.0 GiB"));
  EXPECT_TRUE(has(room(LimitSource::kFraction), start + ", as its memory fraction allows: "));
  EXPECT_TRUE(has(room(LimitSource::kDriver), start + ", as the driver refused memory beyond"));
}

// One setting with which a request fits that failed in the recording.
WhatIfReport avoided(const std::string& growth, uint64_t reserved) {
  WhatIfReport report;
  WhatIfDevice& d = report.devices.emplace_back();
  d.growth = growth;
  d.baseline.reserved_peak = 6 * kGiB;
  d.replay.prediction.failed_bytes = kGiB;
  Prediction& p = d.predictions.emplace_back();
  p.conf = "expandable_segments:True";
  p.reserved_peak = reserved;
  p.failures_avoided = 1;
  return report;
}

TEST(GrowthText, NoSettingIsACure) {
  const std::string text = whatif_as_text(avoided("creep", 6 * kGiB), false);
  EXPECT_TRUE(has(text, "1 request that failed would fit. Later ones would not.")) << text;
  EXPECT_TRUE(has(text, "Memory grows in this recording (creep,")) << text;
  EXPECT_FALSE(has(text, "Set before the program starts")) << text;
  EXPECT_TRUE(has(whatif_as_text(avoided("", 7 * kGiB), false), "Set before the program starts"));
}

TEST(GrowthText, ASettingThatReservesMoreThanTheFailedRequestIsNoAdvice) {
  const std::string text = whatif_as_text(avoided("", 8 * kGiB), false);
  EXPECT_TRUE(has(text, "It reserves 2.0 GiB more than the recording did")) << text;
  EXPECT_FALSE(has(text, "Set before the program starts")) << text;
}

}  // namespace
}  // namespace tidemark
