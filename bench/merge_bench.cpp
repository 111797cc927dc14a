// Measures the merge of synthetic jobs of 1, 16, 256 and 1,024 ranks: events per second and peak
// memory.
//
//   merge_bench [DIRECTORY] [EVENTS_PER_RANK] [MOST_RANKS] [THREADS]
//
// One rank's events are generated and encoded once; every rank file gets its own names and a copy
// of those blocks. Each size is merged in its own process, so that its peak memory can be measured.
// The limit of a merge is a plain copy: the same files are written one after another, before and
// after the merge, and the column "x copy" gives the merge's time as a multiple of theirs. Once the
// job outgrows the page cache, both wait for the disk; the CPU time per event shows what the merge
// itself costs. The rank files of each size are overwritten by the next size, and merged files are
// removed.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/synthetic_stream.h"
#include "collector/job/merge.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"

namespace {

using namespace tidemark;
namespace fs = std::filesystem;

constexpr int64_t kStart = 1'700'000'000'000'000'000;
constexpr uint64_t kCollectives = 2000;

[[noreturn]] void die(const std::string& why) {
  fmt::print(stderr, "merge_bench: {}\n", why);
  std::exit(1);
}

void write_template(const std::string& path, uint64_t events) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) die(file.error().message);
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  SyntheticStream stream;
  for (uint64_t i = 0; i < events; ++i) writer.append(stream.next());
  if (!writer.finish() || !file->commit()) die(path + ": cannot write");
}

// The part that differs between ranks: their identity, and collectives to align the clocks by.
void write_own_part(TraceWriter& writer, int64_t rank, uint64_t ranks) {
  const int64_t ahead = rank * 1'000'003 % 10'000'019;  // how far this rank's clock is ahead
  writer.append_string(1, fmt::format("node{}", rank / 8));
  writer.append_string(2, "job");
  writer.append_string(3, "AllReduce");
  writer.append_string(4, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  Process process{};
  process.start_ns = kStart + ahead;
  process.pid = 1000 + static_cast<uint64_t>(rank);
  process.rank = rank;
  process.world_size = ranks;
  process.host = 1;
  process.job = 2;
  process.source = Source::kSynthetic;
  writer.append(process);
  for (uint64_t i = 0; i < kCollectives; ++i) {
    NcclOperation op{};
    op.start_ns = kStart + ahead + static_cast<int64_t>(i) * 1'000'000;
    op.communicator = 7;
    op.sequence = i;
    op.group = i + 1;
    op.function = 3;
    op.kind = NcclKind::kCollective;
    writer.append(op);
    Kernel kernel{};
    kernel.start_ns = op.start_ns + 100'000;
    kernel.duration_ns = 50'000 + (i * 7919 + static_cast<uint64_t>(rank) * 104'729) % 5'000;
    kernel.name = 4;
    kernel.correlation = static_cast<uint32_t>(i + 1);
    writer.append(kernel);
  }
}

void write_rank(const std::string& path, const TraceReader& events, BlockDecoder& decoder,
                int64_t rank, uint64_t ranks) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) die(file.error().message);
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  write_own_part(writer, rank, ranks);
  writer.flush();
  for (const BlockRef& ref : events.blocks()) {
    FrameHeader header;
    const auto payload = decoder.payload(ref, header);
    writer.copy_frame(header, payload, 1);
  }
  if (!writer.finish() || !file->commit()) die(path + ": cannot write");
}

struct Measured {
  double seconds = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t residual_ns = 0;
  size_t processes = 0;
};

Measured merge(const std::string& folder, const std::string& output, unsigned threads) {
  MergeOptions options;
  options.inputs = {folder};
  options.output = output;
  options.threads = threads;
  const auto start = std::chrono::steady_clock::now();
  const Result<MergeReport> report = merge_traces(options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!report) die(report.error().message);
  for (const std::string& note : report->notes) die("unexpected note: " + note);
  return {took.count(), report->rows, report->bytes, report->residual_ns, report->processes};
}

