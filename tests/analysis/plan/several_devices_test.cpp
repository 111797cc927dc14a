// Plans of a process with several devices, which run one program.
#include <gtest/gtest.h>

#include "analysis/plan/plan_report.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

PlanReport fitted(const Trace& trace, uint64_t card) {
  PlanQuestion question;
  question.fit = true;
  question.options.whatif.card_bytes = card;
  Result<PlanReport> report = make_plan_report(trace.model(), nullptr, question);
  EXPECT_TRUE(report);
  return report ? *report : PlanReport{};
}

// The parts of a batch on two cards. `share`: of the second one, in MiB.
void forward_on_both(Story& s, uint64_t share) {
  s.use_device(0);
  s.on(0, 0);
  for (int i = 0; i < 4; ++i) s.alloc(32 * kMiB, s.forward(1));
  s.use_device(1);
  s.on(1, 0);
  for (int i = 0; i < 4; ++i) s.alloc(share * kMiB, s.forward(1));
}

TEST(SeveralDevices, AnErrorOfOneEndsTheRecordingOfAll) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    forward_on_both(s, 512);
    s.run_out(4096 * kMiB, 64 * kMiB, s.forward(2));
  });
  const PlanReport report = fitted(trace, uint64_t{8} << 30);
  ASSERT_EQ(report.devices.size(), 2U);
  for (const PlanDevice& d : report.devices) {
    EXPECT_TRUE(d.ends_at_error) << d.device;
    EXPECT_FALSE(d.has_whole_step) << d.device;
  }
  EXPECT_FALSE(report.devices[0].ran_out);
  EXPECT_EQ(report.devices[0].other_device_failed, 1);
  EXPECT_FALSE(report.devices[1].other_device_failed);
}

TEST(SeveralDevices, TheSmallestBatchThatFitsCounts) {
  const Trace trace([](Story& s, uint32_t) {
    for (int i = 0; i < 4; ++i) s.alloc(8 * kMiB, s.setup());
    forward_on_both(s, 256);
  });
  const PlanReport report = fitted(trace, uint64_t{8} << 30);
  ASSERT_EQ(report.devices.size(), 2U);
  ASSERT_TRUE(report.devices[0].fit && report.devices[1].fit);
  ASSERT_TRUE(report.devices[0].fit->shared);
  EXPECT_EQ(report.devices[0].fit->shared->device, 1);
  EXPECT_EQ(report.devices[0].fit->shared->batch.factor, report.devices[1].fit->batch.factor);
  EXPECT_FALSE(report.devices[1].fit->shared);
  EXPECT_FALSE(report.devices[0].ends_at_error);
}

}  // namespace
}  // namespace tidemark
