// A miniature injection library: subscribes to everything and keeps it. The driver under test loads
// it through CUDA_INJECTION64_PATH; it finds CUPTI like a real tool, by dlopen.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "abi/cuda_functions.h"
#include "abi/cuda_params.h"
#include "abi/cupti.h"
#include "tests/simgpu/probe.h"

#define PROBE_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::probe {
namespace {

using namespace cuda;   // NOLINT
using namespace cupti;  // NOLINT

std::mutex g_mutex;
std::atomic<uint64_t> g_buffer_bytes{uint64_t{1} << 16};
constexpr uint64_t kScratch = 0x5ca7c4;

Log& log() {
  static Log& all = *new Log;
  return all;
}

template <typename Function>
Function find(const char* name) {
  static void* library = dlopen("libcupti.so.13", RTLD_NOW);
  return reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
}
#define PROBE_CUPTI(NAME) find<NAME##_fn>(#NAME)

uint64_t this_thread() {
  return static_cast<uint64_t>(pthread_self());
}

template <typename Params>
const Params& params(const CUpti_CallbackData& data) {
  return *static_cast<const Params*>(data.functionParams);
}

// Sizes as requested by the program, known at ENTER and for failed calls, too.
void read_size(uint32_t id, const CUpti_CallbackData& data, Callback* out) {
  switch (id) {
    case CBID_cuMemAlloc_v2:
      out->bytes = params<cuMemAlloc_v2_params>(data).bytesize;
      break;
    case CBID_cuMemAllocManaged:
      out->bytes = params<cuMemAllocManaged_params>(data).bytesize;
      break;
    case CBID_cuMemAllocAsync:
    case CBID_cuMemAllocAsync_ptsz:
      out->bytes = params<cuMemAllocAsync_params>(data).bytesize;
      break;
    case CBID_cuMemAllocFromPoolAsync:
      out->bytes = params<cuMemAllocFromPoolAsync_params>(data).bytesize;
      break;
    case CBID_cuMemHostAlloc:
      out->bytes = params<cuMemHostAlloc_params>(data).bytesize;
      break;
    case CBID_cuMemAllocHost_v2:
      out->bytes = params<cuMemAllocHost_v2_params>(data).bytesize;
      break;
    case CBID_cuMemHostRegister_v2:
      out->bytes = params<cuMemHostRegister_v2_params>(data).bytesize;
      break;
    case CBID_cuMemCreate:
      out->bytes = params<cuMemCreate_params>(data).size;
      break;
    case CBID_cuMemMap:
      out->bytes = params<cuMemMap_params>(data).size;
      out->address = params<cuMemMap_params>(data).ptr;
      break;
    case CBID_cuMemFree_v2:
      out->address = params<cuMemFree_v2_params>(data).dptr;
      break;
    case CBID_cuMemFreeAsync:
      out->address = params<cuMemFreeAsync_params>(data).dptr;
      break;
    default:
      break;
  }
}

// Out-parameters, after a successful call.
void read_address(uint32_t id, const CUpti_CallbackData& data, Callback* out) {
  switch (id) {
    case CBID_cuMemAlloc_v2:
      out->address = *params<cuMemAlloc_v2_params>(data).dptr;
      break;
    case CBID_cuMemAllocPitch_v2: {
      const auto& p = params<cuMemAllocPitch_v2_params>(data);
      out->address = *p.dptr;
      out->bytes = *p.pPitch * p.Height;
      break;
    }
    case CBID_cuMemAllocManaged:
      out->address = *params<cuMemAllocManaged_params>(data).dptr;
      break;
    case CBID_cuMemAllocAsync:
    case CBID_cuMemAllocAsync_ptsz:
      out->address = *params<cuMemAllocAsync_params>(data).dptr;
      break;
    case CBID_cuMemAllocFromPoolAsync:
      out->address = *params<cuMemAllocFromPoolAsync_params>(data).dptr;
      break;
    case CBID_cuMemHostAlloc:
      out->address = reinterpret_cast<uint64_t>(*params<cuMemHostAlloc_params>(data).pp);
      break;
    case CBID_cuMemAllocHost_v2:
      out->address = reinterpret_cast<uint64_t>(*params<cuMemAllocHost_v2_params>(data).pp);
      break;
    case CBID_cuMemCreate:
      out->address = *params<cuMemCreate_params>(data).handle;
      break;
    case CBID_cuGraphAddMemAllocNode: {
      const auto& p = params<cuGraphAddMemAllocNode_params>(data);
      out->address = p.nodeParams->dptr;
      out->bytes = p.nodeParams->bytesize;
      break;
    }
    default:
      break;
  }
}

void on_driver_call(uint32_t id, const CUpti_CallbackData& data) {
  Callback seen{};
  seen.exit = data.callbackSite == CUPTI_API_EXIT;
  seen.domain = CUPTI_CB_DOMAIN_DRIVER_API;
  seen.id = id;
  if (data.functionName != nullptr) seen.name = data.functionName;
  if (data.symbolName != nullptr) seen.symbol = data.symbolName;
  seen.correlation = data.correlationId;
  seen.context = reinterpret_cast<uint64_t>(data.context);
  seen.context_id = data.contextUid;
  if (data.context != nullptr) PROBE_CUPTI(cuptiGetDeviceId)(data.context, &seen.device);
  seen.thread = this_thread();
  read_size(id, data, &seen);
  if (seen.exit) {
    seen.scratch = *data.correlationData;
    seen.result = *static_cast<CUresult*>(data.functionReturnValue);
    if (seen.result == CUDA_SUCCESS) read_address(id, data, &seen);
  } else {
    *data.correlationData = kScratch + data.correlationId;
  }
  const std::lock_guard lock(g_mutex);
  log().callbacks.push_back(seen);
}

// CU_INIT_FINISHED comes without data.
void on_resource(uint32_t id, const CUpti_ResourceData* data) {
  Callback seen{};
  seen.domain = CUPTI_CB_DOMAIN_RESOURCE;
  seen.id = id;
  seen.name = data == nullptr ? "no data" : "";
  if (data != nullptr && data->context != nullptr) {
    seen.context = reinterpret_cast<uint64_t>(data->context);
    // A context exists while it is reported.
    PROBE_CUPTI(cuptiGetContextId)(data->context, &seen.context_id);
  }
  if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED) {
    seen.module_bytes = static_cast<CUpti_ModuleResourceData*>(data->resourceDescriptor)->cubinSize;
  }
  seen.thread = this_thread();
  const std::lock_guard lock(g_mutex);
  log().callbacks.push_back(seen);
}

