// Ranks of a job with a known culprit.
#include "analysis/ranks/ranks.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "collector/job/merge.h"
#include "collector/trace_source.h"
#include "proto/read/nccl_kernels.h"
#include "tests/support/memory_file.h"
#include "tests/support/rank_trace.h"
#include "tests/support/scratch_directory.h"

namespace tidemark::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class Ranks : public testing::Test {
 protected:
  void write(RankTrace made) {
    made.seed = static_cast<uint64_t>(made.rank) + 1;
    made.collectives = std::max<uint64_t>(made.collectives, 1);
    EXPECT_TRUE(write_rank_trace(made, folder_ / ("rank" + std::to_string(made.rank) + ".tmk")));
  }
  TraceModel load() {
    source_ = open_trace(folder_.path());
    EXPECT_TRUE(source_->ok());
    Result<TraceModel> model = load_trace((*source_)->readers);
    EXPECT_TRUE(model.ok());
    return std::move(*model);
  }

  ScratchDirectory folder_;
  std::optional<Result<TraceSource>> source_;
};

TEST_F(Ranks, TheCulpritIsNamedWithItsLine) {
  RankTrace made;
  for (made.rank = 0; made.rank < 4; ++made.rank) {
    made.keeps_bytes = made.rank == 2 ? 300 * kMiB : 0;
    write(made);
  }
  const RankComparison c = compare_ranks(load());
  ASSERT_TRUE(c.compared);
  EXPECT_TRUE(c.framework);
  ASSERT_EQ(c.heights.size(), 4u);
  EXPECT_EQ(c.highest.rank, 2);
  EXPECT_NE(c.typical.rank, 2);
  ASSERT_FALSE(c.stacks.empty());
  EXPECT_EQ(c.stacks[0].bytes, 300 * kMiB);
  EXPECT_EQ(c.stacks[0].typical_bytes, 0u);
  ASSERT_FALSE(c.stacks[0].frames.empty());
  EXPECT_EQ(c.stacks[0].frames[0], "keep_for_later train.py:99");
  // Half of the events are before it; clocks of different hosts differ by at most the residual.
  ASSERT_TRUE(c.divergence.found);
  EXPECT_EQ(c.divergence.rank, 2);
  const int64_t span = 401 * made.period_ns;
  const int64_t truth = kJobStart + span / 101 * 51;
  EXPECT_TRUE(c.clocks_checked);
  ASSERT_TRUE(c.divergence.time_ns);
  EXPECT_NEAR(static_cast<double>(*c.divergence.time_ns), static_cast<double>(truth),
              static_cast<double>(c.clock_residual_ns) + 2000);
  EXPECT_TRUE(c.stuck.empty());
}

// Rank 1 had ended before rank 0 began, by clocks that may be wrong by more than that.
TEST_F(Ranks, WithoutAClockInCommonNothingIsSaidOfInstants) {
  RankTrace made;
  made.collectives = 0;
  for (made.rank = 0; made.rank < 2; ++made.rank) {
    made.start_ns = kJobStart - made.rank * int64_t{3600} * 1'000'000'000;
    made.keeps_bytes = made.rank == 0 ? 300 * kMiB : 0;
    write(made);
  }
  const RankComparison c = compare_ranks(load());
  ASSERT_TRUE(c.divergence.found);
  EXPECT_EQ(c.divergence.rank, 0);
  EXPECT_EQ(c.divergence.excess_bytes, c.highest.bytes - c.typical.bytes);
  EXPECT_FALSE(c.divergence.time_ns);
}

TEST_F(Ranks, EqualRanksAreNotBlamed) {
  RankTrace made;
  for (made.rank = 0; made.rank < 4; ++made.rank) write(made);
  const RankComparison c = compare_ranks(load());
  EXPECT_TRUE(c.compared);
  EXPECT_FALSE(c.divergence.found);
  EXPECT_EQ(c.highest.bytes, c.typical.bytes);
  EXPECT_TRUE(c.stacks.empty());
  EXPECT_TRUE(c.stuck.empty());
}

// Rank 1 ends after 200 collectives; the others call one more, which never runs.
TEST_F(Ranks, WhoWaitsForWhom) {
  RankTrace made;
  for (made.rank = 0; made.rank < 4; ++made.rank) {
    made.collectives = made.rank == 1 ? 200 : 201;
    made.stops_after = made.rank == 1 ? UINT64_MAX : 200;
    write(made);
  }
  const TraceModel model = load();
  const std::vector<StuckCollective> stuck = compare_ranks(model).stuck;
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0].communicator, kWorld);
  EXPECT_EQ(stuck[0].communicator_name, "world");
  EXPECT_EQ(stuck[0].function, "AllReduce");
  EXPECT_EQ(stuck[0].sequence, 200u);
  EXPECT_EQ(stuck[0].waiting, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(stuck[0].absent, (std::vector<int64_t>{1}));
}

