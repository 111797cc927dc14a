// The real libtidemark.so in a process with the simulated driver: compares what a program did with
// its trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "tests/support/capture_run.h"

namespace tidemark::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const std::string kHost = TIDEMARK_CAPTURE_HOST;

std::vector<DriverEvent> in_order(std::vector<DriverEvent> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  return events;
}

size_t count_events(const TraceContents& trace, DriverOperation operation, MemoryKind kind) {
  return static_cast<size_t>(std::count_if(
      trace.driver_events.begin(), trace.driver_events.end(),
      [&](const auto& e) { return e.operation == operation && e.kind == kind && e.result == 0; }));
}

size_t count_imports(const TraceContents& trace) {
  std::set<std::pair<int64_t, uint64_t>> calls;
  for (const DriverEvent& event : trace.driver_events) {
    if (event.operation == DriverOperation::kImport) {
      calls.insert({event.time_ns, event.correlation});
    }
  }
  return calls.size();
}

bool has_health(const TraceContents& trace, const std::string& part) {
  return std::any_of(trace.health.begin(), trace.health.end(), [&](const Health& row) {
    const auto text = trace.strings.find(row.detail);
    return text != trace.strings.end() && text->second.find(part) != std::string::npos;
  });
}

uint64_t greatest(const TraceContents& trace, CounterKind kind, int64_t device = 0) {
  uint64_t value = 0;
  for (const Counter& row : trace.counters) {
    if (row.kind == kind && row.device == device) value = std::max(value, row.value);
  }
  return value;
}

// Live bytes by device and kind over time, as a reader of the trace would compute them.
class Ledger {
 public:
  void apply(const DriverEvent& e) {
    if (e.result != 0 || (e.flags & kDriverRemote) != 0) return;
    // Arrays and VMM memory are identified by handles, everything else by address.
    const bool by_handle = e.kind == MemoryKind::kArray ||
                           e.operation == DriverOperation::kCreate ||
                           e.operation == DriverOperation::kRelease;
    const uint64_t key = by_handle ? e.handle : e.address;
    switch (e.operation) {
      case DriverOperation::kAllocate:
      case DriverOperation::kRegister:
        add(key, e);
        break;
      case DriverOperation::kCreate:
        add(key, e);
        references_[e.handle] = 1;
        break;
      case DriverOperation::kFree:
      case DriverOperation::kUnregister:
        remove(key);
        break;
      case DriverOperation::kRetain:
        ++references_[e.handle];
        break;
      case DriverOperation::kMap:
        ++references_[e.handle];
        mapped_[e.address] = e;
        break;
      case DriverOperation::kRelease:
        drop(e.handle);
        break;
      case DriverOperation::kUnmap:
        for (auto it = mapped_.begin(); it != mapped_.end();) {
          const bool inside = it->first >= e.address && it->first < e.address + e.size_bytes;
          if (inside) drop(it->second.handle);
          it = inside ? mapped_.erase(it) : std::next(it);
        }
        break;
      default:
        break;
    }
  }
  void import_own(uint64_t handle) { ++references_[handle]; }

  std::map<std::pair<int64_t, MemoryKind>, uint64_t> peak;
  uint64_t live_bytes() const {
    uint64_t sum = 0;
    for (const auto& [key, e] : live_) sum += e.size_bytes;
    return sum;
  }
  size_t twice = 0;

 private:
  void add(uint64_t key, const DriverEvent& e) {
    if (!live_.emplace(key, e).second) ++twice;
    auto& now = now_[{e.device, e.kind}];
    now += e.size_bytes;
    auto& most = peak[{e.device, e.kind}];
    most = std::max(most, now);
  }
  void remove(uint64_t key) {
    const auto found = live_.find(key);
    if (found == live_.end()) return;
    now_[{found->second.device, found->second.kind}] -= found->second.size_bytes;
    live_.erase(found);
  }
  void drop(uint64_t handle) {
    if (--references_[handle] == 0) remove(handle);
  }

