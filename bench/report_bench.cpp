// Measures `tidemark report` on a synthetic run: seconds to load, diagnose and print, and peak
// memory. There is no peer; the limit is to read the trace and to copy a row of 32 bytes for each
// event.
//
// The run is one that tidemark recorded, or, with "snapshot", one that was imported: then its
// events are first undone from the state at the end.
//
//   report_bench [MILLIONS_OF_EVENTS, default 10] [snapshot]
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/report/report.h"
#include "bench/synthetic_stream.h"
#include "collector/snapshot/name_writer.h"
#include "export/report/report_json.h"
#include "export/report/report_text.h"
#include "proto/base/byte_sink.h"
#include "proto/write/trace_writer.h"

namespace tidemark {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Stacks like a training program's: a third in forward, a few in the optimizer, the rest in model
// code.
void write_stacks(TraceWriter& writer) {
  NameWriter names(writer);
  for (uint32_t i = 1; i <= SyntheticStream::kStacks; ++i) {
    Frame outer{};
    outer.function = names.string("train");
    outer.file = names.string("train.py");
    outer.line = static_cast<int64_t>(1 + i % 40);
    Frame inner{};
    inner.function = names.string(i % 3 == 0 ? "_call_impl" : "work");
    inner.file = names.string(i % 3 == 0   ? "torch/nn/modules/module.py"
                              : i % 7 == 0 ? "torch/optim/adam.py"
                                           : "model.py");
    inner.line = i;
    names.stack(names.stack(0, names.frame(outer)), names.frame(inner));
  }
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_to_read_and_copy(int fd, uint64_t bytes, uint64_t events) {
  constexpr size_t kRowBytes = 32;
  const auto start = Clock::now();
  std::vector<char> file(bytes);
  for (size_t at = 0; at < file.size();) {
    const ssize_t got = ::pread(fd, file.data() + at, file.size() - at, static_cast<off_t>(at));
    if (got <= 0) break;
    at += static_cast<size_t>(got);
  }
  const std::vector<char> rows(events * kRowBytes, file.empty() ? '\0' : file[0]);
  const std::vector<char> copy = rows;
  return copy.size() == rows.size() ? seconds_since(start) : 0;
}

int run(uint64_t events, Source source) {
  const int fd = ::memfd_create("report_bench", MFD_CLOEXEC);
  FdSink sink(fd);
  uint64_t bytes = 0;
  {
    TraceWriter writer(sink);
    Process process{};
    process.rank = -1;
    process.source = source;
    writer.append(process);
    write_stacks(writer);
    SyntheticStream stream;
    for (uint64_t i = 0; i < events; ++i) writer.append(stream.next());
    if (!writer.finish()) return 1;
    bytes = writer.bytes_written();
    fmt::print("{} events in {:.1f} MiB\n", events, static_cast<double>(bytes) / (1 << 20));
  }
  std::vector<TraceReader> readers;
  Result<TraceReader> reader = TraceReader::from_fd(fd, "synthetic");
  if (!reader) return 1;
  readers.push_back(std::move(*reader));
  const double cpu_before = cpu_seconds();
  const auto start = Clock::now();
  const Result<TraceModel> model = load_trace(readers);
  if (!model) return 1;
  const double loaded = seconds_since(start);
  const Result<Report> report = make_report(*model, {});
  if (!report) return 1;
  const double reported = seconds_since(start);
  const std::string text = report_as_text(*report, {});
  const std::string json = report_as_json(*report);
  const double total = seconds_since(start);
  fmt::print("load {:.2f} s, diagnose {:.2f} s, print {:.2f} s\n", loaded, reported - loaded,
             total - reported);
  fmt::print("total {:.2f} s, {:.2f} s CPU: {:.1f} M events/s\n", total, cpu_seconds() - cpu_before,
             static_cast<double>(events) / total / 1e6);
  fmt::print("steps {}, findings {}, peak memory {:.0f} MiB ({:.0f} bytes per event)\n",
             report->ranks[0].devices[0].steps.count, report->findings.size(), peak_mib(),
             peak_mib() * (1 << 20) / static_cast<double>(events));
  const double limit = seconds_to_read_and_copy(fd, bytes, events);  // takes memory of its own
  fmt::print("{:.0f} x the {:.2f} s to read the trace and to copy 32 bytes for each event\n",
             total / limit, limit);
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 10;
  const bool snapshot = argc > 2 && std::string_view(argv[2]) == "snapshot";
  return tidemark::run(static_cast<uint64_t>(millions * 1e6),
                       snapshot ? tidemark::Source::kTorchSnapshot : tidemark::Source::kCapture);
}
