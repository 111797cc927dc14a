#include "injector/sampling/driver_queries.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "abi/cuda_functions.h"
#include "injector/driver/events.h"
#include "injector/driver/objects.h"
#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {
namespace {

using namespace cuda;

constexpr size_t kUuidText = DeviceFacts::kUuidText;

// Functions may be missing; a driver that lacks one does not have what it queries.
struct DriverFunctions {
  cuDriverGetVersion_fn version = nullptr;
  cuDeviceGetCount_fn device_count = nullptr;
  cuDeviceGet_fn device_get = nullptr;
  cuDeviceGetName_fn device_name = nullptr;
  cuDeviceGetUuid_fn device_uuid = nullptr;
  cuDeviceTotalMem_v2_fn device_total = nullptr;
  cuDeviceGetPCIBusId_fn device_bus = nullptr;
  cuDeviceGetAttribute_fn device_attribute = nullptr;
  cuDevicePrimaryCtxGetState_fn primary_state = nullptr;
  cuDeviceGetMemPool_fn device_pool = nullptr;
  cuMemPoolGetAttribute_fn pool_attribute = nullptr;
  cuDeviceGetGraphMemAttribute_fn graph_attribute = nullptr;
  cuMemGetAddressRange_v2_fn address_range = nullptr;
  cuPointerGetAttribute_fn pointer_attribute = nullptr;
  cuDevicePrimaryCtxRetain_fn primary_retain = nullptr;
  cuDevicePrimaryCtxRelease_v2_fn primary_release = nullptr;
  cuCtxPushCurrent_v2_fn push_context = nullptr;
  cuCtxPopCurrent_v2_fn pop_context = nullptr;
  cuMemGetInfo_v2_fn memory_info = nullptr;
  bool loaded = false;
};

DriverFunctions g_driver;
std::array<bool, kMaxDevices> g_described;
bool g_version_recorded = false;

template <typename Function>
void find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
}

// libcuda is loaded (it loaded us), so this finds the copy in use and loads none.
bool load_driver() {
  const ForeignCall foreign;  // its callers go on to call the driver
  if (g_driver.loaded) return true;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  DriverFunctions& f = g_driver;
  find(library, "cuDriverGetVersion", f.version);
  find(library, "cuDeviceGetCount", f.device_count);
  find(library, "cuDeviceGet", f.device_get);
  find(library, "cuDeviceGetName", f.device_name);
  find(library, "cuDeviceGetUuid_v2", f.device_uuid);
  if (f.device_uuid == nullptr) find(library, "cuDeviceGetUuid", f.device_uuid);
  find(library, "cuDeviceTotalMem_v2", f.device_total);
  find(library, "cuDeviceGetPCIBusId", f.device_bus);
  find(library, "cuDeviceGetAttribute", f.device_attribute);
  find(library, "cuDevicePrimaryCtxGetState", f.primary_state);
  find(library, "cuDeviceGetMemPool", f.device_pool);
  find(library, "cuMemPoolGetAttribute", f.pool_attribute);
  find(library, "cuDeviceGetGraphMemAttribute", f.graph_attribute);
  find(library, "cuMemGetAddressRange_v2", f.address_range);
  find(library, "cuPointerGetAttribute", f.pointer_attribute);
  find(library, "cuDevicePrimaryCtxRetain", f.primary_retain);
  find(library, "cuDevicePrimaryCtxRelease_v2", f.primary_release);
  find(library, "cuCtxPushCurrent_v2", f.push_context);
  find(library, "cuCtxPopCurrent_v2", f.pop_context);
  find(library, "cuMemGetInfo_v2", f.memory_info);
  f.loaded = f.device_count != nullptr && f.device_get != nullptr;
  return f.loaded;
}

// 8-4-4-4-12 digits, as NVML and nvidia-smi print it after "GPU-".
void format_uuid(const CUuuid& uuid, char (&out)[kUuidText]) {
  size_t at = 0;
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out[at++] = '-';
    std::snprintf(out + at, 3, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    at += 2;
  }
}

uint32_t attribute_of(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  if (g_driver.device_attribute == nullptr ||
      g_driver.device_attribute(&value, attribute, device) != CUDA_SUCCESS) {
    return 0;
  }
  return static_cast<uint32_t>(value);
}

bool ask_device(int64_t ordinal, CUdevice& device, DeviceFacts& out) {
  if (g_driver.device_get(&device, static_cast<int>(ordinal)) != CUDA_SUCCESS) return false;
  CUuuid bytes{};
  if (g_driver.device_name != nullptr) g_driver.device_name(out.name, sizeof out.name, device);
  if (g_driver.device_uuid != nullptr && g_driver.device_uuid(&bytes, device) == CUDA_SUCCESS) {
    format_uuid(bytes, out.uuid);
  }
  if (g_driver.device_bus != nullptr) g_driver.device_bus(out.bus, sizeof out.bus, device);
  size_t total = 0;
  if (g_driver.device_total != nullptr) g_driver.device_total(&total, device);
  out.total_bytes = total;
  return true;
}

