// Rank files of a synthetic job, for tests: collectives that end together, memory that differs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/write/trace_writer.h"

namespace tidemark::test {

inline constexpr int64_t kJobStart = 1'700'000'000'000'000'000;
inline constexpr uint64_t kWorld = 0x77;  // the communicator of all ranks

struct RankTrace {
  int64_t rank = 0;
  uint64_t world_size = 4;
  std::string host = "node";  // followed by its rank
  std::string job = "job-1";
  int64_t start_ns = kJobStart;
  uint64_t collectives = 400;
  int64_t period_ns = 50'000'000;  // between two collectives
  int64_t jitter_ns = 10'000;      // spread of the ends of one collective
  double far_share = 0;            // fraction of ends that are late by milliseconds
  bool kernels_tell = true;        // false: no kernels, so the ends are unknown
  uint64_t communicator = kWorld;
  uint64_t events = 100;              // of the framework
  uint64_t keeps_bytes = 0;           // more than the others, from the middle of the job on
  uint64_t stops_after = UINT64_MAX;  // its last collective, if the rank dies early
  std::vector<uint64_t> nccl_bytes;   // driver allocations, one after every other collective
  uint64_t nccl_user_bytes = 0;
  uint64_t nccl_host_bytes = 0;
  uint64_t seed = 1;
};

class RankTraceWriter {
 public:
  explicit RankTraceWriter(const RankTrace& made) : made_(made), rng_(made.seed * 977 + 5) {}

  bool write(const std::string& path) {
    Result<OutputFile> file = OutputFile::create(path);
    if (!file) return false;
    FdSink sink(file->fd());
    TraceWriter writer(sink);
    writer_ = &writer;
    put_process();
    for (uint64_t i = 0; i < made_.collectives; ++i) {
      if (i > made_.stops_after) break;
      put_collective(i);
    }
    put_memory();
    put_nccl_memory();
    return writer.finish() && file->commit().ok();
  }

 private:
  uint32_t string(const std::string& text) {
    writer_->append_string(++strings_, text);
    return strings_;
  }

  void put_process() {
    Process p{};
    p.start_ns = made_.start_ns;
    p.pid = 1000 + static_cast<uint64_t>(made_.rank);
    p.rank = made_.rank;
    p.local_rank = 0;
    p.world_size = made_.world_size;
    p.host = string(made_.host + std::to_string(made_.rank));
    p.job = string(made_.job);
    p.command = string("python train.py");
    p.source = Source::kSynthetic;
    writer_->append(p);
    function_ = string("AllReduce");
    kernel_ =
        string("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
    other_ = string("gemm");
    Communicator c{};
    c.time_ns = made_.start_ns;
    c.id = made_.communicator;
    c.ranks = made_.world_size;
    c.rank = made_.rank;
    c.name = string("world");
    writer_->append(c);
  }

  void put_kernel(uint32_t name, int64_t end_ns, uint64_t duration_ns) {
    Kernel k{};
    k.start_ns = end_ns - static_cast<int64_t>(duration_ns);
    k.duration_ns = duration_ns;
    k.name = name;
    k.correlation = ++correlation_;
    writer_->append(k);
  }

  void put_collective(uint64_t i) {
    const int64_t together = made_.start_ns + static_cast<int64_t>(i + 1) * made_.period_ns;
    std::uniform_real_distribution<double> share(0, 1);
    int64_t end =
        together + static_cast<int64_t>(share(rng_) * static_cast<double>(made_.jitter_ns));
    if (share(rng_) < made_.far_share) end += 1'000'000 + static_cast<int64_t>(share(rng_) * 9e6);
    NcclOperation op{};
    // Enqueued long before it runs, at a different instant on each rank.
    op.start_ns = together - 3'000'000 - static_cast<int64_t>(share(rng_) * 2e6);
    op.duration_ns = 20'000;
    op.communicator = made_.communicator;
    op.sequence = i;
    op.count = 1000;
    op.size_bytes = 4000;
    op.function = function_;
    op.kind = NcclKind::kCollective;
    op.group = i + 1;
    writer_->append(op);
    if (!made_.kernels_tell) return;
    put_kernel(other_, end - 1'500'000, 100'000);
    if (i != made_.stops_after) put_kernel(kernel_, end, 500'000);
  }

  void put_memory() {
    const int64_t span = static_cast<int64_t>(made_.collectives + 1) * made_.period_ns;
    const auto at = [&](uint64_t i, uint64_t of) {
      return made_.start_ns + span / static_cast<int64_t>(of + 1) * static_cast<int64_t>(i + 1);
    };
    Frame frame{};
    frame.id = 1;
    frame.function = string("forward");
    frame.file = string("train.py");
    frame.line = 10;
    frame.kind = FrameKind::kPython;
    writer_->append(frame);
    frame.id = 2;
    frame.function = string("keep_for_later");
    frame.line = 99;
    writer_->append(frame);
    writer_->append(Stack{1, 0, 1});
    writer_->append(Stack{2, 0, 2});
    FrameworkEvent e{};
    e.time_ns = made_.start_ns;
    e.action = FrameworkAction::kSegmentAlloc;
    e.address = 0x7f0000000000;
    e.size_bytes = uint64_t{1} << 30;
    writer_->append(e);
    for (uint64_t i = 0; i < made_.events; ++i) {
      FrameworkEvent event{};
      event.time_ns = at(i, made_.events);
      const bool extra = made_.keeps_bytes != 0 && i == made_.events / 2;
      event.action = FrameworkAction::kAlloc;
      event.size_bytes = extra ? made_.keeps_bytes : 512;
      event.address = extra ? 0x7f0020000000 : 0x7f0000000000 + i * 512;
      event.stack = extra ? 2 : 1;
      writer_->append(event);
    }
  }

  void put_driver(int64_t time_ns, uint64_t bytes, uint32_t owner, MemoryKind kind) {
    DriverEvent e{};
    e.time_ns = time_ns;
    e.address = 0x7e0000000000 + (++allocations_ << 32);
    e.size_bytes = bytes;
    e.owner = owner;
    e.operation = DriverOperation::kAllocate;
    e.kind = kind;
    writer_->append(e);
  }

  void put_nccl_memory() {
    const uint32_t nccl = string("nccl");
    for (size_t i = 0; i < made_.nccl_bytes.size(); ++i) {
      const int64_t time = made_.start_ns + static_cast<int64_t>(2 * i + 1) * made_.period_ns;
      put_driver(time + 1, made_.nccl_bytes[i], nccl, MemoryKind::kDevice);
    }
    if (made_.nccl_user_bytes != 0) {
      put_driver(made_.start_ns + 1, made_.nccl_user_bytes, string("nccl.user"),
                 MemoryKind::kDevice);
    }
    if (made_.nccl_host_bytes != 0) {
      put_driver(made_.start_ns + 1, made_.nccl_host_bytes, nccl, MemoryKind::kPinned);
    }
  }

  RankTrace made_;
  uint64_t allocations_ = 0;
  std::mt19937_64 rng_;
  TraceWriter* writer_ = nullptr;
  uint32_t strings_ = 0;
  uint32_t function_ = 0;
  uint32_t kernel_ = 0;
  uint32_t other_ = 0;
  uint32_t correlation_ = 0;
};

inline bool write_rank_trace(const RankTrace& made, const std::string& path) {
  return RankTraceWriter(made).write(path);
}

}  // namespace tidemark::test
