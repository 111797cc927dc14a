// Measures how long a large trace takes to open: the first load, which builds the index, and a
// later one that uses it, each up to the first answer (peaks, curves, the state at the peak). The
// limit to compare with is printed first: decoding all rows of the trace and nothing else. Each
// load runs in its own process, so that its peak memory can be measured.
//
//   index_bench [MILLIONS_OF_EVENTS, default 10] [DIRECTORY for the trace and its index]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/history/state_index.h"
#include "analysis/load/trace_index.h"
#include "analysis/report/report.h"
#include "bench/synthetic_stream.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/write/trace_writer.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Cost {
  double cpu_s = 0;
  double peak_mib = 0;
};

Cost cost_so_far() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime),
          static_cast<double>(usage.ru_maxrss) / 1024};
}

bool write_trace(const std::string& path, uint64_t events) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return false;
  FdSink sink(file->fd());
  TraceWriter writer(sink);
  SyntheticStream stream;
  for (uint64_t i = 0; i < events; ++i) writer.append(stream.next());
  return writer.finish() && file->commit().ok();
}

// Runs one measurement in its own process.
int apart(const std::function<int()>& measure) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const int result = measure();
    std::fflush(stdout);
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int plain_decode(const TraceReader& reader) {
  const auto start = Clock::now();
  BlockDecoder decoder(reader);
  uint64_t rows = 0;
  for_each_block<FrameworkEvent>(reader, decoder, 0,
                                 [&](auto block, const BlockRef&) { rows += block.size(); });
  const double s = seconds_since(start);
  fmt::print("{:<22} {:8.2f} s  {:6.1f} M rows/s, {:.0f} MiB decoded\n", "plain decode", s,
             static_cast<double>(rows) / s / 1e6,
             static_cast<double>(rows * sizeof(FrameworkEvent)) / (1 << 20));
  return 0;
}

// Everything a first picture shows.
uint64_t first_answer(const AllocationHistory& m) {
  const MinMaxPyramid curves(m);
  uint64_t sum = m.allocated_peak.bytes + m.reserved_peak.bytes;
  constexpr uint32_t kPixels = 2000;
  for (uint32_t i = 0; i < kPixels; ++i) {
    const auto edge = [&](uint32_t p) {
      return static_cast<uint32_t>(uint64_t{m.event_count()} * p / kPixels);
    };
    if (edge(i) < edge(i + 1)) sum += curves.extremes(edge(i), edge(i + 1)).max[0];
  }
  return sum + state_after(m, m.allocated_peak.event).live.size();
}

int load_and_answer(const std::string& path, const IndexOptions& options, const char* name,
                    bool diagnose) {
  const auto start = Clock::now();
  std::vector<TraceReader> readers;
  Result<TraceReader> reader = TraceReader::open(path);
  if (!reader) return 1;
  readers.push_back(std::move(*reader));
  const Result<TraceModel> model = load_trace(readers, {}, options);
  if (!model || model->processes.empty() || model->processes[0].framework.empty()) return 1;
  const AllocationHistory& m = model->processes[0].framework[0];
  const double loaded = seconds_since(start);
  const uint64_t answer = first_answer(m);
  const double answered = seconds_since(start);
  Cost cost = cost_so_far();
  fmt::print(
      "{:<22} {:8.2f} s to load, {:.3f} s to the first answer, {:.2f} s CPU, "
      "peak {:.0f} MiB (answer {:x})\n",
      name, loaded, answered, cost.cpu_s, cost.peak_mib, answer & 0xffff);
  std::mt19937_64 random(3);
  std::vector<double> times;
  for (int i = 0; i < 1000; ++i) {
    const int64_t span = m.time_ns.back() - m.time_ns.front();
    const int64_t at =
        m.time_ns.front() + static_cast<int64_t>(random() % static_cast<uint64_t>(span));
    const auto begin = Clock::now();
    uint32_t event = 0;
    if (m.event_at(at, event)) state_after(m, event);
    times.push_back(seconds_since(begin) * 1e3);
  }
  std::sort(times.begin(), times.end());
  fmt::print("{:<22} p50 {:.3f} ms, p99 {:.3f} ms\n", "  state at 1,000 times", times[500],
             times[990]);
  if (!diagnose) return 0;
  const auto begin = Clock::now();
  const double cpu_before = cost_so_far().cpu_s;
  const Result<Report> report = make_report(*model, {});
  if (!report) return 1;
  cost = cost_so_far();
  fmt::print("{:<22} {:8.2f} s, {:.2f} s CPU, peak {:.0f} MiB\n", "  report", seconds_since(begin),
             cost.cpu_s - cpu_before, cost.peak_mib);
  return 0;
}

int run(uint64_t events, const std::string& directory) {
  fs::create_directories(directory);
  const std::string path = directory + "/index_bench.tmk";
  const auto start = Clock::now();
  if (!write_trace(path, events)) return 1;
  fmt::print("{} events written in {:.1f} s: {:.1f} MiB\n", events, seconds_since(start),
             static_cast<double>(fs::file_size(path)) / (1 << 20));
  IndexOptions options;
  options.directory = directory + "/index";
  options.from_events = 1;
  fs::remove_all(options.directory);
  int failed = apart([&] {
    const Result<TraceReader> reader = TraceReader::open(path);
    return reader ? plain_decode(*reader) : 1;
  });
  failed += apart([&] { return load_and_answer(path, options, "first load", false); });
  uint64_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(options.directory)) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  fmt::print("index of {:.1f} MiB, {:.1f} bytes per event\n",
             static_cast<double>(bytes) / (1 << 20),
             static_cast<double>(bytes) / static_cast<double>(events));
  failed += apart([&] { return load_and_answer(path, options, "later, with the index", true); });
  fs::remove_all(options.directory);
  fs::remove(path);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 10;
  const std::string directory =
      argc > 2 ? argv[2] : (std::filesystem::temp_directory_path() / "tidemark-bench").string();
  return tidemark::run(static_cast<uint64_t>(millions * 1e6), directory);
}
