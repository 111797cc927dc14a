#include "injector/recorder/recorder.h"

#include <malloc.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::injector {
namespace {

using test::read_trace;
using test::ScratchDirectory;
using test::TraceContents;

RecorderOptions options_for(const ScratchDirectory& directory, uint32_t buffer_mb = 4) {
  RecorderOptions options;
  options.directory = directory.path().c_str();
  options.buffer_mb = buffer_mb;
  return options;
}

FrameworkEvent event(uint32_t thread, uint64_t number) {
  FrameworkEvent row{};
  row.time_ns = now_ns();
  row.address = number;
  row.thread = thread;
  row.action = FrameworkAction::kAlloc;
  return row;
}

class RecorderTest : public testing::Test {
 protected:
  ~RecorderTest() override { recorder().stop(); }
  // Ends the recording and reads the trace.
  TraceContents finish() {
    const std::string path = recorder().trace_path();
    recorder().stop();
    EXPECT_EQ(directory_.files(".ring"), std::vector<std::string>{});
    return read_trace(path);
  }
  ScratchDirectory directory_;
};

TEST_F(RecorderTest, IsOffBeforeStartAndAfterStop) {
  EXPECT_FALSE(recorder().on());
  EXPECT_FALSE(recorder().record(event(1, 1)));
  EXPECT_EQ(recorder().intern_string("x"), 0U);
  EXPECT_FALSE(recorder().flush_now(10));
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  EXPECT_TRUE(recorder().on());
  EXPECT_TRUE(recorder().start(options_for(directory_))) << "a second start changes nothing";
  recorder().stop();
  EXPECT_FALSE(recorder().on());
  EXPECT_FALSE(recorder().record(event(1, 1)));
}

TEST_F(RecorderTest, WritesEveryRowOnceAndInOrder) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  constexpr uint64_t kRows = 5000;
  for (uint64_t i = 0; i < kRows; ++i) ASSERT_TRUE(recorder().record(event(7, i)));
  const TraceContents trace = finish();
  ASSERT_EQ(trace.framework_events.size(), kRows);
  for (uint64_t i = 0; i < kRows; ++i) EXPECT_EQ(trace.framework_events[i].address, i);
  EXPECT_FALSE(trace.damage.any());
  EXPECT_FALSE(trace.damage.unfinished);
}

TEST_F(RecorderTest, FilesAreForTheUserAloneAndNamedByRank) {
  RecorderOptions options = options_for(directory_);
  const std::string nested = directory_ / "a/b";
  options.directory = nested.c_str();
  options.rank = 3;
  ASSERT_TRUE(recorder().start(options));
  const std::string path = recorder().trace_path();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat((path + ".ring").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat(nested.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  const std::string name = path.substr(path.rfind('/') + 1);
  EXPECT_TRUE(name.starts_with("rank3-")) << name;
  EXPECT_NE(name.find("-" + std::to_string(::getpid()) + ".tmk"), std::string::npos) << name;
}

TEST_F(RecorderTest, SecondRecordingOfAProcessGetsItsOwnFile) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  recorder().record(event(1, 1));
  const uint32_t first = recorder().intern_string("text");
  recorder().stop();
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  recorder().record(event(1, 2));
  EXPECT_NE(recorder().intern_string("text"), 0U);
  EXPECT_NE(first, 0U);
  recorder().stop();
  const auto traces = directory_.files(".tmk");
  ASSERT_EQ(traces.size(), 2U);
  for (const std::string& path : traces) {
    const TraceContents trace = read_trace(path);
    EXPECT_EQ(trace.framework_events.size(), 1U);
    bool has_text = false;
    for (const auto& [id, text] : trace.strings) has_text |= text == "text";
    EXPECT_TRUE(has_text);
  }
}

TEST_F(RecorderTest, FlushNowPutsEverythingIntoTheFile) {
  RecorderOptions options = options_for(directory_);
  options.flush_period_ms = 1'000'000;
  options.drain_period_ms = 1'000'000;
  ASSERT_TRUE(recorder().start(options));
  for (uint64_t i = 0; i < 100; ++i) recorder().record(event(1, i));
  ASSERT_TRUE(recorder().flush_now(10'000));
  EXPECT_EQ(read_trace(recorder().trace_path()).framework_events.size(), 100U);
  recorder().record(event(1, 100));
  ASSERT_TRUE(recorder().flush_now(10'000));
  EXPECT_EQ(read_trace(recorder().trace_path()).framework_events.size(), 101U);
}

TEST_F(RecorderTest, FullRingDropsAndCounts) {
  RecorderOptions options = options_for(directory_);
  ASSERT_TRUE(recorder().start(options));
  uint64_t kept = 0;
  uint64_t dropped = 0;
  // Much faster than the writer can wake up: the ring must overflow at some point.
  for (uint64_t i = 0; i < 3'000'000 && dropped < 1000; ++i) {
    ++(recorder().record(event(1, i)) ? kept : dropped);
  }
  const TraceContents trace = finish();
  EXPECT_EQ(trace.framework_events.size(), kept);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), dropped);
  for (size_t i = 1; i < trace.framework_events.size(); ++i) {
    ASSERT_LT(trace.framework_events[i - 1].address, trace.framework_events[i].address);
  }
}

// Each running thread holds a chunk: with 256 chunks, the 257th thread gets none.
TEST_F(RecorderTest, ThreadsBeyondTheChunksDropAndCount) {
  RecorderOptions options = options_for(directory_);
  options.flush_period_ms = 1'000'000;
  ASSERT_TRUE(recorder().start(options));
  constexpr int kThreads = 300;
  std::atomic<int> kept{0};
  std::atomic<int> done{0};
  std::promise<void> leave;
  const std::shared_future<void> leaving(leave.get_future());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, leaving] {
      kept += recorder().record(event(1, 0)) ? 1 : 0;
      ++done;
      leaving.wait();
    });
  }
  while (done != kThreads) std::this_thread::yield();
  EXPECT_EQ(kept, 256);
  leave.set_value();
  for (std::thread& thread : threads) thread.join();
  const TraceContents trace = finish();
  EXPECT_EQ(trace.framework_events.size(), 256U);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 44U);
}

