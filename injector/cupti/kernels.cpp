#include "injector/cupti/kernels.h"

#include <sys/mman.h>

#include <array>
#include <atomic>

#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

using namespace cupti;

// CUPTI recommends 1 to 10 MB. A kernel record takes about 200 bytes: 10,000 records per buffer, a
// few tenths of a second of a busy training step. 64 buffers limit the cost of a stuck reader.
constexpr size_t kBufferBytes = 2 << 20;
constexpr size_t kMaxBuffers = 64;
// Before CUDA 12.9 (27) CUPTI could crash when it got no buffer.
constexpr uint32_t kToleratesNoBuffer = 27;
// The first version whose records may differ from abi/cupti.h: within CUDA 12 and 13 records only
// grew at their end.
constexpr uint32_t kUnknownRecords = 140000;

struct Buffer {
  enum class State : uint8_t { kFree, kWithCupti, kFilled };
  std::atomic<State> state{State::kFree};
  std::atomic<uint8_t*> memory{nullptr};
  std::atomic<size_t> valid{0};
};

const CuptiSubscription* g_cupti = nullptr;
std::array<Buffer, kMaxBuffers> g_buffers;
// Buffers outside of the pool, while CUPTI has them. CUPTI may also hand over a buffer that another
// client of it provided: only what is listed here or in the pool is ours.
std::array<std::atomic<uint8_t*>, kMaxBuffers> g_extra_buffers;
// Kept when the recording ends: CUPTI may still ask for buffers.
std::atomic<bool> g_needs_buffer{false};
std::atomic<uint64_t> g_refused_buffers{0};
TracingFootprint g_footprint;
std::atomic<uint32_t> g_enabled{0};  // activity kinds, as bits
std::atomic<bool> g_switchable{false};
std::atomic<uint64_t> g_recorded{0};  // kernels
std::atomic<bool> g_ending{false};   // the last flush: takes records of unfinished kernels too

uint8_t* map_buffer() {
  void* memory =
      mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  recorder().add_own_host_bytes(kBufferBytes);
  return static_cast<uint8_t*>(memory);
}

void unmap_buffer(uint8_t* memory) {
  munmap(memory, kBufferBytes);
  recorder().add_own_host_bytes(-static_cast<int64_t>(kBufferBytes));
}

uint8_t* map_extra_buffer() {
  uint8_t* const memory = map_buffer();
  if (memory == nullptr) return nullptr;
  for (std::atomic<uint8_t*>& extra : g_extra_buffers) {
    uint8_t* none = nullptr;
    if (extra.compare_exchange_strong(none, memory)) return memory;
  }
  unmap_buffer(memory);
  return nullptr;
}

// Called only by CUPTI, on any thread.
void on_buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *max_records = 0;
  *size = kBufferBytes;
  *buffer = nullptr;
  for (Buffer& slot : g_buffers) {
    Buffer::State free = Buffer::State::kFree;
    if (!slot.state.compare_exchange_strong(free, Buffer::State::kWithCupti)) continue;
    if (slot.memory.load() == nullptr) slot.memory.store(map_buffer());
    *buffer = slot.memory.load();
    if (*buffer == nullptr) slot.state.store(Buffer::State::kFree);
    break;
  }
  if (*buffer != nullptr) return;
  g_refused_buffers.fetch_add(1);
  // A buffer outside of the pool: CUPTI fills it, and its records are lost. Only the number of such
  // buffers is counted.
  if (g_needs_buffer.load()) *buffer = map_extra_buffer();
  if (*buffer == nullptr) *size = 0;
}

void on_buffer_completed(cuda::CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  for (Buffer& slot : g_buffers) {
    if (buffer == nullptr || slot.memory.load() != buffer) continue;
    slot.valid.store(valid);
    slot.state.store(Buffer::State::kFilled, std::memory_order_release);
    return;
  }
  if (buffer == nullptr) return;
  for (std::atomic<uint8_t*>& extra : g_extra_buffers) {
    uint8_t* ours = buffer;
    if (extra.compare_exchange_strong(ours, nullptr)) return unmap_buffer(buffer);
  }
}

uint32_t non_negative(int32_t value) {
  return value > 0 ? static_cast<uint32_t>(value) : 0;
}