  std::map<uint64_t, DriverEvent> live_;
  std::map<uint64_t, DriverEvent> mapped_;
  std::map<uint64_t, int> references_;
  std::map<std::pair<int64_t, MemoryKind>, uint64_t> now_;
};

// Reads {"device":0,"expected_peak":{"array":1,…}} of the sample, without a JSON library.
std::map<std::pair<int64_t, std::string>, uint64_t> expected_peaks(const std::string& text) {
  std::map<std::pair<int64_t, std::string>, uint64_t> out;
  int64_t device = -1;
  for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at)) {
    const size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    const std::string word = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (at + 1 >= text.size() || text[at] != ':' || std::isdigit(text[at + 1]) == 0) continue;
    const uint64_t number = std::stoull(text.substr(at + 1));
    if (word == "device" && text[at + 2] == ',') {
      device = static_cast<int64_t>(number);
    } else {
      out[{device, word}] = number;
    }
  }
  return out;
}

const std::map<std::string, MemoryKind> kKindNames = {
    {"array", MemoryKind::kArray},     {"device", MemoryKind::kDevice},
    {"graph", MemoryKind::kGraph},     {"managed", MemoryKind::kManaged},
    {"pinned", MemoryKind::kPinned},   {"pitched", MemoryKind::kPitched},
    {"virtual", MemoryKind::kVirtual}, {"stream_ordered", MemoryKind::kStreamOrdered}};

TEST(CaptureSystem, EveryKindOfMemoryIsRecordedToTheByte) {
  CaptureRun run;
  run.run(std::string(TIDEMARK_ALL_KINDS) + " 350");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(run.complaints(), 0u) << run.errors();
  EXPECT_TRUE(run.rings().empty());
  const auto files = run.traces();
  ASSERT_EQ(files.size(), 2u) << "the program and the child that opens its memory";
  // The child is the process with an import.
  TraceContents parent = read_trace(files[0]);
  TraceContents child = read_trace(files[1]);
  if (count_events(parent, DriverOperation::kImport, MemoryKind::kIpc) != 0) {
    std::swap(parent, child);
  }
  // The row of an import is recorded again if its size was queried before it was closed.
  const size_t import_rows = count_events(child, DriverOperation::kImport, MemoryKind::kIpc);
  EXPECT_TRUE(import_rows == 1 || import_rows == 2) << import_rows;
  EXPECT_EQ(count_imports(child), 1u);
  EXPECT_EQ(count_events(child, DriverOperation::kFree, MemoryKind::kIpc), 1u);

  Ledger ledger;
  for (const DriverEvent& event : in_order(parent.driver_events)) {
    if (event.operation == DriverOperation::kImport) ledger.import_own(event.handle);
    ledger.apply(event);
  }
  const auto expected = expected_peaks(run.output());
  ASSERT_GE(expected.size(), 9u) << run.output();
  for (const auto& [key, bytes] : expected) {
    const auto kind = kKindNames.find(key.second);
    ASSERT_NE(kind, kKindNames.end()) << key.second;
    EXPECT_EQ((ledger.peak[{key.first, kind->second}]), bytes) << key.second;
  }
  EXPECT_EQ(ledger.live_bytes(), 0u);
  EXPECT_EQ(ledger.twice, 0u);
  EXPECT_EQ(count_events(parent, DriverOperation::kContextCreate, MemoryKind::kContext), 2u);
  EXPECT_EQ(count_events(parent, DriverOperation::kModuleLoad, MemoryKind::kCode), 1u);
  EXPECT_EQ(count_events(parent, DriverOperation::kGraphLaunch, MemoryKind::kGraph), 1u);
  EXPECT_GE(greatest(parent, CounterKind::kGraphReserved), 4 * kMiB) << "the driver rounds up";
  EXPECT_EQ(greatest(parent, CounterKind::kPoolUsed), 10 * kMiB);
  EXPECT_GE(greatest(parent, CounterKind::kDeviceUsed), 100 * kMiB);
}

