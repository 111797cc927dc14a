// Measures the export of a synthetic trace to a Perfetto file, an SQLite database and a PyTorch
// snapshot: events per second, bytes per event, and memory on top of the loaded model. Each format
// prints the rate of the exporter alone and of the whole command, which first loads the trace and
// makes the report. The same run measures the limits the ratios are against: copying and writing
// the same bytes, and SQLite copying and indexing the same table.
//
//   export_bench [MILLIONS_OF_EVENTS, default 10] [DIRECTORY, default /tmp]
#include <fcntl.h>
#include <unistd.h>
#ifdef TIDEMARK_BENCH_SQLITE
#include <sqlite3.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"
#include "collector/snapshot/name_writer.h"
#include "export/perfetto/perfetto_export.h"
#include "export/snapshot/snapshot_export.h"
#include "export/tables/parquet_tables.h"
#include "export/tables/sqlite_tables.h"
#include "proto/write/trace_writer.h"

namespace tidemark {
namespace {

// CPU seconds: everything here runs on one thread, and other programs do not count.
double now_s() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// memory_mib("VmHWM:") is the peak of the resident memory since the last reset_peak().
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}
double memory_mib(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::atof(line.c_str() + std::string(key).size() + 1) / 1024;
  }
  return 0;
}

// Training steps: allocations of many sizes in one large segment, freed in random order.
class StepMaker {
 public:
  StepMaker(TraceWriter& writer, uint64_t events)
      : writer_(writer), names_(writer), left_(events) {}

  void write() {
    Process p{};
    p.rank = 0;
    p.world_size = 1;
    p.pid = 1;
    p.source = Source::kSynthetic;
    writer_.append(p);
    for (int i = 0; i < 900; ++i) make_stack(i);
    put(FrameworkAction::kSegmentAlloc, kBase, kSlots * kSlot, 0);
    std::vector<uint64_t> free_slots(kSlots);
    for (uint64_t i = 0; i < kSlots; ++i) free_slots[i] = i;
    std::vector<Taken> live;
    while (left_ > 0) {
      while (live.size() < kSlots / 2 && left_ > 0) take(free_slots, live);
      while (live.size() > kSlots / 8 && left_ > 0) give_back(free_slots, live);
    }
  }

 private:
  static constexpr uint64_t kBase = 0x7f0000000000;
  static constexpr uint64_t kSlots = 1200;
  static constexpr uint64_t kSlot = 2 << 20;
  struct Taken {
    uint64_t slot;
    uint64_t size;
    uint32_t stack;
  };

  void make_stack(int i) {
    uint32_t stack = 0;
    for (int depth = 0; depth < 12; ++depth) {
      Frame frame{};
      frame.function = names_.string("function" + std::to_string(depth == 11 ? i : depth));
      frame.file = names_.string("train.py");
      frame.line = depth == 11 ? i : depth;
      stack = names_.stack(stack, names_.frame(frame));
    }
    stacks_.push_back(stack);
  }

  void take(std::vector<uint64_t>& slots, std::vector<Taken>& live) {
    const size_t pick = random_() % slots.size();
    std::swap(slots[pick], slots.back());
    const Taken taken{slots.back(), (1 + random_() % 4096) * 512, stacks_[random_() % 900]};
    slots.pop_back();
    live.push_back(taken);
    put(FrameworkAction::kAlloc, kBase + taken.slot * kSlot, taken.size, taken.stack);
  }

  void give_back(std::vector<uint64_t>& slots, std::vector<Taken>& live) {
    const size_t pick = random_() % live.size();
    std::swap(live[pick], live.back());
    const Taken taken = live.back();
    live.pop_back();
    slots.push_back(taken.slot);
    put(FrameworkAction::kFreeRequested, kBase + taken.slot * kSlot, taken.size, taken.stack);
    put(FrameworkAction::kFreeCompleted, kBase + taken.slot * kSlot, taken.size, taken.stack);
  }