// The last collective ran: the trace of one rank was just truncated before it.
TEST_F(Ranks, ATruncatedTraceIsNotAWait) {
  RankTrace made;
  for (made.rank = 0; made.rank < 3; ++made.rank) {
    made.collectives = made.rank == 1 ? 200 : 201;
    write(made);
  }
  EXPECT_TRUE(compare_ranks(load()).stuck.empty());
}

// Each rank has one block of a size of its own, so that whose events a process has can be seen.
TEST_F(Ranks, ADamagedByteGivesNoRankTheEventsOfAnother) {
  RankTrace made;
  made.world_size = 3;
  made.collectives = 1;
  made.events = 4;
  for (made.rank = 0; made.rank < 3; ++made.rank) {
    made.keeps_bytes = static_cast<uint64_t>(made.rank + 1) * kMiB;
    write(made);
  }
  MergeOptions options;
  options.inputs = {folder_.path()};
  ScratchDirectory out;
  options.output = out / "job.tmk";
  ASSERT_TRUE(merge_traces(options).ok());
  std::ifstream file(options.output, std::ios::binary);
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(bytes.size(), 1000u);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 0x20;
    Result<TraceReader> reader = open_bytes_as_trace(bytes);
    bytes[i] ^= 0x20;
    if (!reader) continue;
    const Result<TraceModel> model = load_trace({&*reader, 1});
    if (!model) continue;
    std::set<int64_t> ranks;
    for (const ProcessModel& p : model->processes) {
      if (p.info.rank < 0) continue;
      EXPECT_TRUE(ranks.insert(p.info.rank).second) << "byte " << i;
      for (const AllocationHistory& history : p.framework) {
        EXPECT_LE(history.allocated_peak.bytes,
                  static_cast<uint64_t>(p.info.rank + 1) * kMiB + 3 * 512)
            << "byte " << i;
        EXPECT_LE(history.event_count(), 5u) << "byte " << i;
      }
    }
  }
}

TEST_F(Ranks, NcclBytesAreTheDriversSum) {
  RankTrace made;
  made.nccl_bytes = {10 * kMiB, 2 * kMiB, 6 * kMiB};
  made.nccl_user_bytes = 5 * kMiB;
  made.nccl_host_bytes = kMiB;
  for (made.rank = 0; made.rank < 2; ++made.rank) write(made);
  const std::vector<NcclMemory> nccl = compare_ranks(load()).nccl;
  ASSERT_EQ(nccl.size(), 2u);
  for (const NcclMemory& rank : nccl) {
    EXPECT_EQ(rank.peak_bytes, 18 * kMiB);
    EXPECT_EQ(rank.allocations, 3u);
    EXPECT_EQ(rank.user_bytes, 5 * kMiB);
    EXPECT_EQ(rank.host_bytes, kMiB);
    ASSERT_EQ(rank.communicators.size(), 1u);
    EXPECT_EQ(rank.communicators[0].id, kWorld);
    EXPECT_EQ(rank.communicators[0].bytes, 18 * kMiB);
  }
}

