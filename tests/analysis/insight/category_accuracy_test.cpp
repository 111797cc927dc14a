// Compares inferred categories with the exact ones of recorded runs, whose history states what the
// optimizer and autograd held.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "analysis/insight/categories/categories.h"
#include "collector/trace_source.h"

namespace tidemark {
namespace {

struct Score {
  uint64_t right = 0;
  uint64_t all = 0;
};

// Bytes at the allocated peak whose category is recorded in the trace.
Score score_of(const std::string& path) {
  const Result<TraceSource> source = open_trace(path);
  EXPECT_TRUE(source.ok()) << path;
  if (!source) return {};
  const Result<TraceModel> model = load_trace(source->readers);
  EXPECT_TRUE(model.ok()) << path;
  if (!model) return {};
  Score score;
  for (const ProcessModel& process : model->processes) {
    const StackRoles roles(process);
    for (const AllocationHistory& f : process.framework) {
      const Steps steps = find_steps(process, f, roles);
      const Categories guessed = categorize(process, f, roles, steps, false);
      for (size_t i = 0; i < f.allocations.size(); ++i) {
        const Allocation& a = f.allocations[i];
        if (a.category == Category::kUnknown || !a.alive_at(f.allocated_peak.event)) continue;
        score.all += a.block_bytes;
        if (guessed.of[i] == a.category) score.right += a.block_bytes;
      }
    }
  }
  return score;
}

void expect_right(const std::string& path) {
  const Score score = score_of(path);
  ASSERT_GT(score.all, 0U) << path;
  const double share = static_cast<double>(score.right) / static_cast<double>(score.all);
  std::printf("%s: %.1f %% of %.0f MiB\n", path.substr(path.rfind('/') + 1).c_str(), 100 * share,
              static_cast<double>(score.all) / (1 << 20));
  EXPECT_GE(share, 0.95) << path;
}

TEST(CategoryAccuracy, IsAtLeast95PercentOfTheBytes) {
  size_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TIDEMARK_TEST_DATA "/scenarios")) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".roles.tmk")) continue;
    ++runs;
    expect_right(path);
  }
  EXPECT_GT(runs, 0U);
}

// Recorded for other purposes, with the recorder's tags of parameters, gradients and optimizer
// states.
TEST(CategoryAccuracy, HoldsOnLiveRecordings) {
  const std::string samples = TIDEMARK_TEST_DATA "/../../samples/traces/";
  for (const char* run :
       {"torch/training.tier1.tmk", "torch/training.tier2.tmk", "torch/mixed_precision.tier1.tmk",
        "torch/mixed_precision.tier2.tmk", "torch/compiled.tier2.tmk", "ranks/ddp2", "ranks/ddp4",
        "ranks/guilty4"}) {
    expect_right(samples + run);
  }
  for (const char* run : {"bad", "fixed", "unlimited"}) {
    expect_right(std::string(TIDEMARK_TEST_DATA "/scenarios/full_precision.") + run);
  }
}

}  // namespace
}  // namespace tidemark
