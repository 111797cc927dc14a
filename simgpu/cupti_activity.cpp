// Activity records: which kinds are enabled, and how records reach the client.
//
// Records of calls and memory are complete at once and go into the current buffer. Work on a stream
// waits in `pending_` until it has ended. A worker thread moves finished work and delivers full
// buffers; cuptiActivityFlushAll delivers every buffer that has records. No lock is held while the
// client's callbacks run, so a buffer that is being requested or delivered belongs to no list.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "simgpu/cupti_state.h"

namespace tidemark::simgpu {
namespace {

constexpr uint32_t kKinds = 64;
constexpr size_t kLargestRecord = sizeof(CUpti_ActivityKernel10);

struct Buffer {
  uint8_t* memory = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  size_t records = 0;
  size_t max_records = 0;  // 0: as many as fit
};

size_t record_bytes(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return sizeof(CUpti_ActivityMemory4);
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      return sizeof(CUpti_ActivityMemoryPool3);
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    default:
      return 0;
  }
}

class Activity {
 public:
  static Activity& of(size_t slot) {
    static Activity* const all = new Activity[kMostSubscribers];
    return all[slot];
  }

  void add(const void* record, size_t bytes) {
    std::unique_lock lock(mutex_);
    add_locked(lock, record, bytes);
  }
  void add_later(const WorkEvent& event) {
    const std::lock_guard lock(mutex_);
    pending_.push_back(event);
    wake_.notify_one();
  }
  void set_callbacks(BufferRequest request, BufferComplete complete);
  void forget();
  bool registered();
  void flush(bool forced);
  size_t take_dropped() { return dropped_.exchange(0); }

  std::atomic<bool> enabled[kKinds]{};

