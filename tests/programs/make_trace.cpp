// Writes a synthetic job of two ranks that uses every table an export reads: two hosts that share a
// pid, kernels that overlap and come out of order, marks that cross, collectives on both ranks.
//
//   make_trace DIRECTORY
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "collector/snapshot/name_writer.h"
#include "proto/write/trace_writer.h"

namespace tidemark {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;
constexpr int64_t kMicro = 1000;
constexpr uint64_t kBase = 0x7f0000000000;

class RankTrace {
 public:
  RankTrace(TraceWriter& writer, int64_t rank) : writer_(writer), names_(writer), rank_(rank) {}

  void write() {
    write_identity();
    write_memory();
    write_kernels();
    write_nccl();
    write_marks();
    write_driver();
  }

 private:
  // Rank 1's clock is half a millisecond slow.
  int64_t at(int64_t micros) const { return kStart + (micros - (rank_ == 1 ? 500 : 0)) * kMicro; }

  void write_identity() {
    Process p{};
    p.start_ns = at(0);
    p.pid = 4711;  // the same on both hosts
    p.rank = rank_;
    p.local_rank = 0;
    p.world_size = 2;
    p.host = names_.string(rank_ == 0 ? "node-a" : "node-b");
    p.command = names_.string("python train.py");
    p.framework = names_.string("torch 2.11.0");
    p.source = Source::kSynthetic;
    writer_.append(p);
    Device d{};
    d.total_bytes = uint64_t{80} << 30;
    d.name = names_.string("Made-up GPU");
    d.uuid = names_.string("GPU-" + std::to_string(rank_));
    writer_.append(d);
    if (rank_ == 1) {
      Alignment a{};
      a.reference_ns = at(0);
      a.offset_ns = 500 * kMicro;
      a.method = AlignmentMethod::kCollectives;
      writer_.append(a);
    }
  }

  uint32_t stack(const std::string& function, int64_t line) {
    Frame outer{};
    outer.function = names_.string("main");
    outer.file = names_.string("train.py");
    outer.line = 10;
    outer.kind = FrameKind::kPython;
    Frame inner = outer;
    inner.function = names_.string(function);
    inner.line = line;
    return names_.stack(names_.stack(0, names_.frame(outer)), names_.frame(inner));
  }

  void event(int64_t micros, FrameworkAction action, uint64_t address, uint64_t size,
             uint32_t stack_id = 0) {
    FrameworkEvent e{};
    e.time_ns = at(micros);
    e.action = action;
    e.address = address;
    e.size_bytes = size;
    e.stack = stack_id;
    e.category = Category::kActivation;
    writer_.append(e);
  }

  // Each step allocates blocks of one segment and frees most of them; then an error.
  void write_memory() {
    std::mt19937_64 random(static_cast<uint64_t>(rank_) + 1);
    constexpr uint64_t kSegment = 512 << 20;
    event(0, FrameworkAction::kSegmentAlloc, kBase, kSegment, stack("load", 5));
    int64_t now = 1;
    for (int step = 0; step < 20; ++step) {
      std::vector<std::pair<uint64_t, uint64_t>> taken;
      uint64_t address = kBase;
      for (int i = 0; i < 30; ++i) {
        const uint64_t size = (1 + random() % 16) << 20;
        event(now, FrameworkAction::kAlloc, address, size - random() % 512,
              stack("layer" + std::to_string(i % 5), 20 + i));
        taken.emplace_back(address, size);
        address += size;
        now += static_cast<int64_t>(random() % 3);
      }
      for (const auto& [where, size] : taken) {
        event(now, FrameworkAction::kFreeRequested, where, size);
        event(now, FrameworkAction::kFreeCompleted, where, size);
        now += static_cast<int64_t>(random() % 2);
      }
      now += 50;
    }
    event(now, FrameworkAction::kAlloc, kBase, 64 << 20, stack("kept", 99));
    event(now + 1, FrameworkAction::kOutOfMemory, 3 << 20, 600 << 20, stack("too_much", 77));
    end_ = now + 2;
  }

