// The plugin in libtidemark.so as NCCL uses it: every version of the interface, through the
// stand-in for NCCL, and what is recorded in the trace.
#include <gtest/gtest.h>

#include "collector/recover/recovery.h"
#include "tests/support/capture_run.h"

namespace tidemark::test {
namespace {

constexpr uint64_t kHash = 0xabcdef0123456789;

struct NcclRows {
  std::vector<Communicator> communicators;
  std::vector<NcclOperation> operations;
  std::vector<Kernel> kernels;
};

NcclRows read_nccl(const std::string& path) {
  NcclRows rows;
  const auto reader = TraceReader::open(path);
  EXPECT_TRUE(reader.ok());
  if (!reader) return rows;
  BlockDecoder decoder(*reader);
  for_each_block<Communicator>(*reader, decoder, 0, [&](auto block, const BlockRef&) {
    rows.communicators.insert(rows.communicators.end(), block.begin(), block.end());
  });
  for_each_block<NcclOperation>(*reader, decoder, 0, [&](auto block, const BlockRef&) {
    rows.operations.insert(rows.operations.end(), block.begin(), block.end());
  });
  for_each_block<Kernel>(*reader, decoder, 0, [&](auto block, const BlockRef&) {
    rows.kernels.insert(rows.kernels.end(), block.begin(), block.end());
  });
  return rows;
}

class EveryVersion : public testing::TestWithParam<int> {};

TEST_P(EveryVersion, RecordsOperations) {
  const int version = GetParam();
  CaptureRun run;
  run.with("SIMGPU_NCCL_PROFILER", std::to_string(version))
      .with("RANK", "1")
      .with("WORLD_SIZE", "2")
      .run(std::string(TIDEMARK_NCCL_HOST) + " 3");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  // The library set NCCL_PROFILER_PLUGIN itself: nothing else did.
  EXPECT_EQ(run.output(), "rank 1 of 2, profiler v" + std::to_string(version) + "\n");
  EXPECT_EQ(run.complaints(), 0u) << run.errors();
  const TraceContents trace = run.trace();
  const NcclRows rows = read_nccl(run.traces().at(0));

  ASSERT_EQ(rows.communicators.size(), 1u);
  EXPECT_EQ(rows.communicators[0].id, kHash);
  EXPECT_EQ(rows.communicators[0].rank, 1);
  EXPECT_EQ(rows.communicators[0].ranks, version >= 4 ? 2u : 0u);
  EXPECT_EQ(trace.strings.at(rows.communicators[0].name), "world");

  ASSERT_EQ(rows.operations.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const NcclOperation& op = rows.operations[i];
    const bool collective = i % 2 == 0;
    EXPECT_EQ(op.communicator, kHash);
    EXPECT_EQ(op.kind, collective ? NcclKind::kCollective : NcclKind::kPointToPoint);
    EXPECT_EQ(op.sequence, i / 2) << "of its kind";
    EXPECT_EQ(trace.strings.at(op.function), collective ? "AllReduce" : "Recv");
    EXPECT_EQ(trace.strings.at(op.datatype), "ncclFloat32");
    EXPECT_EQ(op.count, collective ? 1000u : 10u);
    EXPECT_EQ(op.size_bytes, op.count * 4);
    EXPECT_EQ(op.peer, 0);
    EXPECT_NE(op.receive_address, 0u);
    EXPECT_EQ(op.send_address, collective ? op.receive_address : 0);
    EXPECT_NE(op.group, 0u);
    EXPECT_NE(op.thread, 0u);
    if (collective) {
      EXPECT_EQ(trace.strings.at(op.algorithm), "RING");
      EXPECT_EQ(trace.strings.at(op.protocol), "LL");
      EXPECT_EQ(op.channels, 2u);
    }
    if (i > 0) {
      EXPECT_GT(op.group, rows.operations[i - 1].group);
      EXPECT_GE(op.start_ns, rows.operations[i - 1].start_ns);
    }
  }
  EXPECT_EQ(rows.kernels.size(), 6u);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 0u);
}

INSTANTIATE_TEST_SUITE_P(Nccl, EveryVersion, testing::Range(1, 7));

TEST(NcclPlugin, TheUsersPluginStays) {
  CaptureRun run;
  run.with("NCCL_PROFILER_PLUGIN", "none").run(std::string(TIDEMARK_NCCL_HOST) + " 2");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(run.output(), "rank 0 of 1, profiler v0\n");
  EXPECT_TRUE(read_nccl(run.traces().at(0)).operations.empty());
  bool said = false;
  const TraceContents trace = run.trace();
  for (const Health& row : trace.health) {
    said |= row.kind == HealthKind::kSourceMissing &&
            trace.strings.at(row.detail).find("NCCL_PROFILER_PLUGIN") != std::string::npos;
  }
  EXPECT_TRUE(said) << "the trace says why it has no operations";
}

TEST(NcclPlugin, CanBeTurnedOff) {
  CaptureRun run;
  run.with("TIDEMARK_NCCL", "0").run(std::string(TIDEMARK_NCCL_HOST) + " 2");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(run.output(), "rank 0 of 1, profiler v0\n");
  EXPECT_TRUE(read_nccl(run.traces().at(0)).operations.empty());
}

// Loaded only by NCCL, in a process where nothing is recorded.
TEST(NcclPlugin, DoesNothingWithoutRecording) {
  CaptureRun run;
  run.with("CUDA_INJECTION64_PATH", "")
      .with("NCCL_PROFILER_PLUGIN", TIDEMARK_INJECTOR)
      .run(std::string(TIDEMARK_NCCL_HOST) + " 2");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(run.output(), "rank 0 of 1, profiler v6\n");
  EXPECT_TRUE(run.traces().empty());
}

// NCCL's own buffers belong to NCCL; those from ncclMemAlloc belong to the program.
TEST(NcclPlugin, MemoryHasItsOwner) {
  CaptureRun run;
  run.run(std::string(TIDEMARK_NCCL_HOST) + " 1");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  const TraceContents trace = run.trace();
  std::map<std::string, uint64_t> bytes;
  for (const DriverEvent& event : trace.driver_events) {
    if (event.operation != DriverOperation::kAllocate || event.kind != MemoryKind::kDevice)
      continue;
    bytes[event.owner != 0 ? trace.strings.at(event.owner) : ""] += event.size_bytes;
  }
  EXPECT_EQ(bytes["nccl"], uint64_t{10} << 20);
  EXPECT_EQ(bytes["nccl.user"], uint64_t{3} << 20);
  EXPECT_EQ(bytes["program"], uint64_t{4} << 20);
}

// A rank whose peer never comes hangs in its first collective, before NCCL has enqueued it: the
// trace of the killed process still shows where it waited.
TEST(NcclPlugin, WritesDownACallThatWaits) {
  CaptureRun run;
  ScratchDirectory meeting;
  run.with("RANK", "0")
      .with("WORLD_SIZE", "2")
      .with("SIMGPU_NCCL_DIR", meeting.path())
      .run("timeout -s TERM 4 " TIDEMARK_NCCL_HOST " 1");
  ASSERT_EQ(run.exit_status(), 124);
  ASSERT_EQ(run.rings().size(), 1u) << "killed: its ring is left to recovery";
  const Result<RecoveryReport> recovered = recover_file(run.traces().at(0), RecoveryBy::kReader);
  ASSERT_TRUE(recovered) << recovered.error().message;
  ASSERT_EQ(recovered->outcome, RecoveryOutcome::kRecovered);
  const NcclRows rows = read_nccl(run.traces().at(0));
  ASSERT_EQ(rows.operations.size(), 1u);
  EXPECT_EQ(rows.operations[0].communicator, kHash);
  EXPECT_EQ(rows.operations[0].group, 0u) << "never enqueued";
  EXPECT_EQ(rows.operations[0].duration_ns, 0u);
}

}  // namespace
}  // namespace tidemark::test