 private:
  void add_locked(std::unique_lock<std::mutex>& lock, const void* record, size_t bytes);
  bool has_room(size_t bytes) const;
  void get_buffer(std::unique_lock<std::mutex>& lock);
  void hand_over(std::unique_lock<std::mutex>& lock);
  void add_ended(std::unique_lock<std::mutex>& lock, bool forced);
  void end_busy();
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  BufferRequest request_;
  BufferComplete complete_;
  Buffer buffer_;
  std::vector<WorkEvent> pending_;
  // Threads that are adding records which left pending_, or delivering a buffer.
  std::vector<std::thread::id> busy_;
  std::condition_variable idle_;
  std::atomic<size_t> dropped_{0};
  bool worker_started_ = false;
};

CUpti_ActivityKernel10 kernel_record(const WorkEvent& e) {
  CUpti_ActivityKernel10 r{};
  r.kind = e.kind;
  r.registersPerThread = 32;
  r.start = client_time(e.start_ns);
  r.end = client_time(e.end_ns);
  r.completed = r.end;
  r.deviceId = e.device;
  r.contextId = e.context_id;
  r.streamId = e.stream_id;
  r.gridX = static_cast<int32_t>(e.grid[0]);
  r.gridY = static_cast<int32_t>(e.grid[1]);
  r.gridZ = static_cast<int32_t>(e.grid[2]);
  r.blockX = static_cast<int32_t>(e.block[0]);
  r.blockY = static_cast<int32_t>(e.block[1]);
  r.blockZ = static_cast<int32_t>(e.block[2]);
  r.dynamicSharedMemory = static_cast<int32_t>(e.shared_bytes);
  r.correlationId = e.correlation;
  r.gridId = e.correlation;
  r.name = e.name;
  r.graphId = e.graph_id;
  r.graphNodeId = e.graph_node_id;
  r.channelType = 1;  // CUPTI_CHANNEL_TYPE_COMPUTE
  return r;
}

CUpti_ActivityMemcpy6 copy_record(const WorkEvent& e) {
  CUpti_ActivityMemcpy6 r{};
  r.kind = e.kind;
  r.copyKind = static_cast<uint8_t>(e.copy_kind);
  r.srcKind = static_cast<uint8_t>(e.source_kind);
  r.dstKind = static_cast<uint8_t>(e.target_kind);
  r.flags = e.async ? kActivityFlagMemcpyAsync : uint8_t{0};
  r.bytes = e.bytes;
  r.start = client_time(e.start_ns);
  r.end = client_time(e.end_ns);
  r.deviceId = e.device;
  r.contextId = e.context_id;
  r.streamId = e.stream_id;
  r.correlationId = e.correlation;
  r.graphNodeId = e.graph_node_id;
  r.graphId = e.graph_id;
  r.channelType = 2;  // CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY
  r.copyCount = 1;
  return r;
}

CUpti_ActivityMemset4 fill_record(const WorkEvent& e) {
  CUpti_ActivityMemset4 r{};
  r.kind = e.kind;
  r.value = e.value;
  r.bytes = e.bytes;
  r.start = client_time(e.start_ns);
  r.end = client_time(e.end_ns);
  r.deviceId = e.device;
  r.contextId = e.context_id;
  r.streamId = e.stream_id;
  r.correlationId = e.correlation;
  r.flags = e.async ? kActivityFlagMemsetAsync : uint16_t{0};
  r.memoryKind = static_cast<uint16_t>(e.target_kind);
  r.graphNodeId = e.graph_node_id;
  r.graphId = e.graph_id;
  return r;
}

bool Activity::registered() {
  const std::lock_guard lock(mutex_);
  return request_ != nullptr;
}

// The last client to register gets everything from here on, as with the first CUPTI interface.
void Activity::set_callbacks(BufferRequest request, BufferComplete complete) {
  std::unique_lock lock(mutex_);
  hand_over(lock);
  request_ = std::move(request);
  complete_ = std::move(complete);
  if (!worker_started_) {
    worker_started_ = true;
    std::thread([this] { work(); }).detach();
  }
}

void Activity::forget() {
  for (auto& kind : enabled) kind.store(false);
  std::unique_lock lock(mutex_);
  hand_over(lock);
  pending_.clear();
  request_ = nullptr;
}

bool Activity::has_room(size_t bytes) const {
  if (buffer_.memory == nullptr || buffer_.bytes - buffer_.used < bytes) return false;
  return buffer_.max_records == 0 || buffer_.records < buffer_.max_records;
}

void Activity::get_buffer(std::unique_lock<std::mutex>& lock) {
  const BufferRequest request = request_;
  if (request == nullptr) return;
  Buffer fresh;
  lock.unlock();
  request(&fresh.memory, &fresh.bytes, &fresh.max_records);
  lock.lock();
  if (buffer_.memory == nullptr) {
    buffer_ = fresh;
    return;
  }
  // Another thread got a buffer meanwhile: return ours unused, outside the lock.
  const BufferComplete complete = complete_;
  if (fresh.memory == nullptr) return;
  lock.unlock();
  complete(fresh.memory, fresh.bytes, 0);
  lock.lock();
}

void Activity::hand_over(std::unique_lock<std::mutex>& lock) {
  if (buffer_.memory == nullptr) return;
  const Buffer full = std::exchange(buffer_, {});
  const BufferComplete complete = complete_;
  busy_.push_back(std::this_thread::get_id());
  lock.unlock();
  complete(full.memory, full.bytes, full.used);
  lock.lock();
  end_busy();
}

void Activity::end_busy() {
  busy_.erase(std::find(busy_.begin(), busy_.end(), std::this_thread::get_id()));
  idle_.notify_all();
}

void Activity::add_locked(std::unique_lock<std::mutex>& lock, const void* record, size_t bytes) {
  // At most two rounds: a full buffer is delivered, a new one is requested.
  for (int attempt = 0; attempt < 2 && !has_room(bytes); ++attempt) {
    if (buffer_.memory != nullptr) hand_over(lock);
    if (buffer_.memory == nullptr) get_buffer(lock);
  }
  if (!has_room(bytes)) {
    dropped_.fetch_add(1);
    return;
  }
  std::memcpy(buffer_.memory + buffer_.used, record, bytes);
  buffer_.used += bytes;
  ++buffer_.records;
  if (!has_room(kLargestRecord)) wake_.notify_one();
}

void Activity::add_ended(std::unique_lock<std::mutex>& lock, bool forced) {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  const int64_t now = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  std::vector<WorkEvent> ended;
  std::erase_if(pending_, [&](WorkEvent& event) {
    if (event.end_ns > now && !forced) return false;
    if (event.end_ns > now) event.start_ns = event.end_ns = 0;
    ended.push_back(event);
    return true;
  });
  busy_.push_back(std::this_thread::get_id());
  for (const WorkEvent& event : ended) {
    if (event.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const CUpti_ActivityKernel10 r = kernel_record(event);
      add_locked(lock, &r, sizeof(r));
    } else if (event.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const CUpti_ActivityMemcpy6 r = copy_record(event);
      add_locked(lock, &r, sizeof(r));
    } else {
      const CUpti_ActivityMemset4 r = fill_record(event);
      add_locked(lock, &r, sizeof(r));
    }
  }
  end_busy();
}

void Activity::flush(bool forced) {
  std::unique_lock lock(mutex_);
  add_ended(lock, forced);
  // Another thread may be requesting or delivering a buffer, with records that belong to this flush.
  // The wait is bounded: the client might hold a lock that its own callback waits for.
  const auto self = std::this_thread::get_id();
  idle_.wait_for(lock, std::chrono::seconds(1), [&] {
    return std::all_of(busy_.begin(), busy_.end(), [&](auto id) { return id == self; });
  });
  if (buffer_.used != 0) hand_over(lock);
}

void Activity::work() {
  constexpr auto kPeriod = std::chrono::milliseconds(5);
  std::unique_lock lock(mutex_);
  while (true) {
    if (pending_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, kPeriod);
    }
    add_ended(lock, false);
    // A buffer without space for the largest record counts as full.
    if (buffer_.memory != nullptr && !has_room(kLargestRecord)) hand_over(lock);
  }
}