TEST_F(RecorderTest, ReadOnlyDirectoryTurnsItOffForGood) {
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0555), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);  // root could write
    const bool started = recorder().start(options_for(directory_));
    const bool again = recorder().start(options_for(directory_));
    ::_exit(started || again || recorder().record(event(1, 1)) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(directory_.files("").empty());
}

TEST_F(RecorderTest, SixtyFourThreadsKeepTheirOrder) {
  RecorderOptions options = options_for(directory_, 64);
  options.flush_period_ms = 20;
  ASSERT_TRUE(recorder().start(options));
  constexpr uint32_t kThreads = 64;
  constexpr uint64_t kRows = 3000;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (uint64_t i = 0; i < kRows;) i += recorder().record(event(t, i)) ? 1U : 0U;
    });
  }
  for (std::thread& thread : threads) thread.join();
  const TraceContents trace = finish();
  std::vector<uint64_t> next(kThreads);
  for (const FrameworkEvent& row : trace.framework_events) {
    ASSERT_LT(row.thread, kThreads);
    ASSERT_EQ(row.address, next[row.thread]++);
  }
  for (uint64_t count : next) EXPECT_EQ(count, kRows);
}

TEST_F(RecorderTest, ThreadsReturnTheirChunksWhenTheyEnd) {
  RecorderOptions options = options_for(directory_);  // 256 chunks
  ASSERT_TRUE(recorder().start(options));
  for (uint64_t i = 0; i < 2000; ++i) {
    std::thread([i] { EXPECT_TRUE(recorder().record(event(1, i))); }).join();
    if (i % 100 == 0) recorder().flush_now(10'000);
  }
  EXPECT_EQ(finish().framework_events.size(), 2000U);
}

TEST_F(RecorderTest, StringsHaveOneIdAndOneRow) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  std::vector<std::thread> threads;
  std::mutex lock;
  std::set<std::vector<uint32_t>> answers;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<uint32_t> ids;
      for (int i = 0; i < 500; ++i) ids.push_back(recorder().intern_string(std::to_string(i)));
      const std::lock_guard guard(lock);
      answers.insert(ids);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(answers.size(), 1U) << "every thread must get the same ids";
  const TraceContents trace = finish();
  EXPECT_TRUE(trace.repeated_strings.empty());
  for (size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(trace.strings.at((*answers.begin())[i]), std::to_string(i));
  }
}

TEST_F(RecorderTest, StringsOfEveryLengthAreDistinct) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  std::set<uint32_t> ids;
  for (size_t n = 0; n < 100; ++n) ids.insert(recorder().intern_string(std::string(n, '\0')));
  EXPECT_EQ(ids.size(), 100U);
  EXPECT_FALSE(ids.contains(0));
  const uint32_t huge = recorder().intern_string(std::string(1 << 20, 'x'));
  const TraceContents trace = finish();
  EXPECT_EQ(trace.strings.at(huge), std::string((16 << 10) - 16, 'x')) << "cut to a chunk";
}

