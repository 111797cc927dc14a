// A recording that keeps a limited window: its size, its numbers, what a SIGKILL leaves of it, and
// how it is sealed. TIDEMARK_KILLS sets how often the process is killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "analysis/insight/whole_run.h"
#include "analysis/load/trace_model.h"
#include "collector/recover/trace_file.h"
#include "collector/trace_source.h"
#include "injector/trace/window.h"
#include "proto/read/block_decoder.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/window_log.h"

namespace tidemark::test {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kKeep = 1 << 20;
constexpr uint64_t kOneBlock = 512 << 10;

class Host {
 public:
  // `arguments` follow DIRECTORY and LOG.
  Host(const std::string& directory, const std::string& log, std::vector<std::string> arguments) {
    const int fd = ::open(log.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::ftruncate(fd, sizeof(WindowLog)), 0);
    void* const pages =
        ::mmap(nullptr, sizeof(WindowLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    log_ = static_cast<WindowLog*>(pages);
    arguments.insert(arguments.begin(), {TIDEMARK_WINDOW_HOST, directory, log});
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Host() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
    ::munmap(log_, sizeof(WindowLog));
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void kill() const { ::kill(pid_, SIGKILL); }
  bool running() {
    if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ > 0;
  }
  int wait() {
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = -1;
    return status_;
  }
  WindowLog& log() { return *log_; }

 private:
  WindowLog* log_ = nullptr;
  pid_t pid_ = -1;
  int status_ = 0;
};

std::vector<std::string> traces_in(const fs::path& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".tmk") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

uint64_t size_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

ino_t file_number(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

struct Loaded {
  std::vector<TraceReader> readers;
  TraceModel model;
  std::vector<Summary> summary;
};

std::unique_ptr<Loaded> load(const std::string& path) {
  std::vector<std::string> notes;
  Result<TraceReader> reader = open_trace_file(path, notes);
  if (!reader) {
    ADD_FAILURE() << reader.error().message;
    return nullptr;
  }
  EXPECT_FALSE(reader->damage().any());
  EXPECT_FALSE(reader->damage().unfinished);
  auto loaded = std::make_unique<Loaded>();
  loaded->readers.push_back(std::move(*reader));
  BlockDecoder decoder(loaded->readers[0]);
  for_each_block<Summary>(loaded->readers[0], decoder, 0, [&](auto rows, const BlockRef&) {
    // Those of the driver's memory have negative devices.
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(loaded->summary),
                 [](const Summary& row) { return row.device >= 0; });
  });
  // As readers do: the state at the beginning of a window has a point of its own.
  std::stable_sort(loaded->summary.begin(), loaded->summary.end(),
                   [](const Summary& a, const Summary& b) { return a.time_ns < b.time_ns; });
  Result<TraceModel> model = load_trace(loaded->readers, {}, {});
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  loaded->model = std::move(*model);
  return loaded;
}

// Every entry of the log in the window; returns their number. At most `missing` of the last ones
// may be missing.
uint64_t compare(const Loaded& loaded, const WindowLog& log, uint64_t count, uint64_t missing) {
  const ProcessModel& process = loaded.model.processes.at(0);
  if (process.framework.empty()) return 0;
  const AllocationHistory& history = process.framework.at(0);
  EXPECT_EQ(history.anomalies, 0U);
  const int64_t begin = history.time_ns[0];
  const int64_t end = history.time_ns[history.event_count() - 1];
  uint64_t compared = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const WindowLog::Entry& truth = log.entries[i];
    if (truth.time_ns < begin || truth.time_ns > end) continue;
    uint32_t event = 0;
    if (!history.event_at(truth.time_ns, event)) continue;
    const MemoryTotals totals = history.totals_after(event);
    if (totals.allocated != truth.allocated || totals.requested != truth.requested ||
        totals.reserved != truth.reserved) {
      ADD_FAILURE() << "entry " << i << " of " << count << ", " << compared
                    << " in the window: " << totals.allocated << " " << totals.requested << " "
                    << totals.reserved << " instead of " << truth.allocated << " "
                    << truth.requested << " " << truth.reserved;
      return compared;
    }
    ++compared;
  }
  EXPECT_GE(end, log.entries[count - 1 - std::min(missing, count - 1)].time_ns);
  return compared;
}

// Of the window and of what the curve tells about the time before.
void expect_peaks(const Loaded& loaded, const WindowLog& log, uint64_t count) {
  const ProcessModel& process = loaded.model.processes.at(0);
  const AllocationHistory& history = process.framework.at(0);
  const WholeRun run = whole_run(process, 0);
  ASSERT_TRUE(run.is_window());
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  for (uint64_t i = 0; i < count; ++i) {
    allocated = std::max(allocated, log.entries[i].allocated);
    reserved = std::max(reserved, log.entries[i].reserved);
  }
  EXPECT_EQ(std::max(run.allocated_peak.bytes, history.allocated_peak.bytes), allocated);
  EXPECT_EQ(std::max(run.reserved_peak.bytes, history.reserved_peak.bytes), reserved);
}

// Everything that is older than the window is there at its first instant.
void expect_whole_state(const Loaded& loaded) {
  const ProcessModel& process = loaded.model.processes.at(0);
  const int64_t begin = process.window.from_ns;
  EXPECT_EQ(loaded.model.start_ns, begin);
  for (const Allocation& a : process.framework.at(0).allocations) {
    if (a.seeded) {
      EXPECT_EQ(a.birth_ns(), begin);
    } else {
      EXPECT_GT(a.birth_ns(), begin);
    }
  }
  for (const DriverAllocation& a : process.driver.allocations) {
    if ((a.flags & kDriverSeeded) != 0) {
      EXPECT_EQ(a.birth_ns, begin);
    } else {
      EXPECT_GT(a.birth_ns, begin);
    }
  }
}

void expect_lines(const Loaded& loaded) {
  const ProcessModel& process = loaded.model.processes.at(0);
  const AllocationHistory& history = process.framework.at(0);
  uint64_t older = 0;
  for (size_t i = 0; i < history.allocations.size(); ++i) {
    const Allocation a = history.allocations[i];
    older += a.seeded ? 1 : 0;
    ASSERT_NE(a.stack, 0U);
    const auto frames = process.names.frames_of(a.stack);
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(process.names.frame(frames[0]).line, line_of_block(a.block_bytes));
  }
  EXPECT_GT(older, 100U);
}

void expect_driver_agrees(const Loaded& loaded) {
  const ProcessModel& process = loaded.model.processes.at(0);
  const AllocationHistory& history = process.framework.at(0);
  uint64_t bytes = 0;
  for (const DriverAllocation& a : process.driver.allocations) {
    if (process.names.string(a.owner) != "torch") continue;
    EXPECT_NE(a.stack, 0U);
    if (a.death_ns == INT64_MAX) bytes += a.size_bytes;
  }
  EXPECT_EQ(bytes, history.totals_after(history.event_count() - 1).reserved);
  EXPECT_EQ(process.driver.unknown_frees, 0U);
}

// Names and ranges that are older than the window.
void expect_names(const Loaded& loaded) {
  const ProcessModel& process = loaded.model.processes.at(0);
  const auto named = [&](uint64_t address, int64_t birth_ns, int64_t death_ns) {
    return std::string(process.names.string(process.labels.of(address, birth_ns, death_ns)));
  };
  std::vector<std::string> names;
  for (const Allocation& a : process.framework.at(0).allocations) {
    if (const auto name = named(a.address, a.birth_ns(), a.death_ns()); !name.empty()) {
      names.push_back(name);
      EXPECT_TRUE(a.seeded);
      EXPECT_EQ(a.block_bytes, 512U);
    }
  }
  for (const DriverAllocation& a : process.driver.allocations) {
    if (process.names.string(a.owner) == "torch") continue;
    names.push_back(named(a.address, a.birth_ns, a.death_ns));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"first leak", "table"}));
  const auto open = [&](const Mark& mark) {
    return mark.phase == MarkPhase::kBegin && process.names.string(mark.name) == "whole program";
  };
  EXPECT_EQ(std::count_if(process.marks.begin(), process.marks.end(), open), 1);
}

TEST(WindowTest, IsBoundedAndAsExactAsAFullRecording) {
  const ScratchDirectory directory;
  Host host(directory.path(), directory / "log", {"1MiB", "5:300000"});
  uint64_t largest = 0;
  std::set<ino_t> files;
  while (host.running()) {
    for (const std::string& path : traces_in(directory.path())) {
      struct stat info {};
      if (::stat(path.c_str(), &info) != 0) continue;
      largest = std::max(largest, static_cast<uint64_t>(info.st_size));
      files.insert(info.st_ino);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(host.wait(), 0);
  EXPECT_LE(largest, kKeep + kOneBlock);
  EXPECT_GT(files.size(), 2U) << "the file was never replaced";
  const auto traces = traces_in(directory.path());
  ASSERT_EQ(traces.size(), 1U);
  EXPECT_LE(size_of(traces[0]), kKeep + kOneBlock);
  EXPECT_FALSE(fs::exists(traces[0] + ".next"));

  const auto loaded = load(traces[0]);
  ASSERT_NE(loaded, nullptr);
  const uint64_t count = host.log().count.load();
  const uint64_t compared = compare(*loaded, host.log(), count, 0);
  RecordProperty("events", std::to_string(count));
  RecordProperty("compared", std::to_string(compared));
  EXPECT_GT(compared, 10'000U);
  EXPECT_LT(compared, count / 2) << "the window is the whole recording";
  expect_lines(*loaded);
  expect_driver_agrees(*loaded);
  expect_names(*loaded);
  expect_peaks(*loaded, host.log(), count);
  expect_whole_state(*loaded);

  // The curve of the whole run shows the leak, which began before the window.
  ASSERT_GE(loaded->summary.size(), 4U);
  const AllocationHistory& history = loaded->model.processes.at(0).framework.at(0);
  const int64_t began = host.log().entries[0].time_ns;
  EXPECT_LT(loaded->summary.front().time_ns, began + 2'000'000'000);
  EXPECT_LT(loaded->summary.front().time_ns, history.time_ns[0]);
  for (size_t i = 1; i < loaded->summary.size(); ++i) {
    EXPECT_LE(loaded->summary[i - 1].time_ns, loaded->summary[i].time_ns);
    EXPECT_LE(loaded->summary[i - 1].steps, loaded->summary[i].steps);
  }
  const Summary& last = loaded->summary.back();
  EXPECT_GT(last.steps, loaded->summary.front().steps);
  EXPECT_LE(last.lowest_bytes, last.allocated_bytes);
  EXPECT_GE(last.highest_bytes, last.allocated_bytes);
}

// A week of one point per second.
TEST(WindowTest, TheCurveOfALongRunStaysShort) {
  class Nowhere final : public ByteSink {
   public:
    bool write(std::span<const uint8_t> bytes) noexcept override {
      written += bytes.size();
      return true;
    }
    uint64_t written = 0;
  };
  constexpr size_t kMost = 10'000;
  Nowhere trace_sink;
  TraceWriter trace(trace_sink);
  injector::LiveState state;
  FrameworkEvent event{};
  event.action = FrameworkAction::kAlloc;
  injector::SummaryCurve curve(kMost);
  for (int64_t second = 1; second <= 7 * 86'400; ++second) {
    if (second % 100 == 0) {  // a block more
      event.time_ns = second * 1'000'000'000;
      event.address += 4096;
      event.size_bytes = event.block_bytes = 512;
      state.take(event);
    }
    for (int round = 0; round < 2; ++round) {
      state.begin_round(second * 1'000'000'000);
      state.end_round();
    }
    curve.tick(second * 1'000'000'000, state, trace);
  }
  Nowhere out;
  TraceWriter writer(out);
  curve.write(writer);
  writer.flush();
  EXPECT_LE(writer.rows_written(), kMost);
  EXPECT_GT(writer.rows_written(), kMost / 2);
  EXPECT_LT(out.written, 16 * kMost);
}

// A reading between two points, and when every two points become one.
TEST(WindowTest, TheHighestReadingOfTheCardIsInTheCurve) {
  const ScratchDirectory directory;
  const std::string path = directory / "curve.tmk";
  injector::TraceFile file;
  ASSERT_TRUE(file.create(path.c_str()));
  {
    TraceWriter trace(file);
    injector::LiveState state;
    injector::SummaryCurve curve(4);
    for (int64_t second = 1; second <= 9; ++second) {
      for (const uint64_t used : {5U, second == 5 ? 90U : 6U, 4U}) {
        Counter row{second * 1'000'000'000, used, 0, 0, CounterKind::kDeviceUsed};
        state.take(row);
      }
      curve.tick(second * 1'000'000'000, state, trace);
    }
    curve.write(trace);
    ASSERT_TRUE(trace.finish());
  }
  file.close();
  const auto loaded = load(path);
  ASSERT_NE(loaded, nullptr);
  std::multiset<uint64_t> readings;
  for (const Summary& point : loaded->summary) readings.insert(point.device_used_bytes);
  EXPECT_EQ(readings.count(90), 2U) << "of the trace and of the shortened curve";
  EXPECT_EQ(readings.count(4), 0U);
}

// What a context took with it is not in a window that begins later.
TEST(WindowTest, MemoryEndsWithItsContext) {
  class Nowhere final : public ByteSink {
   public:
    bool write(std::span<const uint8_t>) noexcept override { return true; }
  };
  const auto rows_after = [](bool destroyed) {
    injector::LiveState state;
    int64_t time_ns = 1'000'000'000;
    state.begin_round(time_ns);
    const auto take = [&](DriverOperation operation, MemoryKind kind, uint64_t id,
                          uint32_t context) {
      DriverEvent e{};
      e.time_ns = ++time_ns;
      e.operation = operation;
      e.kind = kind;
      e.address = kind == MemoryKind::kDevice ? id : 0;
      e.handle = id;
      e.size_bytes = 4096;
      e.context = context;
      state.take(e);
    };
    take(DriverOperation::kContextCreate, MemoryKind::kContext, 0xa00, 1);
    take(DriverOperation::kContextCreate, MemoryKind::kContext, 0xb00, 2);
    take(DriverOperation::kAllocate, MemoryKind::kDevice, 0x1000, 1);
    take(DriverOperation::kAllocate, MemoryKind::kArray, 0x2000, 1);
    take(DriverOperation::kAllocate, MemoryKind::kDevice, 0x3000, 2);
    take(DriverOperation::kCreate, MemoryKind::kVirtual, 0x4000, 1);
    if (destroyed) take(DriverOperation::kContextDestroy, MemoryKind::kContext, 0xa00, 1);
    for (int round = 0; round < 3; ++round) {
      time_ns += 1'000'000'000;
      state.begin_round(time_ns);
      state.end_round();
    }
    Nowhere out;
    TraceWriter writer(out);
    state.write(writer, {});
    writer.flush();
    return writer.rows_written();
  };
  EXPECT_EQ(rows_after(false) - rows_after(true), 3U) << "the context, its memory and its array";
}

// The rows of an allocator's state come later than the first events after it.
TEST(WindowTest, TheStateOfARunningProcessIsOlderThanItsEvents) {
  injector::LiveState state;
  state.take_string(1, injector::kTorchStateMark);
  state.take_string(2, injector::kTorchStateReadMark);
  int64_t now_ns = 0;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      now_ns += 1'000'000;
      state.begin_round(now_ns);
      state.end_round();
    }
  };
  const auto mark = [&](uint32_t name) {
    Mark row{};
    row.time_ns = now_ns;
    row.name = name;
    state.take(row);
  };
  const auto event = [&](FrameworkAction action, uint64_t address) {
    FrameworkEvent row{};
    row.time_ns = ++now_ns;
    row.address = address;
    row.size_bytes = row.block_bytes = address;
    row.action = action;
    state.take(row);
  };
  rounds(3);
  const int64_t state_ns = now_ns;
  mark(1);
  event(FrameworkAction::kFreeCompleted, 0x1000);
  event(FrameworkAction::kAlloc, 0x2000);
  rounds(50);
  EXPECT_FALSE(state.settled());
  SegmentState segment{};
  segment.time_ns = state_ns;
  segment.address = 0x1000;
  segment.size_bytes = 0x10000;
  state.take(segment);
  for (const uint64_t address : {0x1000U, 0x4000U}) {
    BlockState block{state_ns, address, address, address, 0, 0, BlockCondition::kAllocated};
    state.take(block);
  }
  rounds(50);
  event(FrameworkAction::kAlloc, 0x8000);
  mark(2);
  rounds(50);
  EXPECT_TRUE(state.settled());
  event(FrameworkAction::kFreeCompleted, 0x2000);
  rounds(3);
  event(FrameworkAction::kAlloc, 0x200);  // what is before it is complete
  rounds(3);
  EXPECT_EQ(state.totals(0).reserved, 0x10000U);
  EXPECT_EQ(state.totals(0).allocated, 0x4000U + 0x8000U + 0x200U);
  EXPECT_EQ(state.totals(0).highest, 0x1000U + 0x4000U + 0x2000U + 0x8000U - 0x1000U);
}

// Other ranks may seal while the first rows are held back for their order. A context alone, as a
// launcher may have, is nothing to seal.
TEST(WindowTest, MemoryCountsAsUsedFromItsFirstRow) {
  const auto used_after = [](auto row) {
    injector::LiveState state;
    state.begin_round(1'000);
    row.time_ns = 2'000;
    state.take(row);
    state.end_round();
    return state.used_memory();
  };
  DriverEvent driver{};
  driver.operation = DriverOperation::kAllocate;
  driver.kind = MemoryKind::kDevice;
  EXPECT_TRUE(used_after(driver));
  driver.result = 2;
  EXPECT_FALSE(used_after(driver)) << "a request that failed";
  driver.result = 0;
  driver.operation = DriverOperation::kContextCreate;
  driver.kind = MemoryKind::kContext;
  EXPECT_FALSE(used_after(driver));
  EXPECT_TRUE(used_after(FrameworkEvent{}));
}

// The same program without a limit: what the comparison itself is worth.
TEST(WindowTest, AFullRecordingAgreesWithTheLog) {
  const ScratchDirectory directory;
  Host host(directory.path(), directory / "log", {"-", "1:50000"});
  EXPECT_EQ(host.wait(), 0);
  const auto loaded = load(traces_in(directory.path()).at(0));
  ASSERT_NE(loaded, nullptr);
  const uint64_t count = host.log().count.load();
  EXPECT_EQ(compare(*loaded, host.log(), count, 0), count);
}

TEST(WindowTest, KeepsAStretchOfTime) {
  const ScratchDirectory directory;
  Host host(directory.path(), directory / "log", {"1s", "4"});
  EXPECT_EQ(host.wait(), 0);
  const auto loaded = load(traces_in(directory.path()).at(0));
  ASSERT_NE(loaded, nullptr);
  const uint64_t count = host.log().count.load();
  EXPECT_GT(compare(*loaded, host.log(), count, 0), 1000U);
  const AllocationHistory& history = loaded->model.processes.at(0).framework.at(0);
  const int64_t kept = host.log().entries[count - 1].time_ns - history.time_ns[0];
  // The last round may be later than the last event.
  EXPECT_GE(kept, 800'000'000);
  // On a busy machine it is cut late, but it is cut.
  const int64_t whole = host.log().entries[count - 1].time_ns - host.log().entries[0].time_ns;
  EXPECT_LT(kept, whole);
}

TEST(WindowTest, SurvivesAKillAtAnyInstant) {
  const char* const text = std::getenv("TIDEMARK_KILLS");
  const int kills = text == nullptr ? 12 : std::atoi(text);
  std::mt19937 dice(20261116);
  int replaced = 0;
  for (int i = 0; i < kills; ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    const ScratchDirectory directory;
    Host host(directory.path(), directory / "log", {"256KiB", "600"});
    // The window has moved on at least once.
    std::set<ino_t> files;
    while (host.running() && files.size() < 2) {
      for (const std::string& path : traces_in(directory.path())) files.insert(file_number(path));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Often in the middle of the next replacement.
    const auto traces = traces_in(directory.path());
    ASSERT_EQ(traces.size(), 1U);
    const std::string next = traces[0] + ".next";
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (i % 2 == 0 && !fs::exists(next) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(dice() % 3000));
    host.kill();
    EXPECT_TRUE(WIFSIGNALED(host.wait()));
    replaced += fs::exists(next) ? 1 : 0;
    const auto loaded = load(traces[0]);
    ASSERT_NE(loaded, nullptr);
    EXPECT_FALSE(fs::exists(next));
    const uint64_t count = host.log().count.load();
    EXPECT_GT(compare(*loaded, host.log(), count, 0), 1000U);
    expect_lines(*loaded);
    expect_peaks(*loaded, host.log(), count);
    expect_whole_state(*loaded);
    if (HasFailure()) return;
  }
  RecordProperty("killed_while_replacing", replaced);
}

// Both ranks, at the error of one of them.
TEST(WindowTest, AllRanksAreSealedAtAnOutOfMemoryError) {
  const ScratchDirectory directory;
  const std::string out = directory / "out";
  Host failing(out, directory / "log0", {"1MiB", "600", "3", "0", "job1", "200000"});
  Host other(out, directory / "log1", {"1MiB", "600", "3", "1", "job1"});
  Host foreign(out, directory / "log2", {"1MiB", "600", "3", "2", "job2"});
  const auto sealed = [&] {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(out, error)) {
      if (entry.is_directory()) found.push_back(entry.path());
    }
    return found;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((sealed().empty() || traces_in(sealed()[0]).size() < 2) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_EQ(sealed().size(), 1U);
  EXPECT_NE(sealed()[0].find("/oom-"), std::string::npos);
  const uint64_t at_error = failing.log().count.load();
  failing.log().go_on.store(1);
  // The recording goes on.
  while (failing.running() && failing.log().count.load() < at_error + 1000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto traces = traces_in(sealed()[0]);
  ASSERT_EQ(traces.size(), 2U);
  const auto zero = load(traces[0]);
  const auto one = load(traces[1]);
  ASSERT_TRUE(zero != nullptr && one != nullptr);
  EXPECT_GT(compare(*zero, failing.log(), at_error, 0), 10'000U);
  EXPECT_GT(compare(*one, other.log(), other.log().count.load(), UINT64_MAX), 10'000U);
  const AllocationHistory& history = zero->model.processes.at(0).framework.at(0);
  ASSERT_EQ(history.failures.size(), 1U);
  const WindowLog::Entry& truth = failing.log().entries[at_error - 1];
  const MemoryTotals totals = history.totals_after(history.failures[0].event);
  EXPECT_EQ(totals.allocated, truth.allocated);
  EXPECT_EQ(totals.reserved, truth.reserved);
  // The folder is a job.
  const Result<TraceSource> job = open_trace(sealed()[0]);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->readers.size(), 2U);
  EXPECT_FALSE(job->incomplete);
}

TEST(WindowTest, IsSealedWhenMemoryGrowsBeyondALimit) {
  const ScratchDirectory directory;
  Host host(directory.path(), directory / "log",
            {"1MiB", "3", "2", "-1", "", "0", std::to_string(30 << 20)});
  EXPECT_EQ(host.wait(), 0);
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    if (!entry.is_directory()) continue;
    ++folders;
    EXPECT_TRUE(entry.path().filename().string().starts_with("above-"));
    EXPECT_EQ(traces_in(entry.path()).size(), 1U);
  }
  EXPECT_EQ(folders, 1U);
}

}  // namespace
}  // namespace tidemark::test