std::atomic<CUpti_ActivityThreadIdType> g_thread_id_type{CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT};

// Attributes changed by SetAttribute; all others have their defaults.
struct Attributes {
  std::mutex mutex;
  std::map<uint32_t, uint64_t> values{{CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, 3'200'000},
                                      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, 250},
                                      {CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, 0},
                                      {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, 3},
                                      {CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, 0},
                                      {CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, 1}};
};

Attributes& attributes() {
  static Attributes& all = *new Attributes;
  return all;
}

// Flags are one byte wide, sizes and counts are size_t.
size_t attribute_bytes(CUpti_ActivityAttribute attribute) {
  switch (attribute) {
    case CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER:
    case CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED:
    case CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER:
      return 1;
    default:
      return sizeof(size_t);
  }
}

}  // namespace

CUptiResult enable_kind(size_t slot, CUpti_ActivityKind kind, bool on) {
  if (kind == CUPTI_ACTIVITY_KIND_INVALID || kind >= kKinds) return CUPTI_ERROR_INVALID_KIND;
  if (driver_table() == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  const bool was = kind_enabled(kind);
  Activity::of(slot).enabled[kind].store(on);
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && on && !was) {
    driver_table()->each_context([](cuda::CUcontext context, void*) { prepare_context(context); },
                                 nullptr);
  }
  return CUPTI_SUCCESS;
}

bool kind_enabled(CUpti_ActivityKind kind) {
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (Activity::of(slot).enabled[kind].load()) return true;
  }
  return false;
}

CUptiResult register_buffers(size_t slot, BufferRequest request, BufferComplete complete) {
  Activity::of(slot).set_callbacks(std::move(request), std::move(complete));
  return CUPTI_SUCCESS;
}

void forget_activity(size_t slot) {
  Activity::of(slot).forget();
}

CUptiResult flush(bool forced) {
  bool any = false;
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (!Activity::of(slot).registered()) continue;
    any = true;
    Activity::of(slot).flush(forced);
  }
  return any ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

size_t take_dropped(size_t slot) {
  return Activity::of(slot).take_dropped();
}

CUptiResult next_record(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  size_t offset = 0;
  if (*record != nullptr) {
    const auto* at = reinterpret_cast<uint8_t*>(*record);
    offset = static_cast<size_t>(at - buffer) + record_bytes((*record)->kind);
  }
  // End of the records, reported as by the real CUPTI.
  if (offset >= valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* next = reinterpret_cast<CUpti_Activity*>(buffer + offset);
  if (record_bytes(next->kind) == 0) return CUPTI_ERROR_INVALID_KIND;
  *record = next;
  return CUPTI_SUCCESS;
}

CUptiResult attribute(CUpti_ActivityAttribute attribute, size_t* size, void* value, bool set) {
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(attributes().mutex);
  const auto it = attributes().values.find(attribute);
  if (it == attributes().values.end()) return CUPTI_ERROR_INVALID_PARAMETER;
  if (set && attribute == CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED &&
      driver_variable("SIMGPU_NO_PINNED_TRACING") != nullptr) {
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  const size_t bytes = attribute_bytes(attribute);
  if (*size < bytes) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  if (set) {
    it->second = 0;
    std::memcpy(&it->second, value, bytes);
  } else {
    std::memcpy(value, &it->second, bytes);
    *size = bytes;
  }
  return CUPTI_SUCCESS;
}

uint32_t thread_id() {
  if (g_thread_id_type.load() == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM) {
    return static_cast<uint32_t>(syscall(SYS_gettid));
  }
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pthread_self()));
}

