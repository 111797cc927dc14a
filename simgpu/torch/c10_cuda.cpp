// libc10_cuda.so: a caching allocator that reports to its listeners as torch's does.
//
// The order of its reports is torch's: the trace entry, then the statistics, then the report to the
// profiler, all under the device lock; the current stream is queried before it. Blocks are found by
// best fit and split; segments are 2 MiB, 20 MiB or as large as requested.
#include <c10/cuda/CUDACachingAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "abi/cuda.h"
#include "simgpu/torch/standin.h"

#define STANDIN_API __attribute__((visibility("default")))

extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuMemAlloc_v2(unsigned long long*, size_t);
int cuMemFree_v2(unsigned long long);
int cuMemGetInfo_v2(size_t* free, size_t* total);
int cuDeviceGetDefaultMemPool(void** pool, int device);
int cuMemPoolSetAttribute(void* pool, int attribute, void* value);
int cuMemPoolGetAttribute(void* pool, int attribute, void* value);
int cuMemAllocAsync(unsigned long long* address, size_t size, void* stream);
int cuMemFreeAsync(unsigned long long address, void* stream);
int cuMemAddressReserve(unsigned long long* address, size_t size, size_t alignment,
                        unsigned long long hint, unsigned long long flags);
int cuMemAddressFree(unsigned long long address, size_t size);
int cuMemCreate(unsigned long long* handle, size_t size, const void* where,
                unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cuMemMap(unsigned long long address, size_t size, size_t offset, unsigned long long handle,
             unsigned long long flags);
int cuMemUnmap(unsigned long long address, size_t size);
void standin_set_node(int on);
void standin_run_node(uint64_t sequence, uint64_t thread);
}

namespace c10 {

void reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device);
void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device);

namespace cuda {

STANDIN_API CUDAStream getCurrentCUDAStream(DeviceIndex device) {
  return {{1, device}, 0};
}

namespace CUDACachingAllocator {

STANDIN_API std::atomic<CUDAAllocator*> allocator{nullptr};

namespace {

constexpr size_t kMinBlock = 512;
constexpr size_t kSmall = 1 << 20;
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kRound = 2 << 20;

struct Block {
  size_t size = 0;
  size_t requested = 0;
  uint64_t stream = 0;
  MempoolId_t pool{0, 0};
  size_t segment = 0;
  bool allocated = false;
  bool used_elsewhere = false;
  bool pending = false;
  bool small = false;
};

// The backend cudaMallocAsync: the driver's default pool, whose attributes are the statistics.
class AsyncPool {
 public:
  void init() {
    cuDeviceGetDefaultMemPool(&pool_, 0);
    unsigned long long most = UINT64_MAX;
    cuMemPoolSetAttribute(pool_, 4, &most);
    for (int attribute = 1; attribute <= 3; ++attribute) {
      int on = 1;
      cuMemPoolSetAttribute(pool_, attribute, &on);
    }
  }
  uint64_t malloc(size_t size) {
    unsigned long long address = 0;
    const bool done = cuMemAllocAsync(&address, size, nullptr) == 0;
    ooms_ += done ? 0 : 1;
    return done ? address : 0;
  }
  void free(uint64_t address) { cuMemFreeAsync(address, nullptr); }
  void reset_peaks() {
    for (const int attribute : {6, 8}) {
      unsigned long long zero = 0;
      cuMemPoolSetAttribute(pool_, attribute, &zero);
    }
  }
  void stats(StandinStats* out) {
    *out = {attribute(7), attribute(8), 0, 0, attribute(5), attribute(6), ooms_};
  }

