// SIGKILL at any moment loses nothing that was committed. TIDEMARK_KILLS sets how often this is
// tried.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "collector/recover/recovery.h"
#include "tests/support/victim.h"

namespace tidemark::test {
namespace {

int kills() {
  const char* const text = std::getenv("TIDEMARK_KILLS");
  return text == nullptr ? 50 : std::atoi(text);
}

// Where programs start slowly, a kill at a random moment would often come before the first row.
void wait_for_first_row(const Victim& victim) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < end) {
    for (const uint64_t rows : victim.committed()) {
      if (rows > 0) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void kill_and_recover(bool wait, std::mt19937& random, uint64_t& rows, uint64_t& from_rings) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const ScratchDirectory directory;
  const char* const flush_ms[] = {"1", "5", "20", "1000"};
  Victim victim(directory, {"stress", "8", draw(0, 1) != 0 ? "4" : "16", flush_ms[draw(0, 3)]});
  if (wait) wait_for_first_row(victim);
  std::this_thread::sleep_for(std::chrono::microseconds(draw(2'000, 120'000)));
  victim.kill();
  const VictimEnd end = victim.wait();
  ASSERT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL) << end.errors;
  EXPECT_EQ(end.errors + end.output, "");

  const Result<DirectoryRecovery> recovered =
      recover_directory(directory.path(), RecoveryBy::kReader);
  ASSERT_TRUE(recovered) << recovered.error().message;
  ASSERT_TRUE(recovered->failures.empty()) << recovered->failures[0].message;
  EXPECT_TRUE(directory.files(".ring").empty());
  const auto traces = directory.files(".tmk");
  if (traces.empty()) return;  // killed before the recorder created it
  ASSERT_EQ(traces.size(), 1U);
  const TraceContents trace = read_trace(traces[0]);
  EXPECT_FALSE(trace.damage.any());
  EXPECT_FALSE(trace.damage.unfinished);
  expect_complete(trace, victim.committed());
  rows += trace.framework_events.size();
  from_rings += recovered->files.at(0).rows;
}

TEST(KillTest, LosesNothingThatWasCommitted) {
  std::mt19937 random(20240611);
  uint64_t rows = 0;
  uint64_t from_rings = 0;
  for (int i = 0; i < kills(); ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    kill_and_recover(i % 4 == 0, random, rows, from_rings);
    if (testing::Test::HasFailure()) return;
  }
  RecordProperty("rows", std::to_string(rows));
  RecordProperty("rows_from_rings", std::to_string(from_rings));
  EXPECT_GT(from_rings, 0U) << "no kill left a ring with rows in it";
  EXPECT_GT(rows, 0U);
}

}  // namespace
}  // namespace tidemark::test
