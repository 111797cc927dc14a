// The budget in virtual time: a program whose kernels and hooks cost a known share.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "injector/cupti/kernel_budget.h"
#include "injector/process/hook_time.h"

namespace tidemark::injector {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;
constexpr uint32_t kKernelNs = 1200;

struct Program {
  double kernels_per_ns = 0;
  double hooks_share = 0;
  int64_t step_ns = 0;
  uint64_t switch_ns = 0;  // each time
};

struct Stretch {
  int64_t begin_ns;
  int64_t end_ns;
};

// Asks when the budget wants to be asked, and does what it says.
class World {
 public:
  explicit World(uint32_t share, int64_t beginning_ns = 0)
      : budget_({share, beginning_ns, beginning_ns}) {
    budget_.set_kernel_ns(kKernelNs);
    recorded.push_back({0, 0});
  }

  void run(const Program& program, int64_t duration_ns) {
    for (const int64_t end = now_ns + duration_ns; now_ns < end;) {
      const BudgetDecision decision = budget_.look(reading(program));
      requested_ = false;
      set(decision.record, program);
      const int64_t until = std::min(end, now_ns + std::max(decision.again_ns, kMs));
      const auto passed = static_cast<double>(until - now_ns);
      launched += program.kernels_per_ns * passed;
      hooks_ns += program.hooks_share * passed;
      if (on) kernels += program.kernels_per_ns * passed;
      now_ns = until;
      if (on) recorded.back().end_ns = now_ns;
    }
  }
  void request(const Program& program) {
    requested_ = true;
    set(budget_.look(reading(program)).record, program);
    requested_ = false;
  }

  double cost_ns() const {
    return hooks_ns + kernels * kKernelNs + static_cast<double>(switch_total_ns);
  }
  double cost_share() const { return cost_ns() / static_cast<double>(now_ns); }

  int64_t now_ns = 0;
  bool on = true;
  double launched = 0;
  double kernels = 0;  // recorded
  double hooks_ns = 0;
  uint64_t switches = 0;
  uint64_t switch_total_ns = 0;
  std::vector<Stretch> recorded;

 private:
  BudgetReading reading(const Program& program) const {
    BudgetReading r;
    r.now_ns = now_ns;
    r.hooks_ns = static_cast<uint64_t>(hooks_ns);
    r.kernels = static_cast<uint64_t>(kernels);
    r.switches = switches;
    r.switch_ns = switch_total_ns;
    r.step_ns = program.step_ns;
    r.steps = 100;
    r.requested = requested_;
    return r;
  }
  void set(bool record, const Program& program) {
    if (record == on) return;
    on = record;
    ++switches;
    switch_total_ns += program.switch_ns;
    if (on) recorded.push_back({now_ns, now_ns});
  }