 private:
  uint64_t attribute(int which) {
    unsigned long long value = 0;
    cuMemPoolGetAttribute(pool_, which, &value);
    return value;
  }
  void* pool_ = nullptr;
  uint64_t ooms_ = 0;
};

// VMM memory of a pluggable allocator, which can be unmapped behind the allocator's back.
class SleepingMemory {
 public:
  uint64_t take(size_t bytes) {
    unsigned long long address = 0;
    Range range{bytes, 0};
    if (cuMemAddressReserve(&address, bytes, 0, 0, 0) != 0 || !fill(address, range)) return 0;
    ranges_[address] = range;
    return address;
  }
  bool give(uint64_t address) {
    const auto it = ranges_.find(address);
    if (it == ranges_.end()) return false;
    empty(address, it->second);
    cuMemAddressFree(address, it->second.bytes);
    ranges_.erase(it);
    return true;
  }
  void sleep() {
    for (auto& [address, range] : ranges_) empty(address, range);
  }
  void wake() {
    for (auto& [address, range] : ranges_) fill(address, range);
  }

 private:
  struct Range {
    size_t bytes;
    unsigned long long handle;  // 0: asleep
  };
  static bool fill(uint64_t address, Range& range) {
    if (range.handle != 0) return true;
    tidemark::cuda::CUmemAllocationProp where{};
    where.type = tidemark::cuda::CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location.type = tidemark::cuda::CU_MEM_LOCATION_TYPE_DEVICE;
    if (cuMemCreate(&range.handle, range.bytes, &where, 0) != 0) return false;
    return cuMemMap(address, range.bytes, 0, range.handle, 0) == 0;
  }
  static void empty(uint64_t address, Range& range) {
    if (range.handle == 0) return;
    cuMemUnmap(address, range.bytes);
    cuMemRelease(range.handle);
    range.handle = 0;
  }
  std::map<uint64_t, Range> ranges_;
};

class StandinAllocator : public CUDAAllocator {
 public:
  // Nobody may ask it anything after this. STANDIN_SLOW_END: the end of the process takes a second.
  ~StandinAllocator() override {
    gone_ = true;
    if (std::getenv("STANDIN_SLOW_END") != nullptr) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }

  bool initialized() override { return ready_; }
  std::string name() override { return asynchronous_ ? "cudaMallocAsync" : "native"; }

  void init() {
    void* context = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    context_ = context;
    ready_ = true;
  }

  uint64_t malloc(size_t size, uint64_t stream) {
    cuCtxSetCurrent(context_);
    getCurrentCUDAStream(0);
    if (asynchronous_) return pool_.malloc(size);
    const std::lock_guard lock(mutex_);
    const size_t rounded = std::max(kMinBlock, (size + kMinBlock - 1) / kMinBlock * kMinBlock);
    auto block = find_free(rounded, stream);
    if (block == blocks_.end()) block = grow(rounded, stream);
    if (block == blocks_.end()) {
      release_cached();
      ++retries_;
      block = grow(rounded, stream);
    }
    if (block == blocks_.end()) return fail(rounded, stream);
    split(block, rounded);
    block->second.allocated = true;
    block->second.requested = size;
    trace(TraceEntry::ALLOC, block->first, size, stream, block->second.pool);
    allocated_ += block->second.size;
    requested_ += size;
    stats_.allocated_peak = std::max<uint64_t>(stats_.allocated_peak, allocated_);
    stats_.requested_peak = std::max<uint64_t>(stats_.requested_peak, requested_);
    report(block->first, static_cast<int64_t>(block->second.size));
    return block->first;
  }

  void free(uint64_t address) {
    if (asynchronous_) return pool_.free(address);
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(address);
    if (block == blocks_.end() || !block->second.allocated) return;
    const auto size = static_cast<int64_t>(block->second.size);
    allocated_ -= block->second.size;
    trace(TraceEntry::FREE_REQUESTED, address, block->second.requested, block->second.stream,
          block->second.pool);
    block->second.allocated = false;
    if (block->second.used_elsewhere) {
      block->second.pending = true;
    } else {
      complete(block);
    }
    report(address, -size);
  }

  void record_stream(uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(address);
    if (block != blocks_.end()) block->second.used_elsewhere = true;
  }

  void process_events() {
    const std::lock_guard lock(mutex_);
    finish_pending();
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    release_cached();
  }