TEST(CaptureSystem, StacksLeadToTheProgram) {
  CaptureRun run;
  const TraceContents trace = run.run(kHost + " hold 1").trace();
  std::map<uint32_t, Frame> frames;
  std::map<uint32_t, Module> modules;
  std::map<uint32_t, Stack> stacks;
  for (const auto& row : trace.frames) frames[row.id] = row;
  for (const auto& row : trace.modules) modules[row.id] = row;
  for (const auto& row : trace.stacks) stacks[row.id] = row;
  size_t checked = 0;
  for (const DriverEvent& event : trace.driver_events) {
    if (event.operation != DriverOperation::kAllocate) continue;
    ASSERT_NE(event.stack, 0u);
    EXPECT_EQ(trace.strings.at(event.owner), "program");
    const Frame& innermost = frames.at(stacks.at(event.stack).frame);
    const Module& module = modules.at(innermost.module);
    EXPECT_NE(trace.strings.at(module.path).find("capture_host"), std::string::npos)
        << "frames of tidemark, CUPTI and driver are left out";
    EXPECT_EQ(innermost.kind, FrameKind::kNative);
    EXPECT_LT(innermost.offset, module.size_bytes);
    EXPECT_EQ(trace.strings.at(module.build_id).size(), 40u);
    ++checked;
  }
  EXPECT_EQ(checked, 2u);
}

TEST(CaptureSystem, StacksCanBeSwitchedOff) {
  CaptureRun run;
  const TraceContents trace = run.with("TIDEMARK_STACKS", "none").run(kHost + " hold 1").trace();
  EXPECT_GE(trace.driver_events.size(), 3u);
  EXPECT_TRUE(trace.stacks.empty());
}

TEST(CaptureSystem, FailedCallsAreRecordedWithTheRequestedSize) {
  CaptureRun run;
  const TraceContents trace = run.run(kHost + " failures").trace();
  EXPECT_NE(run.output().find("alloc 2"), std::string::npos) << run.output();
  std::set<uint64_t> failed;
  for (const DriverEvent& event : trace.driver_events) {
    if (event.result == 0) continue;
    EXPECT_EQ(event.operation, DriverOperation::kAllocate) << "failed frees change nothing";
    EXPECT_EQ(event.result, 2u);
    EXPECT_EQ(event.address, 0u);
    EXPECT_NE(event.stack, 0u);
    failed.insert(event.size_bytes);
  }
  EXPECT_EQ(failed, (std::set<uint64_t>{uint64_t{1} << 45, uint64_t{1} << 44}));
  const auto rows = rows_of<OutOfMemory>(run.traces().at(0));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].layer, Layer::kDriver);
  EXPECT_EQ(count_events(trace, DriverOperation::kFree, MemoryKind::kDevice), 0u);
}

TEST(CaptureSystem, WithManyThreadsNoAddressIsLiveTwice) {
  CaptureRun run;
  const TraceContents trace = run.run(kHost + " threads 64").trace();
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(count_events(trace, DriverOperation::kAllocate, MemoryKind::kDevice), 6400u);
  EXPECT_EQ(count_events(trace, DriverOperation::kFree, MemoryKind::kDevice), 6400u);
  Ledger ledger;
  for (const DriverEvent& event : in_order(trace.driver_events)) ledger.apply(event);
  EXPECT_EQ(ledger.twice, 0u);
  EXPECT_EQ(ledger.live_bytes(), 0u);
  std::set<uint32_t> seen;
  for (const DriverEvent& event : trace.driver_events) seen.insert(event.thread);
  EXPECT_EQ(seen.size(), 65u);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 0u);
}

