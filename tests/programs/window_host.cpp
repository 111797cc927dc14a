// A program with an allocator like PyTorch's, whose events it records itself, and which logs its
// true totals (tests/support/window_log.h).
//
//   window_host DIRECTORY LOG KEEP SECONDS[:EVENTS] [THREADS [RANK [JOB [OOM_AFTER_EVENTS [SEAL_ABOVE]]]]]
//
// It runs for so long and until so many events were recorded. Blocks leak slowly: one of 512 bytes
// every thousand events. The first of them gets a name, and so does memory of the driver.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "proto/base/units.h"
#include "tests/support/window_log.h"

namespace {

using namespace tidemark;
using namespace tidemark::injector;
using test::WindowLog;

constexpr uint64_t kSegmentBytes = 20 << 20;
constexpr uint64_t kMostBlockBytes = 10 << 10;

WindowLog* g_log = nullptr;

class Allocator {
 public:
  explicit Allocator(uint64_t oom_after) : oom_after_(oom_after) {}

  // What stays until the end without the framework's knowledge.
  void begin() {
    DriverEvent row{};
    row.time_ns = next_time();
    row.address = 0x7e0000000000;
    row.size_bytes = 4096;
    row.owner = recorder().intern_string("program");
    row.operation = DriverOperation::kAllocate;
    row.kind = MemoryKind::kDevice;
    recorder().record(row);
    give_name(row.address, "table");
    Mark range{};
    range.time_ns = next_time();
    range.correlation = 1;
    range.device = -1;
    range.name = recorder().intern_string("whole program");
    range.phase = MarkPhase::kBegin;
    range.kind = MarkKind::kUser;
    recorder().record(range);
  }

  void act(std::mt19937& dice) {
    uint32_t stacks[97] = {};
    const uint64_t block_bytes = 512 * (1 + dice() % (kMostBlockBytes / 512));
    const int64_t line = test::line_of_block(block_bytes);
    FrameKey frame;
    frame.line = line;
    frame.function = recorder().intern_string("make_block");
    frame.file = recorder().intern_string("train.py");
    frame.kind = FrameKind::kPython;
    stacks[line - 1] = recorder().intern_stack({&frame, 1});

    const std::lock_guard lock(mutex_);
    ++events_;
    if (events_ == oom_after_) run_out();
    if (events_ % 1000 == 0) leak();
    const bool full = live_.size() >= 3000;
    if (!pending_.empty() && dice() % 8 == 0) {
      finish_free(dice() % pending_.size());
    } else if (!live_.empty() && dice() % 100 < (full ? 80U : 40U)) {
      release(dice() % live_.size(), dice() % 4 == 0);
    } else {
      allocate(block_bytes, stacks[line - 1], dice);
    }
  }

 private:
  struct Segment {
    uint64_t address;
    uint64_t blocks = 0;
    std::map<uint64_t, uint64_t> free;  // address -> bytes
  };
  struct Block {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t block_bytes;
    size_t segment;
  };

  int64_t next_time() {
    last_ns_ = std::max(now_ns(), last_ns_ + 1);
    return last_ns_;
  }

  void record(FrameworkAction action, uint64_t address, uint64_t size, uint64_t block_bytes,
              uint32_t stack) {
    FrameworkEvent row{};
    row.time_ns = next_time();
    row.address = address;
    row.size_bytes = size;
    row.block_bytes = block_bytes;
    row.stack = stack;
    row.action = action;
    while (!recorder().record(row)) std::this_thread::yield();
    const uint64_t n = g_log->count.load();
    if (n == WindowLog::kMost) _exit(3);
    g_log->entries[n] = {row.time_ns, allocated_, requested_, reserved_};
    g_log->count.store(n + 1);
  }

  void give_name(uint64_t address, const char* name) {
    TensorTag tag{};
    tag.time_ns = next_time();
    tag.address = address;
    tag.device = -1;
    tag.name = recorder().intern_string(name);
    recorder().record(tag);
  }

  void record_driver(DriverOperation operation, uint64_t address, uint32_t stack) {
    DriverEvent row{};
    row.time_ns = now_ns();
    row.address = address;
    row.size_bytes = operation == DriverOperation::kAllocate ? kSegmentBytes : 0;
    row.stack = stack;
    row.owner = recorder().intern_string("torch");
    row.operation = operation;
    row.kind = MemoryKind::kDevice;
    while (!recorder().record(row)) std::this_thread::yield();
  }

  // A free range that is large enough, from a random place on; as in PyTorch, the block begins where
  // the range does.
  uint64_t take_range(uint64_t bytes, uint32_t stack, std::mt19937& dice, size_t& at) {
    for (at = 0; at < segments_.size(); ++at) {
      auto& free = segments_[at].free;
      if (segments_[at].address == 0) continue;
      auto range = free.lower_bound(segments_[at].address + dice() % kSegmentBytes);
      for (int tries = 0; tries < 64 && !free.empty(); ++tries, ++range) {
        if (range == free.end()) range = free.begin();
        if (range->second < bytes) continue;
        const auto [address, size] = *range;
        free.erase(range);
        if (size > bytes) free[address + bytes] = size - bytes;
        return address;
      }
    }
    add_segment(stack);
    at = segments_.size() - 1;
    Segment& fresh = segments_.back();
    fresh.free = {{fresh.address + bytes, kSegmentBytes - bytes}};
    return fresh.address;
  }

  void give_range(Segment& segment, uint64_t address, uint64_t bytes) {
    auto& free = segment.free;
    auto behind = free.lower_bound(address);
    if (behind != free.end() && behind->first == address + bytes) {
      bytes += behind->second;
      behind = free.erase(behind);
    }
    if (behind != free.begin() && std::prev(behind)->first + std::prev(behind)->second == address) {
      std::prev(behind)->second += bytes;
    } else {
      free[address] = bytes;
    }
  }