void record_kernel(const CUpti_ActivityKernel8& kernel) {
  if (kernel.start == 0 && kernel.end == 0) {
    // Either its time was lost, or it had not run when the recording ended and is not part of it.
    if (!g_ending.load(std::memory_order_relaxed)) {
      recorder().count_dropped(BlockKind::kKernels, 1);
    }
    return;
  }
  Kernel row{};
  row.start_ns = static_cast<int64_t>(kernel.start);
  row.duration_ns = kernel.end > kernel.start ? kernel.end - kernel.start : 0;
  row.stream = kernel.streamId;
  row.graph_node = kernel.graphNodeId;
  // The wide member came with Kernel8; the narrow one overflows at 4 GiB.
  row.local_memory_bytes =
      kernel.localMemoryTotal_v2 != 0 ? kernel.localMemoryTotal_v2 : kernel.localMemoryTotal;
  row.device = kernel.deviceId;
  row.name = kernel.name != nullptr ? recorder().intern_string(kernel.name) : 0;
  row.context = kernel.contextId;
  row.correlation = kernel.correlationId;
  row.grid_x = non_negative(kernel.gridX);
  row.grid_y = non_negative(kernel.gridY);
  row.grid_z = non_negative(kernel.gridZ);
  row.block_x = non_negative(kernel.blockX);
  row.block_y = non_negative(kernel.blockY);
  row.block_z = non_negative(kernel.blockZ);
  row.shared_bytes =
      non_negative(kernel.staticSharedMemory) + non_negative(kernel.dynamicSharedMemory);
  row.registers = kernel.registersPerThread;
  g_recorded.fetch_add(1, std::memory_order_relaxed);
  recorder().record(row);
}

CopyKind copy_kind_of(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return CopyKind::kHostToDevice;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return CopyKind::kDeviceToHost;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return CopyKind::kDeviceToDevice;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return CopyKind::kHostToHost;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return CopyKind::kPeer;
    default:
      return CopyKind::kOther;
  }
}

// Memcpy and memset records have the same names for the members used here.
template <typename Activity>
void record_copy(const Activity& activity, CopyKind kind) {
  Copy row{};
  row.start_ns = static_cast<int64_t>(activity.start);
  row.duration_ns = activity.end > activity.start ? activity.end - activity.start : 0;
  row.size_bytes = activity.bytes;
  row.stream = activity.streamId;
  row.device = activity.deviceId;
  row.context = activity.contextId;
  row.correlation = activity.correlationId;
  row.kind = kind;
  recorder().record(row);
}