// Seconds to write the files one after another, the least a merge must do.
double copy_plainly(const fs::path& folder, const std::string& output) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<char> buffer(1 << 20);
  const auto start = std::chrono::steady_clock::now();
  std::FILE* out = std::fopen(output.c_str(), "wb");
  if (out == nullptr) die(output + ": cannot write");
  std::setvbuf(out, nullptr, _IONBF, 0);
  for (const std::string& file : files) {
    std::FILE* in = std::fopen(file.c_str(), "rb");
    if (in == nullptr) die(file + ": cannot read");
    std::setvbuf(in, nullptr, _IONBF, 0);
    for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), in)) != 0;) {
      if (std::fwrite(buffer.data(), 1, got, out) != got) die(output + ": cannot write");
    }
    std::fclose(in);
  }
  std::fclose(out);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fs::remove(output);
  return took.count();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Merges in a child process: wait4 then reports the peak memory of the merge alone.
void measure(const std::string& folder, const std::string& output, unsigned threads) {
  const double copy_before = copy_plainly(folder, output);
  int ends[2];
  if (::pipe(ends) != 0) die("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    const Measured m = merge(folder, output, threads);
    const bool told = ::write(ends[1], &m, sizeof m) == sizeof m;
    std::_Exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  Measured m;
  if (::read(ends[0], &m, sizeof m) != sizeof m) die("the merge failed");
  ::close(ends[0]);
  int status = 0;
  struct rusage usage {};
  ::wait4(child, &status, 0, &usage);
  fs::remove(output);
  const double copy = (copy_before + copy_plainly(folder, output)) / 2;
  const double cpu = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  const auto rows = static_cast<double>(m.rows);
  fmt::print("{:>6} {:>14} {:>8.2f} {:>11.1f} {:>9.1f} {:>13.2f} {:>8.2f} {:>9.1f} {:>12.1f}\n",
             m.processes, m.rows, m.seconds, rows / m.seconds / 1e6,
             static_cast<double>(m.bytes) / m.seconds / 1e6, cpu / rows * 1e9, m.seconds / copy,
             static_cast<double>(usage.ru_maxrss) / 1024, static_cast<double>(m.residual_ns) / 1e3);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path base = argc > 1 ? argv[1] : fs::temp_directory_path();
  const uint64_t events = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000;
  const uint64_t most = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024;
  const auto threads = static_cast<unsigned>(argc > 4 ? std::atoi(argv[4]) : 2);
  const fs::path work = base / fmt::format("merge_bench-{}", ::getpid());
  fs::create_directories(work / "ranks");
  const std::string source = work / "template.tmk";
  write_template(source, events);
  const Result<TraceReader> reader = TraceReader::open(source);
  if (!reader) die(reader.error().message);
  const uint64_t needed = (fs::file_size(source) + 100'000) * 2 * most;
  if (fs::space(work).available < needed * 3 / 2) {
    fs::remove_all(work);
    die(fmt::format("{} needs {} MiB of free space", base.string(), needed * 3 / 2 >> 20));
  }
  BlockDecoder decoder(*reader);
  fmt::print("{} events per rank, {:.2f} bytes each, {} threads\n", events,
             static_cast<double>(fs::file_size(source)) / static_cast<double>(events), threads);
  fmt::print(
      " ranks           rows  seconds  M events/s      MB/s  cpu ns/event   x copy  peak MiB  "
      "residual us\n");
  for (const uint64_t ranks : {1U, 16U, 256U, 1024U}) {
    if (ranks > most) break;
    // Every file contains the size of the job, so all are written again.
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      write_rank(work / "ranks" / fmt::format("rank{}.tmk", rank), *reader, decoder,
                 static_cast<int64_t>(rank), ranks);
    }
    measure(work / "ranks", work / "job.tmk", threads);
  }
  fs::remove_all(work);
  return 0;
}