  // Two streams; on the second, kernels overlap. The later half is written first.
  void write_kernels() {
    const uint32_t gemm = names_.string("gemm");
    const uint32_t relu = names_.string("relu<float>");
    for (const int half : {1, 0}) {
      for (int i = half * 50; i < half * 50 + 50; ++i) {
        Kernel k{};
        k.start_ns = at(i * 10);
        k.duration_ns = 8 * kMicro;
        k.stream = 7;
        k.name = gemm;
        writer_.append(k);
        k.stream = 13;
        k.name = relu;
        k.duration_ns = 15 * kMicro;
        writer_.append(k);
      }
      writer_.flush();
    }
    Copy c{};
    c.start_ns = at(3);
    c.duration_ns = 4 * kMicro;
    c.size_bytes = 1 << 20;
    c.stream = 7;
    c.kind = CopyKind::kHostToDevice;
    writer_.append(c);
  }

  void write_nccl() {
    Communicator c{};
    c.time_ns = at(0);
    c.id = 0xabcdef;
    c.ranks = 2;
    c.rank = rank_;
    c.name = names_.string("default");
    writer_.append(c);
    for (uint64_t i = 0; i < 5; ++i) {
      NcclOperation op{};
      op.start_ns = at(static_cast<int64_t>(i) * 100 + 10);
      op.duration_ns = 5 * kMicro;
      op.gpu_start_ns = op.start_ns + 20 * kMicro;
      op.gpu_duration_ns = 40 * kMicro;
      op.communicator = 0xabcdef;
      op.sequence = i;
      op.count = 1024;
      op.size_bytes = 4096;
      op.function = names_.string("AllReduce");
      op.datatype = names_.string("ncclFloat32");
      op.algorithm = names_.string("RING");
      op.protocol = names_.string("LL");
      op.kind = NcclKind::kCollective;
      writer_.append(op);
    }
  }

  void mark(int64_t micros, MarkPhase phase, const std::string& name, MarkKind kind,
            uint64_t correlation = 0) {
    Mark m{};
    m.time_ns = at(micros);
    m.phase = phase;
    m.kind = kind;
    m.name = names_.string(name);
    m.thread = kind == MarkKind::kNvtx ? 42 : 0;
    m.correlation = correlation;
    writer_.append(m);
  }

  void write_marks() {
    for (int step = 0; step < 3; ++step) {
      const std::string name = "step " + std::to_string(step);
      mark(step * 100, MarkPhase::kBegin, name, MarkKind::kIteration);
      mark(step * 100 + 100, MarkPhase::kEnd, name, MarkKind::kIteration);
    }
    mark(10, MarkPhase::kBegin, "forward", MarkKind::kNvtx);
    mark(20, MarkPhase::kBegin, "layer", MarkKind::kNvtx);
    mark(30, MarkPhase::kEnd, "layer", MarkKind::kNvtx);
    mark(40, MarkPhase::kEnd, "forward", MarkKind::kNvtx);
    mark(50, MarkPhase::kBegin, "crossing a", MarkKind::kNvtx, 1);
    mark(60, MarkPhase::kBegin, "crossing b", MarkKind::kNvtx, 2);
    mark(70, MarkPhase::kEnd, "crossing a", MarkKind::kNvtx, 1);
    mark(80, MarkPhase::kEnd, "crossing b", MarkKind::kNvtx, 2);
    mark(85, MarkPhase::kInstant, "here", MarkKind::kNvtx);
    mark(90, MarkPhase::kBegin, "killed inside", MarkKind::kNvtx);
  }

  void write_driver() {
    DriverEvent e{};
    e.time_ns = at(0);
    e.operation = DriverOperation::kAllocate;
    e.kind = MemoryKind::kDevice;
    e.address = 0x7e0000000000;
    e.size_bytes = 32 << 20;
    e.owner = names_.string("nccl");
    writer_.append(e);
    for (int i = 0; i < 10; ++i) {
      Counter c{};
      c.time_ns = at(i * 100);
      c.kind = CounterKind::kDeviceUsed;
      c.value = (uint64_t{1} << 30) + static_cast<uint64_t>(i);
      writer_.append(c);
    }
  }

  TraceWriter& writer_;
  NameWriter names_;
  int64_t rank_;
  int64_t end_ = 0;
};

bool write_rank(const std::string& path, int64_t rank) {
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR, 0666);
  if (fd < 0) return false;
  FdSink sink(fd);
  TraceWriter writer(sink);
  RankTrace(writer, rank).write();
  const bool whole = writer.finish();
  ::close(fd);
  return whole;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_trace DIRECTORY\n", stderr);
    return 2;
  }
  const std::string directory = argv[1];
  const bool good = tidemark::write_rank(directory + "/rank0.tmk", 0) &&
                    tidemark::write_rank(directory + "/rank1.tmk", 1);
  if (!good) std::perror(argv[1]);
  return good ? 0 : 1;
}