TEST_F(RecorderTest, StacksShareTheirOuterFrames) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  const uint32_t module = recorder().intern_module(0x1000, 0x2000, "/lib/a.so", "abcd");
  ASSERT_NE(module, 0U);
  EXPECT_EQ(recorder().intern_module(0x1000, 0x2000, "/lib/a.so", "abcd"), module);
  const auto native = [module](uint64_t offset) {
    FrameKey key;
    key.module = module;
    key.offset = offset;
    key.kind = FrameKind::kNative;
    return key;
  };
  const FrameKey a[] = {native(3), native(2), native(1)};  // 1 called 2 called 3
  const FrameKey b[] = {native(4), native(2), native(1)};
  const uint32_t id_a = recorder().intern_stack(a);
  const uint32_t id_b = recorder().intern_stack(b);
  EXPECT_NE(id_a, id_b);
  EXPECT_EQ(recorder().intern_stack(a), id_a);
  EXPECT_EQ(recorder().intern_stack({}), 0U);
  const TraceContents trace = finish();
  EXPECT_EQ(trace.frames.size(), 4U);
  ASSERT_EQ(trace.stacks.size(), 4U) << "1, 1-2, 1-2-3, 1-2-4";
  std::map<uint32_t, Stack> nodes;
  for (const Stack& node : trace.stacks) nodes[node.id] = node;
  EXPECT_EQ(nodes.at(id_a).parent, nodes.at(id_b).parent);
  std::map<uint32_t, uint64_t> offsets;
  for (const Frame& frame : trace.frames) offsets[frame.id] = frame.offset;
  EXPECT_EQ(offsets.at(nodes.at(id_a).frame), 3U);
  EXPECT_EQ(offsets.at(nodes.at(nodes.at(id_a).parent).frame), 2U);
  ASSERT_EQ(trace.modules.size(), 1U);
  EXPECT_EQ(trace.strings.at(trace.modules[0].path), "/lib/a.so");
}

TEST_F(RecorderTest, FullDictionaryAnswersNoneAndCounts) {
  ASSERT_TRUE(recorder().start(options_for(directory_, 64)));
  uint64_t refused = 0;
  uint64_t known = 0;
  for (uint64_t i = 0; i < 400'000; ++i) {
    FrameKey key;
    key.offset = i;
    while (true) {
      if (recorder().intern_frame(key) != 0) {
        ++known;
      } else if (!recorder().flush_now(10'000)) {
        FAIL();
      } else if (recorder().intern_frame(key) == 0) {
        ++refused;  // not because the ring is full
      } else {
        ++known;
      }
      break;
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_GT(known, 300'000U);
  const TraceContents trace = finish();
  EXPECT_EQ(trace.frames.size(), known);
  EXPECT_GE(trace.health_sum(HealthKind::kEventsDropped), refused);
}

std::atomic<int> handler_results{0};
void record_in_handler(int) {
  handler_results += recorder().record(event(99, 1)) ? 1 : 0;
}

// The timer interrupts a thread that only records: some signals arrive inside the recorder.
TEST_F(RecorderTest, CallsThatInterruptThemselvesAreTurnedAway) {
  RecorderOptions options = options_for(directory_, 64);
  ASSERT_TRUE(recorder().start(options));
  struct sigaction action {};
  action.sa_handler = record_in_handler;
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const pthread_t target = pthread_self();
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    for (int i = 0; i < 20'000; ++i) pthread_kill(target, SIGUSR1);
    stop = true;
  });
  uint64_t kept = 0;
  while (!stop) {
    const std::string text = "s" + std::to_string(kept % 100);
    static_cast<void>(recorder().intern_string(text));
    kept += recorder().record(event(1, kept)) ? 1U : 0U;
  }
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
  const TraceContents trace = finish();
  std::map<uint32_t, uint64_t> rows;
  for (const FrameworkEvent& row : trace.framework_events) {
    if (row.thread == 1) {
      ASSERT_EQ(row.address, rows[1]);
    }
    ++rows[row.thread];
  }
  EXPECT_EQ(rows[1], kept);
  EXPECT_EQ(rows[99], static_cast<uint64_t>(handler_results));
}

TEST_F(RecorderTest, ReentryIsCountedAsDropped) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  {
    const BusyScope inside(BlockKind::kMarks);
    EXPECT_FALSE(recorder().record(event(1, 1)));
    EXPECT_EQ(recorder().intern_string("not now"), 0U);
  }
  EXPECT_TRUE(recorder().record(event(1, 2)));
  const TraceContents trace = finish();
  EXPECT_EQ(trace.framework_events.size(), 1U);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 2U);
}

// Pages in this process's address space, touched or not. malloc would add a heap for each thread,
// and keep it.
size_t mapped_pages() {
  std::ifstream in("/proc/self/statm");
  size_t pages = 0;
  in >> pages;
  return pages;
}

void record_in_threads(unsigned count) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([i] { recorder().record(event(i, recorder().intern_string("x"))); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RecorderTest, EndedRecordingsLeaveNoMemory) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers map memory of their own";
#endif
  mallopt(M_ARENA_MAX, 1);
  size_t before = 0;
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(recorder().start(options_for(directory_)));
    record_in_threads(100);  // more threads than places in a piece of the register
    recorder().stop();
    if (round == 4) before = mapped_pages();
  }
  EXPECT_LE(mapped_pages(), before + 256);  // stacks the C library keeps
}