void describe_device(int64_t ordinal) {
  CUdevice device = 0;
  DeviceFacts facts;
  if (!ask_device(ordinal, device, facts)) return;
  g_described[static_cast<size_t>(ordinal)] = true;
  const auto& [name, uuid, bus, total] = facts;
  driver_objects().devices.set_total_bytes(ordinal, total);
  Recorder& out = recorder();
  const char* prefix = attach_nvml_device(ordinal, uuid, bus);
  if (nvml_started() && prefix == nullptr) {
    out.report(HealthKind::kSourceMissing, static_cast<uint64_t>(ordinal),
               "nvml: does not list a device that CUDA uses");
  }
  char full_uuid[kUuidText + 4];
  std::snprintf(full_uuid, sizeof full_uuid, "%.4s%.36s", prefix != nullptr ? prefix : "GPU-", uuid);
  Device row{};
  row.ordinal = ordinal;
  row.total_bytes = total;
  row.reserved_bytes = latest_device_memory(ordinal).reserved_bytes;
  row.name = out.intern_string(name);
  row.uuid = out.intern_string(full_uuid);
  row.bus = out.intern_string(bus);
  row.compute_major = attribute_of(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  row.compute_minor = attribute_of(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  out.record(row);
}

uint64_t size_of_import(uint64_t address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  if (g_driver.address_range != nullptr &&
      g_driver.address_range(&base, &size, address) == CUDA_SUCCESS) {
    return size;
  }
  // Without a current context the driver may refuse the first query, but not this one.
  size = 0;
  if (g_driver.pointer_attribute != nullptr) {
    g_driver.pointer_attribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
  }
  return size;
}

// The row of an import was recorded without its size. The same row again, with the size, replaces
// it: same time, same correlation, same address.
void complete_imports() {
  PendingImports& imports = driver_objects().imports;
  PendingImports::Query query;
  while (imports.take(query)) {
    query.event.size_bytes = size_of_import(query.event.address);
    if (imports.finish(query) && query.event.size_bytes != 0) recorder().record(query.event);
  }
}

void learn_default_pools() {
  if (g_driver.device_pool == nullptr) return;
  PoolTable& pools = driver_objects().pools;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    if (!pools.needs_handle(device)) continue;
    CUmemoryPool pool = nullptr;
    if (g_driver.device_pool(&pool, static_cast<CUdevice>(device)) == CUDA_SUCCESS) {
      pools.learn_current(device, reinterpret_cast<uintptr_t>(pool));
    }
  }
}

// A value is recorded when it has changed since the last sample of the same counter.
class Unchanged {
 public:
  bool note(uint64_t subject, CounterKind kind, uint64_t value) {
    Last& last = last_[(subject * 31 + static_cast<uint64_t>(kind)) % last_.size()];
    const Last now{subject, value, kind};
    if (last == now) return true;
    last = now;
    return false;
  }
  void clear() { last_.fill({}); }

 private:
  struct Last {
    uint64_t subject = 0;
    uint64_t value = 0;
    CounterKind kind = CounterKind::kNone;
    bool operator==(const Last&) const = default;
  };
  std::array<Last, 1024> last_{};
};
Unchanged g_unchanged;

void record_sample(int64_t now, CounterKind kind, int64_t device, uint64_t value,
                   uint64_t subject = 0) {
  const uint64_t key = subject != 0 ? subject : ~static_cast<uint64_t>(device);
  if (g_unchanged.note(key, kind, value)) return;
  recorder().record(Counter{now, value, subject, device, kind});
}

void sample_graph_memory(int64_t device) {
  const auto ordinal = static_cast<CUdevice>(device);
  const auto sample = [&](CUgraphMem_attribute attribute, CounterKind kind) {
    cuuint64_t value = 0;
    if (g_driver.graph_attribute(ordinal, attribute, &value) != CUDA_SUCCESS) return;
    record_sample(now_ns(), kind, device, value);
  };
  sample(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CounterKind::kGraphUsed);
  sample(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CounterKind::kGraphReserved);
  sample(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CounterKind::kGraphUsedHigh);
  sample(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, CounterKind::kGraphReservedHigh);
}

void sample_pool(CUmemoryPool pool, uint32_t id, int64_t device) {
  const auto sample = [&](CUmemPool_attribute attribute, CounterKind kind) {
    cuuint64_t value = 0;
    if (g_driver.pool_attribute(pool, attribute, &value) != CUDA_SUCCESS) return;
    record_sample(now_ns(), kind, device, value, id);
  };
  sample(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CounterKind::kPoolReserved);
  sample(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CounterKind::kPoolUsed);
  sample(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CounterKind::kPoolReservedHigh);
  sample(CU_MEMPOOL_ATTR_USED_MEM_HIGH, CounterKind::kPoolUsedHigh);
}

void record_versions() {
  int version = 0;
  if (g_version_recorded || g_driver.version == nullptr ||
      g_driver.version(&version) != CUDA_SUCCESS) {
    return;
  }
  g_version_recorded = true;
  char text[16];
  std::snprintf(text, sizeof text, "%d", version);
  record_tool_setting("cuda_driver_version", text);
  record_driver_version(static_cast<uint32_t>(version));
}

}  // namespace

