// Measures the trace format: bytes per event, million events written and read per second, and peak
// memory, for a synthetic training run and for an imported PyTorch snapshot. The ratio is our read
// rate against libprotobuf's parser on the same payloads.
//
//   format_bench [SNAPSHOT] [MILLIONS_OF_EVENTS, default 10]
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zstd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/synthetic_stream.h"
#include "collector/trace_source.h"
#include "proto/read/block_decoder.h"
#include "proto/write/trace_writer.h"
#include "tidemark.pb.h"

namespace {

using namespace tidemark;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Rates {
  double bytes_per_event = 0;
  double written = 0;   // events per second
  double read = 0;      // events per second
  double protobuf = 0;  // events per second, parsing the same payloads without undoing the deltas
};

// The obvious alternative: libprotobuf's generated parser, on the same bytes.
double protobuf_rate(const TraceReader& reader, uint64_t events) {
  BlockDecoder decoder(reader);
  std::vector<uint8_t> raw;
  const auto start = Clock::now();
  uint64_t rows = 0;
  for (const BlockRef& ref : reader.blocks()) {
    if (ref.kind != BlockKind::kFrameworkEvents) continue;
    FrameHeader header;
    const auto payload = decoder.payload(ref, header);
    raw.resize(header.raw_bytes);
    if ((header.flags & kFrameCompressed) != 0) {
      ZSTD_decompress(raw.data(), raw.size(), payload.data(), payload.size());
    } else {
      raw.assign(payload.begin(), payload.end());
    }
    format::FrameworkEvents message;
    if (!message.ParseFromArray(raw.data(), static_cast<int>(raw.size()))) std::abort();
    rows += message.rows();
  }
  if (rows != events) std::abort();
  return static_cast<double>(events) / seconds_since(start);
}

double read_rate(const TraceReader& reader, uint64_t events) {
  BlockDecoder decoder(reader);
  uint64_t rows = 0;
  uint64_t sum = 0;
  const auto start = Clock::now();
  for_each_block<FrameworkEvent>(reader, decoder, 0, [&](auto block, const BlockRef&) {
    rows += block.size();
    for (const FrameworkEvent& event : block) sum += event.address ^ event.size_bytes;
  });
  const double rate = static_cast<double>(events) / seconds_since(start);
  if (rows != events || sum == 0) std::abort();
  return rate;
}

// `next` returns the events one by one, so that generating them needs no memory.
template <typename Next>
Rates measure(uint64_t events, Next&& next) {
  const std::string path = "/tmp/tidemark-format-bench-" + std::to_string(::getpid()) + ".tmk";
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) std::abort();
  ::unlink(path.c_str());
  Rates rates;
  {
    std::vector<FrameworkEvent> batch(100'000);
    FdSink sink(fd);
    TraceWriter writer(sink);
    double seconds = 0;
    for (uint64_t done = 0; done < events;) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(batch.size(), events - done));
      for (size_t i = 0; i < n; ++i) batch[i] = next();
      const auto start = Clock::now();
      for (size_t i = 0; i < n; ++i) writer.append(batch[i]);
      seconds += seconds_since(start);
      done += n;
    }
    const auto start = Clock::now();
    if (!writer.finish()) std::abort();
    seconds += seconds_since(start);
    rates.written = static_cast<double>(events) / seconds;
    rates.bytes_per_event =
        static_cast<double>(writer.bytes_written()) / static_cast<double>(events);
  }
  const auto reader = TraceReader::from_fd(fd, path);
  if (!reader) std::abort();
  for (int round = 0; round < 3; ++round) {
    rates.read = std::max(rates.read, read_rate(*reader, events));
    rates.protobuf = std::max(rates.protobuf, protobuf_rate(*reader, events));
  }
  return rates;
}

void print(std::string_view name, uint64_t events, const Rates& r) {
  fmt::print("{:<22} {:>11} {:>8.2f} {:>10.1f} {:>10.1f} {:>14.1f} {:>8.1f}x {:>9.0f}\n", name,
             events, r.bytes_per_event, r.written / 1e6, r.read / 1e6, r.protobuf / 1e6,
             r.read / r.protobuf, peak_mib());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string snapshot = argc > 1 ? argv[1] : TIDEMARK_BENCH_SNAPSHOT;
  const uint64_t millions = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10;
  fmt::print("{:<22} {:>11} {:>8} {:>10} {:>10} {:>14} {:>9} {:>9}\n", "stream", "events",
             "B/event", "write M/s", "read M/s", "libprotobuf", "ratio", "peak MiB");

  SyntheticStream stream;
  print("synthetic training", millions * 1'000'000,
        measure(millions * 1'000'000, [&] { return stream.next(); }));

  const auto source = open_trace(snapshot);
  if (!source) {
    fmt::print("{}\n", source.error().message);
    return 2;
  }
  std::vector<FrameworkEvent> real;
  BlockDecoder decoder(source->readers[0]);
  for_each_block<FrameworkEvent>(source->readers[0], decoder, 0, [&](auto rows, const BlockRef&) {
    real.insert(real.end(), rows.begin(), rows.end());
  });
  size_t at = 0;
  print("real, events only", real.size(), measure(real.size(), [&] { return real[at++]; }));
  fmt::print(
      "{:<22} {:>11} {:>8.2f}   whole file: names, stacks, end state too\n", "real, imported",
      real.size(),
      static_cast<double>(source->readers[0].file_bytes()) / static_cast<double>(real.size()));
  return 0;
}