  void add_segment(uint32_t stack) {
    Segment segment;
    segment.address = 0x7f0000000000 + next_segment_++ % 64 * kSegmentBytes;
    for (const Segment& other : segments_) {
      if (other.address == segment.address) _exit(4);
    }
    record_driver(DriverOperation::kAllocate, segment.address, stack);
    reserved_ += kSegmentBytes;
    record(FrameworkAction::kSegmentAlloc, segment.address, kSegmentBytes, 0, stack);
    segments_.push_back(segment);
  }

  void allocate(uint64_t block_bytes, uint32_t stack, std::mt19937& dice) {
    size_t at = 0;
    const uint64_t address = take_range(block_bytes, stack, dice, at);
    ++segments_[at].blocks;
    const Block block{address, block_bytes - 12, block_bytes, at};
    allocated_ += block_bytes;
    requested_ += block.size_bytes;
    live_.push_back(block);
    record(FrameworkAction::kAlloc, block.address, block.size_bytes, block_bytes, stack);
  }

  void leak() {
    FrameKey frame;
    frame.line = test::line_of_block(512);
    frame.function = recorder().intern_string("leak");
    frame.kind = FrameKind::kPython;
    std::mt19937 dice(static_cast<unsigned>(events_));
    allocate(512, recorder().intern_stack({&frame, 1}), dice);
    if (events_ == 1000) give_name(live_.back().address, "first leak");
    live_.pop_back();
    Mark step{};
    step.time_ns = now_ns();
    step.name = recorder().intern_string("step");
    step.phase = MarkPhase::kInstant;
    step.kind = MarkKind::kOptimizerStep;
    recorder().record(step);
  }

  void release(size_t i, bool waits) {
    const Block block = live_[i];
    live_[i] = live_.back();
    live_.pop_back();
    allocated_ -= block.block_bytes;
    if (waits) {
      pending_.push_back(block);
      return record(FrameworkAction::kFreeRequested, block.address, block.size_bytes, 0, 0);
    }
    complete(block);
  }

  void finish_free(size_t i) {
    const Block block = pending_[i];
    pending_[i] = pending_.back();
    pending_.pop_back();
    complete(block);
  }

  void complete(const Block& block) {
    requested_ -= block.size_bytes;
    record(FrameworkAction::kFreeCompleted, block.address, block.size_bytes, 0, 0);
    Segment& segment = segments_[block.segment];
    give_range(segment, block.address, block.block_bytes);
    if (--segment.blocks != 0) return;
    reserved_ -= kSegmentBytes;
    record(FrameworkAction::kSegmentFree, segment.address, kSegmentBytes, 0, 0);
    record_driver(DriverOperation::kFree, segment.address, 0);
    segment.address = 0;
    segment.free.clear();
  }

  void run_out() {
    FrameworkEvent event{};
    event.time_ns = next_time();
    event.size_bytes = uint64_t{1} << 40;
    event.action = FrameworkAction::kOutOfMemory;
    recorder().record(event);
    OutOfMemory row{};
    row.time_ns = next_time();
    row.requested_bytes = event.size_bytes;
    row.allocated_bytes = allocated_;
    row.reserved_bytes = reserved_;
    row.layer = Layer::kFramework;
    recorder().record(row);
    recorder().seal_after_error();
    recorder().flush_now(900);
    while (g_log->go_on.load() == 0) usleep(100);
  }

  std::mutex mutex_;
  std::vector<Segment> segments_;
  std::vector<Block> live_;
  std::vector<Block> pending_;
  uint64_t oom_after_;
  uint64_t next_segment_ = 0;
  uint64_t events_ = 0;
  uint64_t allocated_ = 0;
  uint64_t requested_ = 0;
  uint64_t reserved_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(WindowLog)) != 0) return 2;
  void* const pages = mmap(nullptr, sizeof(WindowLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (pages == MAP_FAILED) return 2;
  g_log = static_cast<WindowLog*>(pages);

  const auto number = [&](int i, long long otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const auto keep = parse_keep(argv[3]);
  RecorderOptions options;
  options.directory = argv[1];
  options.buffer_mb = 4;
  options.drain_period_ms = 5;
  options.keep_bytes = keep ? keep->bytes : 0;
  options.keep_ns = keep ? keep->ns : 0;
  options.rank = number(6, -1);
  options.job = argc > 7 ? argv[7] : nullptr;
  options.seal_above_bytes = static_cast<uint64_t>(number(9, 0));
  if (!recorder().start(options)) return 5;
  Process process{};
  process.start_ns = now_ns();
  process.pid = static_cast<uint64_t>(getpid());
  process.rank = options.rank;
  process.world_size = 2;
  process.job = options.job != nullptr ? recorder().intern_string(options.job) : 0;
  process.host = recorder().intern_string("host");
  process.source = Source::kCapture;
  recorder().record(process);

  Allocator allocator(static_cast<uint64_t>(number(8, 0)));
  allocator.begin();
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(static_cast<long>(std::atof(argv[4]) * 1000));
  const char* const colon = std::strchr(argv[4], ':');
  const uint64_t events = colon != nullptr ? std::strtoull(colon + 1, nullptr, 10) : 0;
  std::vector<std::thread> threads;
  for (long long t = 0; t < number(5, 3); ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 dice(static_cast<unsigned>(t) + 7);
      while (std::chrono::steady_clock::now() < end || g_log->count.load() < events) {
        for (int i = 0; i < 50; ++i) allocator.act(dice);
        usleep(1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