void on_callback(void* /*userdata*/, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                 const void* data) {
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    on_driver_call(id, *static_cast<const CUpti_CallbackData*>(data));
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    on_resource(id, static_cast<const CUpti_ResourceData*>(data));
  }
}

void request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = g_buffer_bytes.load();
  *buffer = *size == 0 ? nullptr : static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *max_records = 0;
  const std::lock_guard lock(g_mutex);
  ++log().buffers_requested;
}

Record read_record(CUpti_Activity* any) {
  Record r{};
  r.kind = any->kind;
  r.thread = this_thread();
  if (any->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& k = *reinterpret_cast<CUpti_ActivityKernel8*>(any);
    r.start_ns = k.start;
    r.end_ns = k.end;
    r.device = k.deviceId;
    r.stream = k.streamId;
    r.correlation = k.correlationId;
    r.graph = k.graphId;
    if (k.name != nullptr) r.name = k.name;
  } else if (any->kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
    const auto& m = *reinterpret_cast<CUpti_ActivityMemory4*>(any);
    r.operation = m.memoryOperationType;
    r.memory_kind = m.memoryKind;
    r.address = m.address;
    r.bytes = m.bytes;
    r.device = m.deviceId;
    r.stream = m.streamId;
    r.correlation = m.correlationId;
    r.pool = m.memoryPoolConfig.address;
    r.pool_used = m.memoryPoolConfig.utilizedSize;
  } else if (any->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& c = *reinterpret_cast<CUpti_ActivityMemcpy6*>(any);
    r.bytes = c.bytes;
    r.start_ns = c.start;
    r.end_ns = c.end;
    r.correlation = c.correlationId;
    r.operation = c.copyKind;
  } else if (any->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& f = *reinterpret_cast<CUpti_ActivityMemset4*>(any);
    r.bytes = f.bytes;
    r.start_ns = f.start;
    r.end_ns = f.end;
    r.correlation = f.correlationId;
  }
  return r;
}

void complete_buffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer, size_t /*size*/,
                     size_t valid) {
  const auto next = PROBE_CUPTI(cuptiActivityGetNextRecord);
  std::vector<Record> records;
  CUpti_Activity* record = nullptr;
  while (valid != 0 && next(buffer, valid, &record) == CUPTI_SUCCESS) {
    records.push_back(read_record(record));
  }
  std::free(buffer);
  const std::lock_guard lock(g_mutex);
  ++log().buffers_completed;
  log().records.insert(log().records.end(), records.begin(), records.end());
}

void start() {
  const auto subscribe = PROBE_CUPTI(cuptiSubscribe);
  if (subscribe == nullptr) return;
  CUpti_SubscriberHandle subscriber = nullptr;
  log().subscribed = subscribe(&subscriber, on_callback, nullptr);
  if (log().subscribed != CUPTI_SUCCESS) return;
  PROBE_CUPTI(cuptiEnableDomain)(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
  PROBE_CUPTI(cuptiEnableDomain)(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE);
  uint8_t pinned = 1;
  size_t size = sizeof(pinned);
  PROBE_CUPTI(cuptiActivitySetAttribute)
  (CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &size, &pinned);
  PROBE_CUPTI(cuptiActivityRegisterCallbacks)(request_buffer, complete_buffer);
  for (CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMORY2,
        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    PROBE_CUPTI(cuptiActivityEnable)(kind);
  }
}

}  // namespace

PROBE_EXPORT int InitializeInjection() {
  ++log().initialised;
  // A tool must not do this: the stand-in reports an error, and only the stand-in is called.
  if (std::getenv("SIMGPU_DEVICES") != nullptr) {
    const auto count =
        reinterpret_cast<cuDeviceGetCount_fn>(dlsym(RTLD_DEFAULT, "cuDeviceGetCount"));
    int devices = 0;
    if (count != nullptr) log().driver_call_while_loading = count(&devices);
  }
  start();
  return 1;
}

PROBE_EXPORT void probe_log(Log* out) {
  const std::lock_guard lock(g_mutex);
  *out = log();
}

PROBE_EXPORT void probe_clear() {
  const std::lock_guard lock(g_mutex);
  log().callbacks.clear();
  log().records.clear();
}

PROBE_EXPORT void probe_buffer_bytes(uint64_t bytes) {
  g_buffer_bytes.store(bytes);
}

}  // namespace tidemark::probe