  void put(FrameworkAction action, uint64_t address, uint64_t size, uint32_t stack) {
    FrameworkEvent e{};
    time_ += 200 + static_cast<int64_t>(random_() % 4096);
    e.time_ns = time_;
    e.action = action;
    e.address = address;
    e.size_bytes = size;
    e.stack = stack;
    writer_.append(e);
    if (left_ > 0) --left_;
  }

  TraceWriter& writer_;
  NameWriter names_;
  uint64_t left_;
  std::mt19937_64 random_{1};
  std::vector<uint32_t> stacks_;
  int64_t time_ = 1'700'000'000'000'000'000;
};

bool make_trace(const std::string& path, uint64_t events) {
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR, 0666);
  if (fd < 0) return false;
  FdSink sink(fd);
  TraceWriter writer(sink);
  StepMaker(writer, events).write();
  const bool whole = writer.finish();
  ::close(fd);
  return whole;
}

// CPU seconds to write the same file again: copy its bytes into a buffer and write that.
double rewrite_seconds(const std::string& from, const std::string& to) {
  std::ifstream file(from, std::ios::binary);
  const int fd = ::open(to.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0666);
  if (!file || fd < 0) return 0;
  FdSink sink(fd);
  std::vector<char> piece(16 << 20);
  std::vector<uint8_t> buffer(1 << 20);
  double seconds = 0;
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
    const auto size = static_cast<size_t>(file.gcount());
    const double start = now_s();
    for (size_t at = 0; at < size; at += buffer.size()) {
      const size_t part = std::min(buffer.size(), size - at);
      std::memcpy(buffer.data(), piece.data() + at, part);
      sink.write({buffer.data(), part});
    }
    seconds += now_s() - start;
  }
  ::close(fd);
  ::unlink(to.c_str());
  return seconds;
}

// Million rows per second at which SQLite itself copies a table of the database into a new one,
// with its indexes; 0 without SQLite. SQLite neither has to compute nor bind these rows, so no
// program that inserts them can be faster.
double sqlite_copy_rate(const std::string& database, const std::string& copy) {
#ifdef TIDEMARK_BENCH_SQLITE
  ::unlink(copy.c_str());
  sqlite3* db = nullptr;
  int64_t rows = 0;
  double seconds = 0;
  if (sqlite3_open(database.c_str(), &db) == SQLITE_OK) {
    const std::string attach =
        "ATTACH '" + copy +
        "' AS copy;"
        "PRAGMA copy.page_size = 32768; PRAGMA copy.journal_mode = OFF;"
        "PRAGMA copy.synchronous = OFF; PRAGMA copy.locking_mode = EXCLUSIVE;"
        "PRAGMA copy.cache_size = -65536;"
        "CREATE TABLE copy.allocations AS SELECT * FROM main.allocations LIMIT 0;";
    sqlite3_exec(db, attach.c_str(), nullptr, nullptr, nullptr);
    const double start = now_s();
    sqlite3_exec(db, "INSERT INTO copy.allocations SELECT * FROM main.allocations WHERE 1", nullptr,
                 nullptr, nullptr);
    rows = sqlite3_changes64(db);
    sqlite3_exec(db,
                 "CREATE INDEX copy.i1 ON allocations (rank_id, device, birth_event);"
                 "CREATE INDEX copy.i2 ON allocations (stack_id);"
                 "CREATE INDEX copy.i3 ON allocations (segment_id)",
                 nullptr, nullptr, nullptr);
    seconds = now_s() - start;
  }
  sqlite3_close(db);
  ::unlink(copy.c_str());
  return seconds > 0 ? static_cast<double>(rows) / seconds / 1e6 : 0;
#else
  static_cast<void>(database);
  static_cast<void>(copy);
  return 0;
#endif
}