void set_thread_id_type(CUpti_ActivityThreadIdType type) {
  g_thread_id_type.store(type);
}
CUpti_ActivityThreadIdType thread_id_type() {
  return g_thread_id_type.load();
}

static void add_for_all(CUpti_ActivityKind kind, const void* record, size_t bytes) {
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (Activity::of(slot).enabled[kind].load()) Activity::of(slot).add(record, bytes);
  }
}

void record(const ApiSite& site) {
  if (!site.exit || !kind_enabled(CUPTI_ACTIVITY_KIND_DRIVER)) return;
  CUpti_ActivityAPI r{};
  r.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  r.cbid = site.id;
  r.start = client_time(site.enter_ns);
  r.end = static_cast<uint64_t>(clock_ns());
  r.processId = static_cast<uint32_t>(getpid());
  r.threadId = thread_id();
  r.correlationId = site.correlation;
  r.returnValue = *site.result;
  add_for_all(r.kind, &r, sizeof(r));
}

void record(const MemoryEvent& e) {
  if (!kind_enabled(CUPTI_ACTIVITY_KIND_MEMORY2)) return;
  CUpti_ActivityMemory4 r{};
  r.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  r.memoryOperationType = e.allocation ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                                       : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  r.memoryKind = e.kind;
  r.correlationId = e.correlation;
  r.address = e.address;
  r.bytes = e.bytes;
  r.timestamp = client_time(e.time_ns);
  r.processId = static_cast<uint32_t>(getpid());
  r.deviceId = e.device;
  r.contextId = e.context_id;
  r.streamId = e.stream_id;
  r.isAsync = e.stream_id != kInvalidStreamId ? 1 : 0;
  if (e.pool.address != 0) {
    r.memoryPoolConfig.memoryPoolType = e.pool.imported ? CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED
                                                        : CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    r.memoryPoolConfig.address = e.pool.address;
    r.memoryPoolConfig.releaseThreshold = e.pool.release_threshold;
    r.memoryPoolConfig.pool.size = e.pool.reserved_bytes;
    r.memoryPoolConfig.utilizedSize = e.pool.used_bytes;
  }
  add_for_all(r.kind, &r, sizeof(r));
}

void record(const PoolEvent& e) {
  if (!kind_enabled(CUPTI_ACTIVITY_KIND_MEMORY_POOL)) return;
  CUpti_ActivityMemoryPool3 r{};
  r.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  r.memoryPoolOperationType = e.operation;
  r.memoryPoolType = e.pool.imported ? CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED
                                     : CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  r.correlationId = e.correlation;
  r.processId = static_cast<uint32_t>(getpid());
  r.deviceId = e.device;
  r.minBytesToKeep = e.bytes_to_keep;
  r.address = e.pool.address;
  r.size = e.pool.reserved_bytes;
  r.releaseThreshold = e.pool.release_threshold;
  r.timestamp = client_time(e.time_ns);
  r.utilizedSize = e.pool.used_bytes;
  add_for_all(r.kind, &r, sizeof(r));
}

// The time that recording a kernel adds to its launch.
static void spend_tracing_time() {
  static const int64_t cost_ns = [] {
    const char* const text = driver_variable("SIMGPU_KERNEL_TRACING_NS");
    return text != nullptr ? std::strtoll(text, nullptr, 10) : 0;
  }();
  if (cost_ns == 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(cost_ns);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void record(const WorkEvent& event) {
  if (event.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && kind_enabled(event.kind)) {
    spend_tracing_time();
  }
  for (size_t slot = 0; slot < kMostSubscribers; ++slot) {
    if (Activity::of(slot).enabled[event.kind].load()) Activity::of(slot).add_later(event);
  }
}

// CUPTI's own device buffers for kernel tracing, unless they were configured to be in host memory.
void prepare_context(cuda::CUcontext context) {
  if (!kind_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  uint64_t bytes = 0;
  {
    const std::lock_guard lock(attributes().mutex);
    auto& values = attributes().values;
    if (values[CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED] != 0) return;
    bytes = values[CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE] *
            values[CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE];
  }
  driver_table()->charge(context, bytes);
}

}  // namespace tidemark::simgpu