  void set_limit(size_t bytes) { limit_ = bytes; }
  void set_fraction(double fraction) {
    limit_ = static_cast<size_t>(std::llround(fraction * static_cast<double>(card().total)));
  }
  double getMemoryFraction(DeviceIndex) override {
    return limit_ == 0 ? 1.0 : static_cast<double>(limit_) / static_cast<double>(card().total);
  }
  void use_pool(MempoolId_t pool) { current_pool_ = pool; }

  void use_async() {
    asynchronous_ = true;
    pool_.init();
  }
  void reset_peaks() { pool_.reset_peaks(); }
  void use_sleeping_memory(bool on) { sleepy_ = on; }
  void sleep(bool on) { on ? memory_.sleep() : memory_.wake(); }

  void stats(StandinStats* out) {
    if (asynchronous_) return pool_.stats(out);
    const std::lock_guard lock(mutex_);
    *out = stats_;
    out->allocated = allocated_;
    out->requested = requested_;
    out->reserved = reserved_;
  }

  DeviceStats getDeviceStats(DeviceIndex) override {
    if (gone_) std::abort();
    const std::lock_guard lock(mutex_);
    DeviceStats stats;
    if (asynchronous_) {  // as PyTorch's: the rest is 0
      StandinStats now{};
      pool_.stats(&now);
      stats.allocated_bytes[0].current = static_cast<int64_t>(now.allocated);
      stats.reserved_bytes[0].current = static_cast<int64_t>(now.reserved);
      return stats;
    }
    stats.allocated_bytes[0].current = static_cast<int64_t>(allocated_);
    stats.reserved_bytes[0].current = static_cast<int64_t>(reserved_);
    stats.requested_bytes[0].current = static_cast<int64_t>(requested_);
    stats.num_alloc_retries = retries_;
    stats.num_ooms = static_cast<int64_t>(stats_.ooms);
    return stats;
  }

  void cacheInfo(DeviceIndex, size_t* largest) override {
    if (gone_) std::abort();
    const std::lock_guard lock(mutex_);
    for (const auto& [address, block] : blocks_) {
      if (!block.allocated && !block.pending) *largest = std::max(*largest, block.size);
    }
  }

  SnapshotInfo snapshot() override {
    const std::lock_guard lock(mutex_);
    SnapshotInfo info;
    info.config_metadata.last_allocator_settings = "";
    for (const auto& [address, block] : blocks_) {
      if (info.segments.empty() || info.segments.back().address != block.segment) {
        SegmentInfo segment;
        segment.address = block.segment;
        segment.is_large = !block.small;
        segment.owner_private_pool_id = block.pool;
        info.segments.push_back(segment);
      }
      SegmentInfo& segment = info.segments.back();
      segment.total_size += block.size;
      segment.allocated_size += block.allocated ? block.size : 0;
      segment.active_size += block.allocated || block.pending ? block.size : 0;
      segment.requested_size += block.allocated || block.pending ? block.requested : 0;
      segment.blocks.push_back(
          {block.size, block.requested, block.allocated, block.allocated || block.pending});
    }
    trace(TraceEntry::SNAPSHOT, 0, allocated_, 0, {0, 0});
    return info;
  }

  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    const std::lock_guard lock(mutex_);
    trackers_.push_back(std::move(tracker));
  }

 private:
  using Blocks = std::map<size_t, Block>;

  struct Card {
    size_t free = 0;
    size_t total = 0;
  };
  Card card() const {
    Card card;
    cuMemGetInfo_v2(&card.free, &card.total);
    return card;
  }

  Blocks::iterator find_free(size_t size, uint64_t stream) {
    auto best = blocks_.end();
    for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
      const Block& block = it->second;
      if (block.allocated || block.pending || block.size < size || block.stream != stream ||
          block.pool != current_pool_ || block.small != (size <= kSmall)) {
        continue;
      }
      if (best == blocks_.end() || block.size < best->second.size) best = it;
    }
    return best;
  }

