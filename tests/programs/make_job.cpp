// Writes a synthetic job of any number of ranks: one trace per rank, eight ranks per host.
//
//   make_job DIRECTORY RANKS EVENTS [GUILTY [STUCK [PER_HOST]]]
//
// All ranks run the same steps (bench/synthetic_stream.h), whose blocks are encoded once and copied.
// Each has its own identity, card, clock, readings and collectives. Rank GUILTY keeps 2 GiB more
// than the others, on a line of its own; rank STUCK does not call the last collective.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "bench/synthetic_stream.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"

namespace {

using namespace tidemark;
namespace fs = std::filesystem;

constexpr int64_t kStart = 1'700'000'000'000'000'000;
constexpr uint64_t kCollectives = 600;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint32_t kOwnStrings = 16;  // ids up to here differ between ranks
constexpr uint32_t kGuiltyStack = SyntheticStream::kStacks + 1;

struct Job {
  fs::path folder;
  int64_t ranks = 0;
  uint64_t events = 0;
  int64_t guilty = -1;
  int64_t stuck = -1;
  int64_t per_host = 8;
  int64_t length_ns = 0;
};

[[noreturn]] void die(const std::string& why) {
  fmt::print(stderr, "make_job: {}\n", why);
  std::exit(1);
}

FrameworkEvent segment(int64_t time_ns, uint64_t address, uint64_t bytes) {
  FrameworkEvent e{};
  e.time_ns = time_ns;
  e.action = FrameworkAction::kSegmentAlloc;
  e.address = address;
  e.size_bytes = bytes;
  return e;
}

// What all ranks have in common.
void write_template(const std::string& path, Job& job) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) die(file.error().message);
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  uint32_t string = kOwnStrings;
  const auto text = [&](const std::string& value) {
    writer.append_string(++string, value);
    return string;
  };
  const uint32_t model_file = text("model.py");
  for (uint32_t id = 1; id <= SyntheticStream::kStacks; ++id) {
    Frame frame{};
    frame.id = id;
    frame.function = text(fmt::format("layer{}", id));
    frame.file = model_file;
    frame.line = 100 + id;
    frame.kind = FrameKind::kPython;
    writer.append(frame);
    writer.append(Stack{id, 0, id});
  }
  SyntheticStream stream;
  int64_t last = kStart;
  for (uint64_t i = 0; i < job.events; ++i) {
    const FrameworkEvent event = stream.next();
    last = event.time_ns;
    writer.append(event);
  }
  job.length_ns = last - kStart;
  if (!writer.finish() || !file->commit()) die(path + ": cannot write");
}

void write_own_part(TraceWriter& writer, const Job& job, int64_t rank) {
  const int64_t host = rank / job.per_host;
  writer.append_string(1, fmt::format("node{}", host));
  writer.append_string(2, "job");
  writer.append_string(3, "AllReduce");
  writer.append_string(4, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  writer.append_string(5, fmt::format("GPU-{:08}", rank));
  writer.append_string(6, "Made-up GPU");
  writer.append_string(7, "world");
  Process process{};
  process.start_ns = kStart;
  process.pid = 1000 + static_cast<uint64_t>(rank);
  process.rank = rank;
  process.local_rank = rank % job.per_host;
  process.world_size = static_cast<uint64_t>(job.ranks);
  process.host = 1;
  process.job = 2;
  process.source = Source::kCapture;
  writer.append(process);
  Device device{};
  device.total_bytes = 80 * kGiB;
  device.name = 6;
  device.uuid = 5;
  writer.append(device);
  Communicator world{};
  world.time_ns = kStart;
  world.id = 7;
  world.ranks = static_cast<uint64_t>(job.ranks);
  world.rank = rank;
  world.name = 7;
  writer.append(world);
  const int64_t step = std::max<int64_t>(1, job.length_ns / static_cast<int64_t>(kCollectives));
  for (uint64_t i = 0; i < kCollectives; ++i) {
    const bool last = i + 1 == kCollectives && job.stuck >= 0;
    if (last && rank == job.stuck) break;
    NcclOperation op{};
    op.start_ns = kStart + static_cast<int64_t>(i) * step;
    op.duration_ns = 1000;
    op.communicator = 7;
    op.sequence = i;
    op.group = i + 1;
    op.function = 3;
    op.size_bytes = 1 << 20;
    op.kind = NcclKind::kCollective;
    writer.append(op);
    if (last) break;  // it waits
    Kernel kernel{};
    kernel.start_ns = op.start_ns + step / 10;
    const auto varies = (i * 7919 + static_cast<uint64_t>(rank) * 104'729) % 1000;
    kernel.duration_ns = static_cast<uint64_t>(step) / 20 + varies;
    kernel.name = 4;
    kernel.correlation = static_cast<uint32_t>(i + 1);
    writer.append(kernel);
  }
  for (int64_t i = 0; i < 100; ++i) {
    Counter used{};
    used.time_ns = kStart + job.length_ns / 100 * i;
    used.kind = CounterKind::kDeviceUsed;
    used.value = 26 * kGiB;
    writer.append(used);
  }
  if (rank != job.guilty) return;
  writer.append_string(8, "keep_for_later");
  writer.append_string(9, "train.py");
  Frame frame{};
  frame.id = kGuiltyStack;
  frame.function = 8;
  frame.file = 9;
  frame.line = 99;
  frame.kind = FrameKind::kPython;
  writer.append(frame);
  writer.append(Stack{kGuiltyStack, 0, kGuiltyStack});
  writer.append(segment(kStart + 100, 0x7d0000000000, 2 * kGiB));
  FrameworkEvent kept = segment(kStart + 200, 0x7d0000000000, 2 * kGiB);
  kept.action = FrameworkAction::kAlloc;
  kept.stack = kGuiltyStack;
  writer.append(kept);
}

void write_rank(const Job& job, const TraceReader& common, BlockDecoder& decoder, int64_t rank) {
  const std::string path = job.folder / fmt::format("rank{:05}.tmk", rank);
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) die(file.error().message);
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  write_own_part(writer, job, rank);
  writer.flush();
  for (const BlockRef& ref : common.blocks()) {
    FrameHeader header;
    const auto payload = decoder.payload(ref, header);
    writer.copy_frame(header, payload, 1);
  }
  if (!writer.finish() || !file->commit()) die(path + ": cannot write");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) die("usage: make_job DIRECTORY RANKS EVENTS [GUILTY [STUCK [PER_HOST]]]");
  Job job;
  job.folder = argv[1];
  job.ranks = std::atoll(argv[2]);
  job.events = std::strtoull(argv[3], nullptr, 10);
  if (argc > 4) job.guilty = std::atoll(argv[4]);
  if (argc > 5) job.stuck = std::atoll(argv[5]);
  if (argc > 6) job.per_host = std::atoll(argv[6]);
  fs::create_directories(job.folder);
  const std::string common = job.folder / ".template";
  write_template(common, job);
  const Result<TraceReader> reader = TraceReader::open(common);
  if (!reader) die(reader.error().message);
  BlockDecoder decoder(*reader);
  for (int64_t rank = 0; rank < job.ranks; ++rank) write_rank(job, *reader, decoder, rank);
  fs::remove(common);
  return 0;
}