  KernelBudget budget_;
  bool requested_ = false;
};

// 1,410 kernels in 28 ms: 6 % of the time.
constexpr Program kDense{1410.0 / (28 * kMs), 0.005, 28 * kMs, 0};

TEST(KernelBudgetTest, DenseKernelsAreRecordedInBurstsWithinTheBudget) {
  for (const uint32_t share : {10'000U, 20'000U, 40'000U}) {
    World world(share);
    world.run(kDense, 60 * kSecond);
    // A second's share may be saved up, and the last burst is not paid for yet.
    const double burst_ns = 0.07 * 1.25 * static_cast<double>(kDense.step_ns);
    EXPECT_LE(world.cost_ns(), share / 1e6 * static_cast<double>(61 * kSecond) + burst_ns);
    // What is left is used.
    EXPECT_GE(world.cost_share(), share / 1e6 * 0.8) << share;
    EXPECT_GT(world.recorded.size(), 20U);
  }
}

TEST(KernelBudgetTest, ABurstHasAWholeStep) {
  World world(20'000);
  world.run(kDense, 30 * kSecond);
  for (size_t i = 1; i + 1 < world.recorded.size(); ++i) {
    EXPECT_GE(world.recorded[i].end_ns - world.recorded[i].begin_ns, kDense.step_ns) << i;
  }
  Program unmarked = kDense;
  unmarked.step_ns = 0;
  World other(20'000);
  other.run(unmarked, 30 * kSecond);
  for (size_t i = 1; i + 1 < other.recorded.size(); ++i) {
    EXPECT_GE(other.recorded[i].end_ns - other.recorded[i].begin_ns, 20 * kMs) << i;
  }
}

TEST(KernelBudgetTest, SparseKernelsAreAllRecorded) {
  World world(20'000);
  world.run({1000.0 / kSecond, 0.005, 0, 0}, 60 * kSecond);
  EXPECT_EQ(world.switches, 0U);
  EXPECT_EQ(world.kernels, world.launched);
}

TEST(KernelBudgetTest, WithoutABudgetEverythingIsRecorded) {
  World world(0);
  world.run(kDense, 60 * kSecond);
  EXPECT_EQ(world.switches, 0U);
  EXPECT_EQ(world.kernels, world.launched);
}

TEST(KernelBudgetTest, TheBeginningIsRecordedWhateverItCosts) {
  World world(20'000, 2 * kSecond);
  world.run({0, 0, 0, 0}, 10 * kSecond);  // until the first kernel
  world.run(kDense, 2 * kSecond - 300 * kMs);
  EXPECT_EQ(world.kernels, world.launched);
  world.run(kDense, 2 * kSecond);
  EXPECT_LT(world.kernels, world.launched);
}

TEST(KernelBudgetTest, ARequestEndsAPauseForABurst) {
  World world(20'000);
  world.run(kDense, 10 * kSecond);
  while (world.on) world.run(kDense, kMs);
  const int64_t asked_ns = world.now_ns;
  world.request(kDense);
  EXPECT_TRUE(world.on);
  world.run(kDense, kSecond);
  const auto burst = std::find_if(world.recorded.begin(), world.recorded.end(),
                                  [&](const Stretch& s) { return s.begin_ns == asked_ns; });
  ASSERT_NE(burst, world.recorded.end());
  EXPECT_GE(burst->end_ns - burst->begin_ns, kDense.step_ns);
}

TEST(KernelBudgetTest, HooksThatUseUpTheBudgetLeaveNothingForKernels) {
  Program program = kDense;
  program.hooks_share = 0.03;
  World world(20'000);
  world.run(program, 10 * kSecond);
  const double before = world.kernels;
  world.run(program, 20 * kSecond);
  EXPECT_EQ(world.kernels, before);
  // And kernels come back when there is room for them again.
  world.run(kDense, 20 * kSecond);
  EXPECT_GT(world.kernels, before);
}

TEST(KernelBudgetTest, KernelsThatBecomeSparseAreAllRecordedAgain) {
  World world(20'000);
  world.run(kDense, 10 * kSecond);
  const Program sparse{1000.0 / kSecond, 0.005, 0, 0};
  world.run(sparse, 5 * kSecond);
  const double missing = world.launched - world.kernels;
  world.run(sparse, 60 * kSecond);
  EXPECT_NEAR(world.launched - world.kernels, missing, 0.5);
}

// Turning kernels on and off stops the host's launches for that long.
TEST(KernelBudgetTest, SlowSwitchesMakeLongerBursts) {
  Program slow = kDense;
  slow.switch_ns = 2 * kMs;
  World world(20'000);
  world.run(slow, 120 * kSecond);
  EXPECT_LE(world.cost_share(), 0.0205);
  EXPECT_LE(static_cast<double>(world.switch_total_ns), 0.5 * world.cost_ns());
}

TEST(KernelBudgetTest, AClockThatStandsStillIsNoProblem) {
  KernelBudget budget({20'000, 0, 0});
  BudgetReading reading;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.look(reading).record);
}

// Each hook does the same, so the estimate is right if the number of measured ones is. It takes at
// least a tick, or a measured one would not be seen: some counters are slow.
TEST(HookTimeTest, MeasuresAboutOneHookIn64) {
  constexpr uint64_t kHooks = 640'000;
  take_hook_ticks();
  uint64_t measured = 0;
  for (uint64_t i = 0; i < kHooks; ++i) {
    {
      const HookTime time;
      const uint64_t begun = processor_ticks();
      while (processor_ticks() == begun) {
      }
    }
    if (take_hook_ticks() != 0) ++measured;
  }
  EXPECT_NEAR(static_cast<double>(measured), kHooks / 64.0, kHooks / 64.0 / 20);
}

}  // namespace
}  // namespace tidemark::injector
