// Measures what one record costs the thread that makes it, against two peers in the same run: a
// copy of the row alone (CopyRow, the limit) and one buffer under a mutex (MutexBuffer, the usual
// way). `Record` includes everything the host pays. Its result is only valid without drops, which
// it counts; so the threads pause, with the timer stopped, to let the writer catch up.
//
//   recorder_bench [Google Benchmark options]
//
// Instructions per record:
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='record_burst*'
//     recorder_bench --callgrind
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "injector/recorder/hashed_ids.h"
#include "injector/recorder/recorder.h"

namespace {

using namespace tidemark;
using namespace tidemark::injector;

constexpr int kBurst = 1024;

DriverEvent sample_row() {
  DriverEvent row{};
  row.time_ns = now_ns();
  row.address = 0x7f0000000000;
  row.size_bytes = 1 << 20;
  row.operation = DriverOperation::kAllocate;
  row.kind = MemoryKind::kDevice;
  return row;
}

// One recording for all benchmarks of the process.
class Recording {
 public:
  Recording() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tidemark-bench-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    RecorderOptions options;
    options.directory = directory_.c_str();
    options.buffer_mb = 256;
    if (!recorder().start(options)) std::exit(1);
  }
  ~Recording() {
    recorder().stop();
    std::filesystem::remove_all(directory_);
  }

 private:
  std::string directory_;
};

__attribute__((noinline)) uint64_t record_burst(DriverEvent& row) {
  uint64_t dropped = 0;
  for (int i = 0; i < kBurst; ++i) {
    row.address += 512;
    dropped += recorder().record(row) ? 0U : 1U;
  }
  return dropped;
}

void Record(benchmark::State& state) {
  DriverEvent row = sample_row();
  uint64_t dropped = 0;
  int bursts = 0;
  for (auto _ : state) {
    dropped += record_burst(row);
    if (++bursts % 64 == 0) {
      state.PauseTiming();
      recorder().flush_now(10'000);
      state.ResumeTiming();
    }
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
  state.counters["dropped"] = static_cast<double>(dropped);
}

void RecordWithClock(benchmark::State& state) {
  DriverEvent row = sample_row();
  uint64_t dropped = 0;
  int bursts = 0;
  for (auto _ : state) {
    for (int i = 0; i < kBurst; ++i) {
      row.time_ns = now_ns();
      dropped += recorder().record(row) ? 0U : 1U;
    }
    if (++bursts % 64 == 0) {
      state.PauseTiming();
      recorder().flush_now(10'000);
      state.ResumeTiming();
    }
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
  state.counters["dropped"] = static_cast<double>(dropped);
}

// The part of RecordWithClock that is the clock.
void Clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(now_ns());
}

// The counter that clock is based on, without the conversion to CLOCK_REALTIME: the most that
// converting it ourselves could save. We would have to follow the kernel's corrections, and two
// threads that apply different corrections would put a free before its allocation. So we use the
// kernel's clock.
void RawCounter(benchmark::State& state) {
  for (auto _ : state) {
#if defined(__x86_64__)
    benchmark::DoNotOptimize(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
    uint64_t ticks = 0;
    asm volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks));
    benchmark::DoNotOptimize(ticks);
#endif
  }
}

// The limit: the same bytes into warm memory that only this thread uses.
void CopyRow(benchmark::State& state) {
  DriverEvent row = sample_row();
  std::vector<DriverEvent> buffer(kBurst);
  for (auto _ : state) {
    for (int i = 0; i < kBurst; ++i) {
      row.address += 512;
      std::memcpy(&buffer[static_cast<size_t>(i)], &row, sizeof row);
      benchmark::ClobberMemory();
    }
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
}

// The peer: one buffer for all threads, under a mutex, reused from the start when it is full.
void MutexBuffer(benchmark::State& state) {
  static std::mutex lock;
  static std::vector<DriverEvent> buffer(1 << 16);
  static size_t used = 0;
  DriverEvent row = sample_row();
  for (auto _ : state) {
    for (int i = 0; i < kBurst; ++i) {
      row.address += 512;
      const std::lock_guard guard(lock);
      buffer[used] = row;
      used = (used + 1) % buffer.size();
    }
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
}

void InternKnownString(benchmark::State& state) {
  const std::string text(static_cast<size_t>(state.range(0)), 'k');
  for (auto _ : state) benchmark::DoNotOptimize(recorder().intern_string(text));
}

void InternKnownStack(benchmark::State& state) {
  std::vector<FrameKey> frames(static_cast<size_t>(state.range(0)));
  for (size_t i = 0; i < frames.size(); ++i) frames[i].offset = i;
  for (auto _ : state) benchmark::DoNotOptimize(recorder().intern_stack(frames));
}

// As many stacks as a training step has, in a table that may hold a quarter of a million, and in
// one that is no larger than they are (the limit). Before each round other work, as a step is, has
// filled the processor's second cache. No lookup begins before the last one has ended.
void FindEachStack(benchmark::State& state) {
  constexpr uint64_t kStacks = 700;
  HashedIds table;
  if (!table.create(static_cast<uint32_t>(state.range(0)))) return state.SkipWithError("no memory");
  std::vector<HashKey> keys;
  for (uint64_t i = 0; i < kStacks; ++i) keys.push_back(extended({}, i));
  for (const HashKey& key : keys) table.find_or_add(key, [] { return 1U; });
  std::vector<uint64_t> other_work((size_t{4} << 20) / sizeof(uint64_t));
  for (auto _ : state) {
    state.PauseTiming();
    for (uint64_t& word : other_work) ++word;
    state.ResumeTiming();
    for (size_t i = 0; i < kStacks;) i += table.find(keys[i]);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kStacks));
  table.unmap();
}

BENCHMARK(CopyRow);
BENCHMARK(Record)->ThreadRange(1, 8)->UseRealTime();
BENCHMARK(RecordWithClock);
BENCHMARK(Clock);
BENCHMARK(RawCounter);
BENCHMARK(MutexBuffer)->ThreadRange(1, 8)->UseRealTime();
BENCHMARK(InternKnownString)->Arg(16)->Arg(256);
BENCHMARK(InternKnownStack)->Arg(8)->Arg(64);
BENCHMARK(FindEachStack)->Arg(18)->Arg(12);

}  // namespace

int main(int argc, char** argv) {
  const Recording recording;
  if (argc > 1 && std::strcmp(argv[1], "--callgrind") == 0) {
    DriverEvent row = sample_row();
    uint64_t dropped = 0;
    for (int i = 0; i < 100; ++i) dropped += record_burst(row);
    std::printf("%d records, %llu dropped\n", 100 * kBurst,
                static_cast<unsigned long long>(dropped));
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
