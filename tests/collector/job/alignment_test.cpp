// Clocks that are off by a known amount are corrected, and the residual is honest.
#include <gtest/gtest.h>

#include <cmath>

#include "collector/job/alignment.h"
#include "collector/job/clock_fit.h"
#include "collector/trace_source.h"
#include "proto/clock.h"
#include "tests/support/rank_trace.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/shifted_trace.h"

namespace tidemark::test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMicro = 1000;

struct WrongClock {
  int64_t offset_ns = 0;
  int64_t drift_ppb = 0;
};

std::string rank_path(const ScratchDirectory& folder, int64_t rank) {
  return folder / ("rank" + std::to_string(rank) + ".tmk");
}

// Writes one rank with a wrong clock.
void write_shifted(const RankTrace& made, const WrongClock& wrong, const std::string& path) {
  const std::string right = path + ".right";
  ASSERT_TRUE(write_rank_trace(made, right));
  ASSERT_TRUE(shift_clock(right, path, kJobStart, wrong.offset_ns, wrong.drift_ppb));
  std::filesystem::remove(right);
}

// The distance of the corrected times of a rank from those of rank 0, over the whole job.
int64_t worst_error(const Alignment& reference, const WrongClock& of_reference,
                    const Alignment& clock, const WrongClock& wrong, int64_t span_ns) {
  int64_t worst = 0;
  for (int64_t t = 0; t <= span_ns; t += span_ns / 16) {
    const auto read = [&](const Alignment& a, const WrongClock& w) {
      const Alignment error{kJobStart, w.offset_ns, w.drift_ppb, 0, 0, AlignmentMethod::kNone};
      return aligned_ns(a, aligned_ns(error, kJobStart + t));
    };
    worst = std::max(worst, std::abs(read(clock, wrong) - read(reference, of_reference)));
  }
  return worst;
}