  Blocks::iterator grow(size_t size, uint64_t stream) {
    const size_t bytes = size <= kSmall       ? kSmallSegment
                         : size < 10 * kSmall ? kLargeSegment
                                              : (size + kRound - 1) / kRound * kRound;
    unsigned long long address = 0;
    if (limit_ != 0 && reserved_ + bytes > limit_) return blocks_.end();
    if (sleepy_) {
      address = memory_.take(bytes);
      if (address == 0) return blocks_.end();
    } else if (cuMemAlloc_v2(&address, bytes) != 0) {
      return blocks_.end();
    }
    reserved_ += bytes;
    stats_.reserved_peak = std::max<uint64_t>(stats_.reserved_peak, reserved_);
    trace(TraceEntry::SEGMENT_ALLOC, address, bytes, stream, current_pool_);
    Block block;
    block.size = bytes;
    block.stream = stream;
    block.pool = current_pool_;
    block.segment = address;
    block.small = size <= kSmall;
    return blocks_.emplace(address, block).first;
  }

  void split(Blocks::iterator block, size_t size) {
    const size_t rest = block->second.size - size;
    if (block->second.small ? rest < kMinBlock : rest <= kSmall) return;
    Block tail = block->second;
    tail.size = rest;
    block->second.size = size;
    blocks_.emplace(block->first + size, tail);
  }

  bool is_free(const Block& block) const { return !block.allocated && !block.pending; }

  void complete(Blocks::iterator block) {
    trace(TraceEntry::FREE_COMPLETED, block->first, block->second.requested, block->second.stream,
          block->second.pool);
    requested_ -= block->second.requested;
    block->second.pending = false;
    block->second.used_elsewhere = false;
    const auto next = std::next(block);
    if (next != blocks_.end() && next->second.segment == block->second.segment &&
        is_free(next->second)) {
      block->second.size += next->second.size;
      blocks_.erase(next);
    }
    if (block == blocks_.begin()) return;
    const auto before = std::prev(block);
    if (before->second.segment == block->second.segment && is_free(before->second)) {
      before->second.size += block->second.size;
      blocks_.erase(block);
    }
  }

  void finish_pending() {
    for (bool again = true; again;) {
      again = false;
      for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
        if (!it->second.pending) continue;
        complete(it);
        again = true;
        break;
      }
    }
  }

  void release_cached() {
    finish_pending();
    for (auto it = blocks_.begin(); it != blocks_.end();) {
      const auto next = std::next(it);
      const bool whole = it->first == it->second.segment &&
                         (next == blocks_.end() || next->second.segment != it->second.segment);
      if (!whole || !is_free(it->second)) {
        it = next;
        continue;
      }
      if (!memory_.give(it->first)) cuMemFree_v2(it->first);
      reserved_ -= it->second.size;
      trace(TraceEntry::SEGMENT_FREE, it->first, it->second.size, it->second.stream,
            it->second.pool);
      it = blocks_.erase(it);
    }
  }

  uint64_t fail(size_t size, uint64_t stream) {
    ++stats_.ooms;
    trace(TraceEntry::OOM, card().free, size, stream, current_pool_);
    reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated_, reserved_, {1, 0});
    return 0;
  }

  void trace(TraceEntry::Action action, size_t address, size_t size, uint64_t stream,
             MempoolId_t pool) {
    if (trackers_.empty()) return;
    const TraceEntry entry{action, 0,    address, reinterpret_cast<cudaStream_t>(stream),
                           size,   pool, "N/A"};
    for (const AllocatorTraceTracker& tracker : trackers_) tracker(entry);
  }

  void report(size_t address, int64_t bytes) {
    reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), bytes, allocated_, reserved_,
                                {1, 0});
  }

  std::recursive_mutex mutex_;
  Blocks blocks_;
  std::vector<AllocatorTraceTracker> trackers_;
  StandinStats stats_{};
  int64_t retries_ = 0;
  std::atomic<bool> gone_{false};
  MempoolId_t current_pool_{0, 0};
  AsyncPool pool_;
  bool asynchronous_ = false;
  SleepingMemory memory_;
  bool sleepy_ = false;
  size_t allocated_ = 0;
  size_t requested_ = 0;
  size_t reserved_ = 0;
  size_t limit_ = 0;
  void* context_ = nullptr;
  bool ready_ = false;
};