TEST_F(RecorderTest, AThreadInsideKeepsARecordingsMemoryUntilItLeaves) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers map memory of their own";
#endif
  mallopt(M_ARENA_MAX, 1);
  std::thread([] {}).join();  // the C library keeps its stack
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  recorder().stop();
  const size_t none = mapped_pages();
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  std::promise<void> entered;
  std::promise<void> stopped;
  std::thread inside([&] {
    const BusyScope stay(BlockKind::kMarks);
    Session* const session = stay.session();
    ThreadWriter& writer = stay.writer();
    entered.set_value();
    stopped.get_future().wait();
    // Like a thread that was suspended in the middle of a record, long after the end of the
    // recording.
    const uint32_t bytes = ring::record_bytes(sizeof(FrameworkEvent));
    if (begin_record(writer, session, BlockKind::kFrameworkEvents, bytes) != nullptr) {
      end_record(writer, bytes);
    }
  });
  entered.get_future().wait();
  recorder().stop();
  // The C library keeps the stacks of ended threads, less than a megabyte here.
  const size_t kStacks = 256;
  EXPECT_GT(mapped_pages(), none + kStacks);

  // The next recording is not affected.
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  EXPECT_TRUE(recorder().record(event(1, 2)));
  stopped.set_value();
  inside.join();
  EXPECT_EQ(finish().framework_events.size(), 1U);
  EXPECT_LE(mapped_pages(), none + kStacks);
}

struct TaskProbe {
  std::mutex lock;
  std::condition_variable changed;
  int runs = 0;
  static void run(void* context) noexcept {
    auto& probe = *static_cast<TaskProbe*>(context);
    recorder().record(event(5, 0));
    const std::lock_guard guard(probe.lock);
    ++probe.runs;
    probe.changed.notify_all();
  }
};

TEST_F(RecorderTest, TasksRunUntilStopAndHooksAtStop) {
  TaskProbe task;
  TaskProbe other;
  TaskProbe hook;
  EXPECT_FALSE(recorder().add_background_task(TaskProbe::run, &task, 1)) << "off";
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  ASSERT_TRUE(recorder().add_background_task(TaskProbe::run, &task, 1));
  ASSERT_TRUE(recorder().add_background_task(TaskProbe::run, &other, 1));
  ASSERT_TRUE(recorder().add_finish_hook(TaskProbe::run, &hook));
  for (TaskProbe* probe : {&task, &other}) {
    std::unique_lock guard(probe->lock);
    probe->changed.wait(guard, [&] { return probe->runs >= 3; });
  }
  EXPECT_EQ(hook.runs, 0);
  const TraceContents trace = finish();
  EXPECT_EQ(hook.runs, 1);
  const int total = task.runs + other.runs + hook.runs;
  EXPECT_EQ(trace.framework_events.size(), static_cast<size_t>(total));
}

TEST_F(RecorderTest, ReportsItsState) {
  ASSERT_TRUE(recorder().start(options_for(directory_)));
  recorder().record(event(1, 1));
  recorder().count_dropped(BlockKind::kKernels, 17);
  recorder().add_overhead_ns(1234);
  recorder().add_own_host_bytes(5678);
  recorder().report(HealthKind::kSourceMissing, 1, "libcupti: not found");
  const TraceContents trace = finish();
  EXPECT_FALSE(trace.clock_samples.empty());
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 17U);
  EXPECT_GE(trace.health_sum(HealthKind::kOverheadNs), 1234U);
  bool own = false;
  for (const Counter& row : trace.counters) {
    own |= row.kind == CounterKind::kOwnHost && row.value > 5678;
  }
  EXPECT_TRUE(own);
  bool missing = false;
  for (const Health& row : trace.health) {
    missing |= row.kind == HealthKind::kSourceMissing &&
               trace.strings.at(row.detail) == "libcupti: not found";
  }
  EXPECT_TRUE(missing);
  EXPECT_FALSE(trace.threads.empty()) << "threads that recorded are named";
}

}  // namespace
}  // namespace tidemark::injector