TEST(NcclKernels, NamesOfAllAges) {
  EXPECT_TRUE(is_nccl_kernel("ncclKernel_AllReduce_RING_LL_Sum_float"));
  EXPECT_TRUE(is_nccl_kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"));
  EXPECT_TRUE(is_nccl_kernel(
      "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"));
  EXPECT_TRUE(is_nccl_kernel("ncclSymDevKernel_AllGather_LL"));
  EXPECT_TRUE(is_nccl_kernel("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32"));
  EXPECT_FALSE(is_nccl_kernel("gemm"));
  EXPECT_FALSE(is_nccl_kernel("my_ncclHelper"));
  EXPECT_FALSE(is_nccl_kernel(""));
}

Kernel kernel(int64_t start_ns, uint32_t correlation) {
  Kernel k{};
  k.start_ns = start_ns;
  k.duration_ns = 10;
  k.correlation = correlation;
  return k;
}
NcclOperation operation(int64_t start_ns, uint64_t group) {
  NcclOperation op{};
  op.start_ns = start_ns;
  op.group = group;
  op.kind = NcclKind::kCollective;
  return op;
}

TEST(NcclKernels, GroupsRunInOneKernelInTheOrderOfLaunches) {
  // Two streams: the second launch began first. The number of launches has wrapped around.
  std::vector<Kernel> kernels = {kernel(500, 3), kernel(100, UINT32_MAX), kernel(300, 1)};
  std::vector<NcclOperation> operations = {operation(20, 9), operation(10, 8), operation(21, 9),
                                           operation(30, 10), operation(40, 11)};
  const NcclJoin join = join_nccl_kernels(operations, kernels);
  EXPECT_TRUE(join.exact);
  EXPECT_EQ(join.groups, 4u);
  EXPECT_EQ(join.without_kernel, 1u);
  ASSERT_EQ(operations.size(), 5u);
  EXPECT_EQ(operations[0].gpu_start_ns, 100);
  EXPECT_EQ(operations[1].gpu_start_ns, 300);
  EXPECT_EQ(operations[2].gpu_start_ns, 300) << "of the same group";
  EXPECT_EQ(operations[3].gpu_start_ns, 500);
  EXPECT_EQ(operations[4].gpu_start_ns, 0) << "it never ran";
}

constexpr int64_t kMs = 1'000'000;

// Three recorded parts, [0, 100], [200, 300] and [400, ...) ms.
constexpr Stretch kUnrecorded[] = {{100 * kMs, 200 * kMs}, {300 * kMs, 400 * kMs}};

TEST(NcclKernels, BetweenStretchesWithoutKernelsTheOrderHolds) {
  std::vector<NcclOperation> operations = {operation(10 * kMs, 1),  operation(50 * kMs, 2),
                                           operation(120 * kMs, 3), operation(150 * kMs, 4),
                                           operation(250 * kMs, 5), operation(350 * kMs, 6),
                                           operation(450 * kMs, 7), operation(460 * kMs, 8)};
  std::vector<Kernel> kernels = {kernel(11 * kMs, 1), kernel(51 * kMs, 2), kernel(251 * kMs, 5),
                                 kernel(451 * kMs, 7)};
  const NcclJoin join = join_nccl_kernels(operations, kernels, kUnrecorded);
  EXPECT_TRUE(join.exact);
  EXPECT_EQ(join.in_doubt, 0U);
  std::vector<int64_t> starts;
  for (const NcclOperation& op : operations) starts.push_back(op.gpu_start_ns / kMs);
  EXPECT_EQ(starts, (std::vector<int64_t>{11, 51, 0, 0, 251, 0, 451, 0}));
}

TEST(NcclKernels, AtTheEdgeOfAStretchNothingIsGuessed) {
  // The call at 99.5 ms may have been launched before or after kernels were turned off.
  const std::vector<NcclOperation> calls = {
      operation(10 * kMs, 1), operation(99 * kMs + kMs / 2, 2), operation(250 * kMs, 3)};
  std::vector<NcclOperation> with = calls;
  std::vector<Kernel> both = {kernel(11 * kMs, 1), kernel(101 * kMs, 2), kernel(251 * kMs, 3)};
  EXPECT_TRUE(join_nccl_kernels(with, both, kUnrecorded).exact);
  EXPECT_EQ(with[1].gpu_start_ns, 101 * kMs);
  std::vector<NcclOperation> without = calls;
  std::vector<Kernel> one = {kernel(11 * kMs, 1), kernel(251 * kMs, 3)};
  EXPECT_TRUE(join_nccl_kernels(without, one, kUnrecorded).exact);
  EXPECT_EQ(without[0].gpu_start_ns, 11 * kMs);
  EXPECT_EQ(without[1].gpu_start_ns, 0);
  EXPECT_EQ(without[2].gpu_start_ns, 251 * kMs);
  // One kernel of three calls that were certainly recorded: which one is not known.
  std::vector<NcclOperation> many = {operation(10 * kMs, 1), operation(20 * kMs, 2),
                                     operation(30 * kMs, 3)};
  std::vector<Kernel> few = {kernel(40 * kMs, 1)};
  EXPECT_EQ(join_nccl_kernels(many, few, kUnrecorded).in_doubt, 3U);
  for (const NcclOperation& op : many) EXPECT_EQ(op.gpu_start_ns, 0);
}

TEST(NcclKernels, MissingKernelsAreNoticed) {
  std::vector<NcclOperation> operations = {operation(1000, 1), operation(2000, 2)};
  std::vector<Kernel> early = {kernel(500, 1), kernel(2500, 2)};
  EXPECT_FALSE(join_nccl_kernels(operations, early).exact) << "ran before it was enqueued";
  std::vector<NcclOperation> few = {operation(1000, 1)};
  std::vector<Kernel> many = {kernel(1500, 1), kernel(2500, 2)};
  EXPECT_FALSE(join_nccl_kernels(few, many).exact);
}

}  // namespace
}  // namespace tidemark::test