StandinAllocator the_allocator;

}  // namespace
}  // namespace CUDACachingAllocator
}  // namespace cuda
}  // namespace c10

using c10::cuda::CUDACachingAllocator::the_allocator;

extern "C" {

STANDIN_API int standin_init(void) {
  the_allocator.init();
  c10::cuda::CUDACachingAllocator::allocator.store(&the_allocator);
  return 1;
}
STANDIN_API uint64_t standin_alloc(size_t size, uint64_t stream) {
  return the_allocator.malloc(size, stream);
}
STANDIN_API void standin_free(uint64_t address) {
  the_allocator.free(address);
}
STANDIN_API void standin_record_stream(uint64_t address) {
  the_allocator.record_stream(address);
}
STANDIN_API void standin_process_events(void) {
  the_allocator.process_events();
}
STANDIN_API void standin_empty_cache(void) {
  the_allocator.empty_cache();
}
STANDIN_API void standin_set_limit(size_t bytes) {
  the_allocator.set_limit(bytes);
}
STANDIN_API void standin_set_fraction(double fraction) {
  the_allocator.set_fraction(fraction);
}
STANDIN_API void standin_use_async(void) {
  the_allocator.use_async();
}
STANDIN_API void standin_use_sleeping_memory(int on) {
  the_allocator.use_sleeping_memory(on != 0);
}
STANDIN_API void standin_sleep(int on) {
  the_allocator.sleep(on != 0);
}
STANDIN_API void standin_reset_peaks(void) {
  the_allocator.reset_peaks();
}
STANDIN_API void standin_use_pool(uint64_t first, uint64_t second) {
  the_allocator.use_pool({first, second});
}
STANDIN_API void standin_stats(StandinStats* stats) {
  the_allocator.stats(stats);
}
STANDIN_API uint64_t standin_worker(size_t size, int count, int with_node) {
  uint64_t last = 0;
  std::thread worker([&] {
    pthread_setname_np(pthread_self(), "loader");
    standin_set_node(with_node);
    for (int i = 0; i < count; ++i) {
      if (last != 0) the_allocator.free(last);
      last = the_allocator.malloc(size, 0);
    }
  });
  worker.join();
  return last;
}
// What an operation does with the node that it has made.
STANDIN_API void standin_set_history(void) {
  c10::cuda::getCurrentCUDAStream(0);
}
STANDIN_API uint64_t standin_backward(size_t size, uint64_t sequence, uint64_t thread) {
  uint64_t address = 0;
  std::thread worker([&] {
    standin_run_node(sequence, thread);
    address = the_allocator.malloc(size, 0);
    standin_set_node(0);
  });
  worker.join();
  return address;
}
STANDIN_API void standin_churn(uint64_t calls, uint64_t seed) {
  constexpr size_t kMostLive = 24;
  constexpr size_t kSizes[] = {300, 4000, 70'000, 600'000, 1'500'000, 3'000'000, 9'000'000};
  std::minstd_rand dice(seed + 1);
  std::vector<uint64_t> live;
  for (uint64_t i = 0; i < calls; ++i) {
    if (live.size() == kMostLive || (!live.empty() && dice() % 8 < 3)) {
      const size_t chosen = dice() % live.size();
      if (dice() % 16 == 0) the_allocator.record_stream(live[chosen]);
      the_allocator.free(live[chosen]);
      live[chosen] = live.back();
      live.pop_back();
    } else {
      live.push_back(the_allocator.malloc(kSizes[dice() % std::size(kSizes)] - dice() % 100, 0));
    }
    if (i % 256 == 0) the_allocator.process_events();
  }
  for (const uint64_t block : live) the_allocator.free(block);
  the_allocator.process_events();
}
}