void record_activity(const CUpti_Activity& activity) {
  switch (activity.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL:
      return record_kernel(reinterpret_cast<const CUpti_ActivityKernel8&>(activity));
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(activity);
      return record_copy(copy, copy_kind_of(copy.copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return record_copy(reinterpret_cast<const CUpti_ActivityMemset4&>(activity), CopyKind::kSet);
    default:
      return;  // a kind that another CUPTI client has enabled
  }
}

void decode(uint8_t* buffer, size_t bytes) {
  CUpti_Activity* activity = nullptr;
  while (g_cupti->next_record(buffer, bytes, &activity) == CUPTI_SUCCESS && activity != nullptr) {
    record_activity(*activity);
  }
}

void collect(uint32_t flush_flag) {
  if (g_cupti == nullptr) return;
  const OwnScope own;
  const ForeignCall foreign;
  g_cupti->functions().activity_flush_all(flush_flag);
  for (Buffer& slot : g_buffers) {
    if (slot.state.load(std::memory_order_acquire) != Buffer::State::kFilled) continue;
    decode(slot.memory.load(), slot.valid.load());
    slot.state.store(Buffer::State::kFree, std::memory_order_release);
  }
  size_t dropped = 0;
  if (g_cupti->dropped_records(&dropped) == CUPTI_SUCCESS && dropped > 0) {
    recorder().report(HealthKind::kRecordsDroppedByCupti, dropped, "cupti: activity records");
  }
  if (const uint64_t refused = g_refused_buffers.exchange(0)) {
    recorder().report(HealthKind::kRecordsDroppedByCupti, refused,
                      "cupti: whole buffers, which were not read fast enough");
  }
}

template <typename T>
T attribute(CUpti_ActivityAttribute name, T otherwise) {
  T value{};
  size_t size = sizeof value;
  return g_cupti->get_attribute(name, &size, &value) == CUPTI_SUCCESS ? value : otherwise;
}

bool set_flag(CUpti_ActivityAttribute name, uint8_t value) {
  size_t size = sizeof value;
  return g_cupti->set_attribute(name, &size, &value) == CUPTI_SUCCESS;
}

// A tool that measures device memory should not use any: CUPTI keeps its timestamps in host memory.
void place_buffers() {
  g_footprint.on_device = !set_flag(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, 1);
  constexpr size_t kUsualBytes = 3200000;
  constexpr size_t kUsualCount = 3;
  g_footprint.bytes_per_context =
      attribute<size_t>(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, kUsualBytes) *
      attribute<size_t>(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, kUsualCount);
  // CUDA 13.0 made one buffer per host thread the default: far too many in a data loader.
  set_flag(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, 0);
  if (g_footprint.on_device) {
    recorder().report(HealthKind::kSourceMissing, 0,
                      "cupti: its buffers use device memory (it refused pinned host memory)");
  }
}

bool enable(CUpti_ActivityKind kind, const char* what) {
  if (g_cupti->enable(kind) == CUPTI_SUCCESS) {
    g_enabled.fetch_or(1U << kind);
    return true;
  }
  recorder().report(HealthKind::kSourceMissing, kind, what);
  return false;
}

}  // namespace

bool start_kernels(const CuptiSubscription& subscription, const Options& options) noexcept {
  const uint32_t version = subscription.functions().version;
  if (!options.kernels && !options.copies) return false;
  if (version >= kUnknownRecords) {
    recorder().report(HealthKind::kSourceMissing, version,
                      "kernels: this version of CUPTI is newer than tidemark knows");
    return false;
  }
  const ForeignCall foreign;
  g_cupti = &subscription;
  g_needs_buffer.store(version < kToleratesNoBuffer);
  place_buffers();
  if (subscription.register_buffers(on_buffer_requested, on_buffer_completed) != CUPTI_SUCCESS) {
    recorder().report(HealthKind::kSourceMissing, 0, "kernels: CUPTI accepts no buffers");
    g_cupti = nullptr;
    return false;
  }
  g_recorded.store(0);
  bool any = false;
  if (options.kernels) {
    any |= enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "kernels: CUPTI cannot trace them");
    g_switchable.store(any);
  }
  if (options.copies) {
    any |= enable(CUPTI_ACTIVITY_KIND_MEMCPY, "copies: CUPTI cannot trace them");
    any |= enable(CUPTI_ACTIVITY_KIND_MEMSET, "fills: CUPTI cannot trace them");
  }
  return any;
}

void pause_kernels() noexcept {
  if (g_cupti == nullptr) return;
  const OwnScope own;
  const ForeignCall foreign;
  g_switchable.store(false);
  const uint32_t enabled = g_enabled.exchange(0);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if ((enabled >> kind & 1) != 0) g_cupti->disable(kind);
  }
}

bool switch_kernels(bool on) noexcept {
  if (g_cupti == nullptr || !g_switchable.load()) return false;
  const OwnScope own;
  const ForeignCall foreign;
  constexpr CUpti_ActivityKind kKind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  if ((on ? g_cupti->enable(kKind) : g_cupti->disable(kKind)) != CUPTI_SUCCESS) return false;
  if (on) {
    g_enabled.fetch_or(1U << kKind);
  } else {
    g_enabled.fetch_and(~(1U << kKind));
  }
  return true;
}

bool kernels_can_be_switched() noexcept {
  return g_switchable.load();
}

uint64_t kernels_so_far() noexcept {
  return g_recorded.load(std::memory_order_relaxed);
}

// A buffer that CUPTI still holds stays mapped until it comes back and is used again.
void stop_kernels() noexcept {
  for (Buffer& slot : g_buffers) {
    Buffer::State free = Buffer::State::kFree;
    if (!slot.state.compare_exchange_strong(free, Buffer::State::kWithCupti)) continue;
    if (uint8_t* const memory = slot.memory.exchange(nullptr)) munmap(memory, kBufferBytes);
    slot.state.store(Buffer::State::kFree, std::memory_order_release);
  }
  g_footprint = {};
  g_switchable.store(false);
  g_cupti = nullptr;
}

void collect_kernels() noexcept {
  collect(0);
}

void collect_last_kernels() noexcept {
  collect(0);
  g_ending.store(true, std::memory_order_relaxed);
  collect(kActivityFlagFlushForced);
  g_ending.store(false, std::memory_order_relaxed);
}

TracingFootprint tracing_footprint() noexcept {
  return g_cupti != nullptr ? g_footprint : TracingFootprint{};
}

}  // namespace tidemark::injector