bool query_driver() noexcept {
  const OwnScope own;
  if (!load_driver()) return false;
  record_versions();
  bool any_new = false;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    if (driver_objects().devices.used(device) && !g_described[static_cast<size_t>(device)]) {
      describe_device(device);
      any_new = true;
    }
  }
  complete_imports();
  return any_new;
}

void sample_pools() noexcept {
  const OwnScope own;
  if (!load_driver()) return;
  learn_default_pools();
  if (g_driver.pool_attribute != nullptr) {
    driver_objects().pools.for_each_living([](uint64_t handle, uint32_t id, int64_t device) {
      sample_pool(reinterpret_cast<CUmemoryPool>(static_cast<uintptr_t>(handle)), id, device);
    });
  }
  if (g_driver.graph_attribute == nullptr) return;
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    if (driver_objects().devices.has_graph_memory(device)) sample_graph_memory(device);
  }
}

uint64_t devices_with_context() noexcept {
  const OwnScope own;
  if (!load_driver() || g_driver.primary_state == nullptr) return 0;
  int count = 0;
  if (g_driver.device_count(&count) != CUDA_SUCCESS) return 0;
  uint64_t devices = 0;
  for (int device = 0; device < std::min(count, static_cast<int>(kMaxDevices)); ++device) {
    unsigned flags = 0;
    int active = 0;
    if (g_driver.primary_state(device, &flags, &active) == CUDA_SUCCESS && active != 0) {
      devices |= uint64_t{1} << device;
    }
  }
  return devices;
}

void look_for_used_devices() noexcept {
  const uint64_t devices = devices_with_context();
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    if ((devices >> device & 1) != 0) driver_objects().devices.note(device);
  }
}

// The context exists, so retaining it creates none, and it is not kept.
bool ask_device_memory(int64_t device, uint64_t& free_bytes, uint64_t& total_bytes) noexcept {
  const OwnScope own;
  if ((devices_with_context() >> device & 1) == 0) return false;
  const DriverFunctions& f = g_driver;
  if (f.primary_retain == nullptr || f.primary_release == nullptr || f.push_context == nullptr ||
      f.pop_context == nullptr || f.memory_info == nullptr) {
    return false;
  }
  const auto ordinal = static_cast<CUdevice>(device);
  CUcontext context = nullptr;
  if (f.primary_retain(&context, ordinal) != CUDA_SUCCESS) return false;
  size_t free = 0;
  size_t total = 0;
  const bool current = f.push_context(context) == CUDA_SUCCESS;
  const bool known = current && f.memory_info(&free, &total) == CUDA_SUCCESS;
  if (current) f.pop_context(&context);
  f.primary_release(ordinal);
  free_bytes = free;
  total_bytes = total;
  return known && total != 0;
}

bool driver_is_initialised() noexcept {
  const OwnScope own;
  int count = 0;
  return load_driver() && g_driver.device_count(&count) == CUDA_SUCCESS;
}

bool ask_device(int64_t ordinal, DeviceFacts& out) noexcept {
  const OwnScope own;
  CUdevice device = 0;
  return load_driver() && ask_device(ordinal, device, out);
}

void record_existing_contexts() noexcept {
  driver_objects().contexts.expect_older();
  const uint64_t devices = devices_with_context();
  for (int64_t device = 0; device < static_cast<int64_t>(kMaxDevices); ++device) {
    if ((devices >> device & 1) == 0) continue;
    driver_objects().devices.note(device);
    driver_objects().contexts.created(device);
    DriverEvent event = older_context(device, now_ns());
    event.thread = current_thread();
    recorder().record(event);
  }
}

void reset_driver_queries() noexcept {
  g_described.fill(false);
  g_version_recorded = false;
  g_unchanged.clear();
}

}  // namespace tidemark::injector