TEST(Alignment, CorrectsTenSecondsAndFiftyPpm) {
  const WrongClock wrong[] = {{-3 * kSecond, 20'000},
                              {10 * kSecond, 50'000},
                              {-10 * kSecond, -50'000},
                              {123'456'789, -7'000}};
  ScratchDirectory folder;
  RankTrace made;
  made.far_share = 0.05;
  for (int64_t rank = 0; rank < 4; ++rank) {
    made.rank = rank;
    made.seed = static_cast<uint64_t>(rank) + 1;
    write_shifted(made, wrong[rank], rank_path(folder, rank));
  }
  const Result<TraceSource> source = open_trace(folder.path());
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE(source->warnings.empty()) << source->warnings.front();
  ASSERT_EQ(source->readers.size(), 4u);
  const int64_t span = static_cast<int64_t>(made.collectives) * made.period_ns;
  const Alignment& reference = *source->readers[0].alignment(1);
  for (size_t rank = 1; rank < 4; ++rank) {
    const Alignment* clock = source->readers[rank].alignment(1);
    ASSERT_NE(clock, nullptr);
    EXPECT_EQ(clock->method, AlignmentMethod::kCollectives);
    EXPECT_EQ(clock->samples, made.collectives);
    const int64_t error = worst_error(reference, wrong[0], *clock, wrong[rank], span);
    EXPECT_LE(error, 50 * kMicro) << "rank " << rank;
    EXPECT_LE(error, static_cast<int64_t>(clock->residual_ns)) << "the residual covers the error";
    EXPECT_LT(clock->residual_ns, 12'000'000u)
        << "the residual is as large as the scatter of the points";
  }
}

// Points that only scatter by 10 us: the residual is exactly that.
TEST(Alignment, ResidualIsTheScatter) {
  std::mt19937_64 rng(3);
  std::vector<ClockPoint> points;
  for (int64_t i = 0; i < 500; ++i) {
    const auto noise = static_cast<int64_t>(rng() % 20'000) - 10'000;
    points.push_back({i * 10'000'000, 5 * kSecond + noise});
  }
  const Alignment clock = fit_clock(points, 0, 5 * kSecond);
  EXPECT_NEAR(static_cast<double>(clock.offset_ns), 5e9, 2e3);
  EXPECT_GE(clock.residual_ns, 9'000u);
  EXPECT_LE(clock.residual_ns, 13'000u);
  EXPECT_EQ(clock.samples, 500u);
}

TEST(Alignment, ShortRecordingsInventNoDrift) {
  std::mt19937_64 rng(3);
  std::vector<ClockPoint> points;
  for (int64_t i = 0; i < 20; ++i) {
    points.push_back({i * 1'000'000, static_cast<int64_t>(rng() % 20'000)});
  }
  EXPECT_EQ(fit_clock(points, 0, 20'000'000).drift_ppb, 0);
}

// Half of the ranks share one communicator, half another, and one rank is in both.
TEST(Alignment, ReachesRanksThroughOthers) {
  ScratchDirectory folder;
  const WrongClock wrong[] = {{0, 0}, {2 * kSecond, 10'000}, {-4 * kSecond, -30'000}};
  std::vector<RankFacts> facts(3);
  for (int64_t i = 0; i < 400; ++i) {
    const int64_t time = kJobStart + i * 50'000'000;
    for (size_t r = 0; r < 3; ++r) {
      const Alignment error{kJobStart, wrong[r].offset_ns,    wrong[r].drift_ppb, 0,
                            0,         AlignmentMethod::kNone};
      const int64_t end = aligned_ns(error, time + i % 7 * 1000);
      if (r != 2) facts[r].ends.push_back({1, static_cast<uint64_t>(i), end});
    }
  }
  for (int64_t i = 0; i < 400; ++i) {
    const int64_t time = kJobStart + i * 50'000'000 + 25'000'000;
    for (size_t r = 1; r < 3; ++r) {
      const Alignment error{kJobStart, wrong[r].offset_ns,    wrong[r].drift_ppb, 0,
                            0,         AlignmentMethod::kNone};
      facts[r].ends.push_back({2, static_cast<uint64_t>(i), aligned_ns(error, time)});
    }
  }
  std::vector<const RankFacts*> ranks;
  for (RankFacts& f : facts) {
    f.info.rank = static_cast<int64_t>(ranks.size());
    f.first_ns = f.ends.front().end_ns;
    f.last_ns = f.ends.back().end_ns;
    ranks.push_back(&f);
  }
  const ClockAlignment aligned = align_clocks(ranks);
  EXPECT_TRUE(aligned.warnings.empty());
  for (size_t r = 1; r < 3; ++r) {
    EXPECT_EQ(aligned.clocks[r].method, AlignmentMethod::kCollectives);
    EXPECT_LE(worst_error(aligned.clocks[0], wrong[0], aligned.clocks[r], wrong[r], 20 * kSecond),
              50 * kMicro);
  }
  EXPECT_GE(aligned.clocks[2].residual_ns, aligned.clocks[1].residual_ns) << "steps add up";
}

TEST(Alignment, WithoutKernelsTheHostsClocksAreKept) {
  ScratchDirectory folder;
  RankTrace made;
  made.kernels_tell = false;
  made.world_size = 2;
  for (int64_t rank = 0; rank < 2; ++rank) {
    made.rank = rank;
    ASSERT_TRUE(write_rank_trace(made, rank_path(folder, rank)));
  }
  const Result<TraceSource> source = open_trace(folder.path());
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->warnings.size(), 1u);
  EXPECT_NE(source->warnings[0].find("clock"), std::string::npos);
  EXPECT_EQ(source->readers[1].alignment(1), nullptr);
}

// One host has one clock: the scatter of the collectives must not move it.
TEST(Alignment, OneHostHasOneClock) {
  std::mt19937_64 rng(9);
  std::vector<RankFacts> facts(2);
  for (size_t r = 0; r < 2; ++r) {
    facts[r].info.rank = static_cast<int64_t>(r);
    facts[r].host = "node";
    for (int64_t i = 0; i < 50; ++i) {
      facts[r].ends.push_back({1, static_cast<uint64_t>(i),
                               kJobStart + i * 1'000'000 + static_cast<int64_t>(rng() % 900'000)});
    }
    facts[r].first_ns = kJobStart;
    facts[r].last_ns = kJobStart + 50'000'000;
  }
  const RankFacts* ranks[] = {&facts[0], &facts[1]};
  const ClockAlignment aligned = align_clocks(ranks);
  EXPECT_EQ(aligned.clocks[1].method, AlignmentMethod::kHostClock);
  EXPECT_EQ(aligned.clocks[1].offset_ns, 0);
  EXPECT_EQ(aligned.clocks[1].samples, 50u);
  EXPECT_GT(aligned.clocks[1].residual_ns, 100'000u);
}

// A host whose clock is an hour ahead: a process that took part in no collective runs on it too.
TEST(Alignment, ProcessesWithoutCollectivesGetTheClockOfTheirHost) {
  constexpr int64_t kAhead = 3600 * kSecond;
  const std::string hosts[] = {"a", "b", "b", "c"};
  std::vector<RankFacts> facts(4);
  for (size_t r = 0; r < 4; ++r) {
    const int64_t start = kJobStart + (hosts[r] == "b" ? kAhead : 0);
    facts[r].info.rank = r < 2 ? static_cast<int64_t>(r) : -1;
    facts[r].host = hosts[r];
    facts[r].first_ns = start;
    facts[r].last_ns = start + 50'000'000;
    for (int64_t i = 0; r < 2 && i < 50; ++i) {
      facts[r].ends.push_back({1, static_cast<uint64_t>(i), start + i * 1'000'000});
    }
  }
  std::vector<const RankFacts*> ranks;
  for (const RankFacts& f : facts) ranks.push_back(&f);
  const ClockAlignment aligned = align_clocks(ranks);
  EXPECT_NEAR(static_cast<double>(aligned.clocks[1].offset_ns), -static_cast<double>(kAhead), 1e5);
  EXPECT_EQ(aligned.clocks[2].offset_ns, aligned.clocks[1].offset_ns);
  EXPECT_EQ(aligned.clocks[2].reference_ns, aligned.clocks[1].reference_ns);
  EXPECT_EQ(aligned.clocks[3].offset_ns, 0);
  EXPECT_EQ(aligned.clocks[3].method, AlignmentMethod::kNone);
  ASSERT_EQ(aligned.warnings.size(), 1u) << "nobody else tells the time of c";
  EXPECT_TRUE(aligned.warnings[0].starts_with("processes without a rank on c: no collectives"));
}

}  // namespace
}  // namespace tidemark::test