TEST(CaptureSystem, Kernels) {
  CaptureRun run;
  run.run(kHost + " kernels 2500");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  const auto kernels = rows_of<Kernel>(run.traces().at(0));
  ASSERT_EQ(kernels.size(), 2500u);
  const TraceContents trace = run.trace();
  std::set<uint32_t> correlations;
  for (const Kernel& kernel : kernels) {
    EXPECT_EQ(trace.strings.at(kernel.name), "idle");
    EXPECT_EQ(kernel.grid_x, 3u);
    EXPECT_EQ(kernel.block_x, 64u);
    EXPECT_EQ(kernel.duration_ns, 10000u);
    correlations.insert(kernel.correlation);
  }
  EXPECT_EQ(correlations.size(), 2500u);
  EXPECT_TRUE(rows_of<Copy>(run.traces().at(0)).empty()) << "only when enabled";
  EXPECT_EQ(greatest(trace, CounterKind::kOwnDevice), 0u);
}

TEST(CaptureSystem, CopiesAndKernelsOnlyWhenEnabled) {
  CaptureRun run;
  run.with("TIDEMARK_COPIES", "1").with("TIDEMARK_KERNELS", "0").run(kHost + " kernels 10");
  EXPECT_TRUE(rows_of<Kernel>(run.traces().at(0)).empty());
  const auto copies = rows_of<Copy>(run.traces().at(0));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].kind, CopyKind::kSet);
  EXPECT_EQ(copies[0].size_bytes, kMiB);
}

TEST(CaptureSystem, DevicesAndSettings) {
  CaptureRun run;
  run.with("NCCL_BUFFSIZE", "123").with("SECRET_TOKEN", "hush").with("RANK", "3");
  run.with("WORLD_SIZE", "4").with("LOCAL_RANK", "1").with("TORCHELASTIC_RUN_ID", "job-7");
  run.run(kHost + " hold 250");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  const std::string path = run.traces().at(0);
  EXPECT_NE(path.find("rank3-"), std::string::npos);
  const TraceContents trace = read_trace(path);
  const auto devices = rows_of<Device>(path);
  ASSERT_EQ(devices.size(), 1u) << "only the one in use";
  EXPECT_EQ(devices[0].ordinal, 0);
  EXPECT_EQ(trace.strings.at(devices[0].name), "Simulated GPU");
  EXPECT_TRUE(trace.strings.at(devices[0].uuid).starts_with("GPU-"));
  EXPECT_GT(devices[0].total_bytes, 0u);
  EXPECT_GT(devices[0].reserved_bytes, 0u);
  EXPECT_EQ(devices[0].compute_major, 9u);
  const auto processes = rows_of<Process>(path);
  ASSERT_EQ(processes.size(), 2u) << "at the start, and once the driver can be queried";
  EXPECT_EQ(processes[0].driver_version, 0u);
  EXPECT_EQ(processes[1].driver_version, 13000u);
  EXPECT_EQ(processes[1].pid, processes[0].pid);
  EXPECT_EQ(processes[1].rank, 3);
  EXPECT_EQ(processes[0].rank, 3);
  EXPECT_EQ(processes[0].local_rank, 1);
  EXPECT_EQ(processes[0].world_size, 4u);
  EXPECT_EQ(trace.strings.at(processes[0].job), "job-7");
  EXPECT_NE(trace.strings.at(processes[0].command).find("hold 250"), std::string::npos);
  std::map<std::string, std::string> settings;
  for (const Setting& row : rows_of<Setting>(path)) {
    settings[trace.strings.at(row.key)] = trace.strings.at(row.value);
  }
  EXPECT_EQ(settings["NCCL_BUFFSIZE"], "123");
  EXPECT_EQ(settings.count("SECRET_TOKEN"), 0u);
  EXPECT_EQ(settings.count("PATH"), 0u);
  for (const auto& [id, text] : trace.strings) EXPECT_EQ(text.find("hush"), std::string::npos);
}

TEST(CaptureSystem, NvmlSeesTheProcess) {
  CaptureRun run;
  ScratchDirectory cards;
  const TraceContents trace = run.with("SIMGPU_DIR", cards.path()).run(kHost + " hold 400").trace();
  EXPECT_GE(greatest(trace, CounterKind::kDeviceUsed), 64 * kMiB);
  EXPECT_GT(greatest(trace, CounterKind::kDeviceFree), 0u);
  EXPECT_GT(greatest(trace, CounterKind::kDeviceReserved), 0u);
  EXPECT_GE(greatest(trace, CounterKind::kProcessUsed), 64 * kMiB);
}