// Million records per second; 0 on failure. `before_s` is what the command spends before exporting.
template <typename Export>
double measure(const char* name, double events, double before_s, const std::string& output,
               Export&& work) {
  reset_peak();
  const double before = memory_mib("VmRSS:");
  const double start = now_s();
  const Result<ExportSummary> summary = work();
  const double seconds = now_s() - start;
  if (!summary) {
    std::printf("%-22s %s\n", name, summary.error().message.c_str());
    return 0;
  }
  const double peak = memory_mib("VmHWM:");
  std::printf("%-22s %6.2f s  %6.2f M events/s  %6.2f M records/s  %6.2f bytes/event  +%.0f MiB\n",
              name, seconds, events / seconds / 1e6,
              static_cast<double>(summary->records) / seconds / 1e6,
              static_cast<double>(summary->bytes) / events, peak - before);
  const double whole = before_s + seconds;
  std::printf("%22s %6.2f s  %6.2f M events/s including load and report\n", "", whole,
              events / whole / 1e6);
  if (const double least = rewrite_seconds(output, output + ".again"); least > 0) {
    std::printf("%22s %.1f x the time to copy and write the same bytes\n", "", seconds / least);
  }
  for (const std::string& note : summary->notes) std::printf("%22s %s\n", "", note.c_str());
  return static_cast<double>(summary->records) / seconds / 1e6;
}

int run(double millions, const std::string& directory) {
  const std::string trace = directory + "/export_bench.tmk";
  const std::string output = directory + "/export_bench.out";
  const auto events = static_cast<uint64_t>(millions * 1e6);
  if (!make_trace(trace, events)) {
    std::perror(trace.c_str());
    return 1;
  }
  std::vector<TraceReader> readers;
  Result<TraceReader> reader = TraceReader::open(trace);
  if (!reader) return 1;
  readers.push_back(std::move(*reader));
  reset_peak();
  const double start = now_s();
  const Result<TraceModel> model = load_trace(readers);
  if (!model) return 1;
  const double load_s = now_s() - start;
  const auto count = static_cast<double>(events);
  std::printf("%-22s %6.2f s  %6.2f M events/s  peak %.0f MiB, %.0f MiB after\n", "load", load_s,
              count / load_s / 1e6, memory_mib("VmHWM:"), memory_mib("VmRSS:"));
  // Every export contains the findings, but computing them is the report's cost.
  reset_peak();
  const double report_start = now_s();
  const Result<Report> report = make_report(*model, {});
  if (!report) return 1;
  const double report_s = now_s() - report_start;
  std::printf("%-22s %6.2f s  %6.2f M events/s  peak %.0f MiB\n", "report", report_s,
              count / report_s / 1e6, memory_mib("VmHWM:"));
  const double before_s = load_s + report_s;
  const ExportInput input{*model, readers, &*report};
  ExportOptions options;
  const auto perfetto = [&] { return export_perfetto(input, options, output); };
  measure("perfetto", count, before_s, output, perfetto);
  options.max_bytes = 100 << 20;
  measure("perfetto, 100 MiB", count, before_s, output, perfetto);
  options.max_bytes = UINT64_MAX;
  const auto sqlite = [&] { return export_sqlite(input, options, output); };
  const double rate = measure("sqlite", count, before_s, output, sqlite);
  if (const double copied = sqlite_copy_rate(output, output + ".copy"); copied > 0) {
    std::printf("%22s %.1f x the rate of SQLite copying and indexing the table, %.2f M rows/s\n",
                "", rate / copied, copied);
  }
  const std::string fleet = output + ".fleet";
  const double columns = measure("parquet", count, before_s, fleet,
                                 [&] { return export_parquet(input, options, {}, fleet); });
  std::filesystem::remove_all(fleet);
  if (rate > 0) std::printf("%22s %.1f x the rate of the SQLite export\n", "", columns / rate);
  options.events = true;
  measure("sqlite with events", count, before_s, output, sqlite);
  measure("snapshot", count, before_s, output,
          [&] { return export_snapshot(input, options, output); });
  ::unlink(output.c_str());
  ::unlink(trace.c_str());
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  return tidemark::run(argc > 1 ? std::atof(argv[1]) : 10, argc > 2 ? argv[2] : "/tmp");
}