TEST(CaptureSystem, InAContainerTheOnlyProcessIsUs) {
  CaptureRun run;
  ScratchDirectory cards;
  run.with("SIMGPU_DIR", cards.path()).with("SIMGPU_PID_OFFSET", "100000");
  const TraceContents trace = run.run(kHost + " hold 400").trace();
  const auto processes = rows_of<Process>(run.traces().at(0));
  ASSERT_FALSE(processes.empty());
  size_t own = 0;
  for (const Counter& row : trace.counters) {
    if (row.kind != CounterKind::kProcessUsed) continue;
    EXPECT_EQ(row.subject, processes[0].pid);
    ++own;
  }
  EXPECT_GT(own, 0u);
}

TEST(CaptureSystem, OnASharedCardWithHiddenPidsOnlyTotalsRemain) {
  CaptureRun run;
  ScratchDirectory cards;
  run.with("SIMGPU_DIR", cards.path()).with("SIMGPU_PID_OFFSET", "100000");
  run.run("sh -c '" + kHost + " hold 1500 & " + kHost + " hold 1500; wait'");
  ASSERT_EQ(run.traces().size(), 2u);
  for (const std::string& path : run.traces()) {
    const TraceContents trace = read_trace(path);
    EXPECT_TRUE(has_health(trace, "cannot tell which process is ours"));
    EXPECT_GE(greatest(trace, CounterKind::kDeviceUsed), 128 * kMiB);
  }
}

TEST(CaptureSystem, ImportsLearnTheirSize) {
  CaptureRun run;
  ScratchDirectory cards;
  run.with("SIMGPU_DIR", cards.path()).run(kHost + " ipc 500");
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  std::vector<DriverEvent> imports;
  for (const std::string& path : run.traces()) {
    for (const DriverEvent& event : read_trace(path).driver_events) {
      if (event.operation == DriverOperation::kImport) imports.push_back(event);
    }
  }
  // Recorded at once without its size, and again when the size is known.
  ASSERT_EQ(imports.size(), 2u);
  EXPECT_EQ(imports[0].time_ns, imports[1].time_ns);
  EXPECT_EQ(imports[0].address, imports[1].address);
  EXPECT_EQ(imports[0].correlation, imports[1].correlation);
  EXPECT_EQ(std::max(imports[0].size_bytes, imports[1].size_bytes), 6 * kMiB);
  EXPECT_EQ(std::min(imports[0].size_bytes, imports[1].size_bytes), 0u);
}

TEST(CaptureSystem, MemoryOfACapturedStreamBelongsToItsGraph) {
  CaptureRun run;
  const TraceContents trace = run.run(kHost + " captured").trace();
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(count_events(trace, DriverOperation::kAllocate, MemoryKind::kGraph), 1u);
  EXPECT_EQ(count_events(trace, DriverOperation::kFree, MemoryKind::kGraph), 1u);
  EXPECT_EQ(count_events(trace, DriverOperation::kAllocate, MemoryKind::kStreamOrdered), 1u);
}

TEST(CaptureSystem, SamplingIsSafeWhilePoolsComeAndGo) {
  CaptureRun run;
  const TraceContents trace = run.run(kHost + " pools").trace();
  ASSERT_EQ(run.exit_status(), 0) << run.errors();
  EXPECT_EQ(count_events(trace, DriverOperation::kPoolCreate, MemoryKind::kStreamOrdered), 200u);
  EXPECT_EQ(count_events(trace, DriverOperation::kPoolDestroy, MemoryKind::kStreamOrdered), 200u);
  std::set<uint32_t> pools;
  for (const DriverEvent& event : trace.driver_events) {
    if (event.operation == DriverOperation::kAllocate) pools.insert(event.pool);
  }
  EXPECT_EQ(pools.size(), 200u) << "a handle that is reused is another pool";
}

}  // namespace
}  // namespace tidemark::test
