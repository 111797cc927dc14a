// The exported functions of libcupti.so.13.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <ctime>

#include "simgpu/cupti_state.h"
#include "simgpu/hang.h"

namespace tidemark::simgpu {
namespace {

std::atomic<CUpti_TimestampCallbackFunc> g_timestamp{nullptr};

int64_t realtime_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

const Hooks kHooks{
    // An API record also needs the call.
    [](uint32_t id) { return callback_wanted(id) || kind_enabled(CUPTI_ACTIVITY_KIND_DRIVER); },
    [](const ApiSite& site) {
      call_back(site);
      record(site);
    },
    [](const ResourceEvent& event) {
      if (event.id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) prepare_context(event.context);
      call_back(event);
    },
    [](const MemoryEvent& event) { record(event); },
    [](const PoolEvent& event) { record(event); },
    [](const WorkEvent& event) { record(event); },
};

const TracingTable* connect() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return nullptr;
  using GetExportTable = cuda::CUresult (*)(const void**, const cuda::CUuuid*);
  const auto get = reinterpret_cast<GetExportTable>(dlsym(driver, "cuGetExportTable"));
  const void* table = nullptr;
  if (get == nullptr || get(&table, &kTracingTableId) != cuda::CUDA_SUCCESS) return nullptr;
  const auto* tracing = static_cast<const TracingTable*>(table);
  tracing->set_hooks(&kHooks);
  return tracing;
}

struct ResultText {
  CUptiResult result;
  const char* text;
};
constexpr ResultText kResults[] = {
    {CUPTI_SUCCESS, "CUPTI_SUCCESS"},
    {CUPTI_ERROR_INVALID_PARAMETER, "CUPTI_ERROR_INVALID_PARAMETER"},
    {CUPTI_ERROR_INVALID_CONTEXT, "CUPTI_ERROR_INVALID_CONTEXT"},
    {CUPTI_ERROR_INVALID_OPERATION, "CUPTI_ERROR_INVALID_OPERATION"},
    {CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT, "CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"},
    {CUPTI_ERROR_MAX_LIMIT_REACHED, "CUPTI_ERROR_MAX_LIMIT_REACHED"},
    {CUPTI_ERROR_NOT_INITIALIZED, "CUPTI_ERROR_NOT_INITIALIZED"},
    {CUPTI_ERROR_INVALID_STREAM, "CUPTI_ERROR_INVALID_STREAM"},
    {CUPTI_ERROR_INVALID_KIND, "CUPTI_ERROR_INVALID_KIND"},
    {CUPTI_ERROR_NOT_SUPPORTED, "CUPTI_ERROR_NOT_SUPPORTED"},
    {CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
     "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"},
    {CUPTI_ERROR_UNKNOWN, "CUPTI_ERROR_UNKNOWN"},
};

}  // namespace

const TracingTable* driver_table() {
  static const TracingTable* table = connect();
  return table;
}

int64_t clock_ns() {
  const CUpti_TimestampCallbackFunc own = g_timestamp.load();
  return own == nullptr ? realtime_ns() : static_cast<int64_t>(own());
}

uint64_t client_time(int64_t driver_ns) {
  if (driver_ns == 0) return 0;
  const CUpti_TimestampCallbackFunc own = g_timestamp.load();
  const int64_t offset = own == nullptr ? 0 : static_cast<int64_t>(own()) - realtime_ns();
  return static_cast<uint64_t>(driver_ns + offset);
}

SIMGPU_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = 130001;
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** str) {
  if (str == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  for (const ResultText& known : kResults) {
    if (known.result != result) continue;
    *str = known.text;
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

SIMGPU_EXPORT CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = static_cast<uint64_t>(clock_ns());
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber,
                                         CUpti_CallbackFunc callback, void* userdata) {
  return subscribe(subscriber, callback, userdata);
}

SIMGPU_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                                            CUpti_CallbackFunc callback, void* userdata,
                                            CUpti_SubscriberParams* params) {
  static char name[64];  // of the current subscriber
  if (params == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const CUptiResult result = subscribe(subscriber, callback, userdata);
  if (result == CUPTI_SUCCESS) {
    std::strncpy(name, params->subscriberName != nullptr ? params->subscriberName : "",
                 sizeof(name) - 1);
  } else if (params->oldSubscriberName != nullptr && params->oldSubscriberSize >= sizeof(name)) {
    std::memcpy(params->oldSubscriberName, name, sizeof(name));
  }
  return result;
}

SIMGPU_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  return unsubscribe(subscriber);
}

SIMGPU_EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                              CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  return enable_callback(enable != 0, subscriber, domain, cbid);
}

SIMGPU_EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                            CUpti_CallbackDomain domain) {
  return enable_domain(enable != 0, subscriber, domain);
}

SIMGPU_EXPORT CUptiResult cuptiEnableAllDomains(uint32_t enable,
                                                CUpti_SubscriberHandle subscriber) {
  for (uint32_t domain = CUPTI_CB_DOMAIN_DRIVER_API; domain <= CUPTI_CB_DOMAIN_STATE; ++domain) {
    const CUptiResult result =
        enable_domain(enable != 0, subscriber, static_cast<CUpti_CallbackDomain>(domain));
    if (result != CUPTI_SUCCESS) return result;
  }
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle subscriber,
                                                CUpti_CallbackDomain domain,
                                                CUpti_CallbackId cbid) {
  return callback_state(enable, subscriber, domain, cbid);
}

SIMGPU_EXPORT CUptiResult cuptiGetContextId(cuda::CUcontext context, uint32_t* contextId) {
  uint32_t device = 0;
  if (contextId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (driver_table() == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  return driver_table()->context(context, contextId, &device) ? CUPTI_SUCCESS
                                                              : CUPTI_ERROR_INVALID_CONTEXT;
}

SIMGPU_EXPORT CUptiResult cuptiGetDeviceId(cuda::CUcontext context, uint32_t* deviceId) {
  uint32_t id = 0;
  if (deviceId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (driver_table() == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  return driver_table()->context(context, &id, deviceId) ? CUPTI_SUCCESS
                                                         : CUPTI_ERROR_INVALID_CONTEXT;
}

SIMGPU_EXPORT CUptiResult cuptiGetStreamIdEx(cuda::CUcontext context, cuda::CUstream stream,
                                             uint8_t perThreadStream, uint32_t* streamId) {
  if (streamId == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (driver_table() == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  return driver_table()->stream(context, stream, perThreadStream != 0, streamId)
             ? CUPTI_SUCCESS
             : CUPTI_ERROR_INVALID_STREAM;
}

SIMGPU_EXPORT CUptiResult cuptiGetStreamId(cuda::CUcontext context, cuda::CUstream stream,
                                           uint32_t* streamId) {
  return cuptiGetStreamIdEx(context, stream, 0, streamId);
}

SIMGPU_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return enable_kind(kind, true);
}

SIMGPU_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return enable_kind(kind, false);
}

SIMGPU_EXPORT CUptiResult
cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                               CUpti_BuffersCallbackCompleteFunc funcBufferCompleted) {
  return register_buffers(funcBufferRequested, funcBufferCompleted);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes,
                                                     CUpti_Activity** record) {
  return next_record(buffer, validBufferSizeBytes, record);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(cuda::CUcontext /*context*/,
                                                            uint32_t /*streamId*/,
                                                            size_t* dropped) {
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = take_dropped();
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  hang_if_asked("cupti");
  return flush((flag & kActivityFlagFlushForced) != 0);
}

// Buffers are delivered as soon as they are full: there is nothing to do periodically.
SIMGPU_EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t /*time_ms*/) {
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize,
                                                    void* value) {
  return attribute(attr, valueSize, value, true);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize,
                                                    void* value) {
  return attribute(attr, valueSize, value, false);
}

SIMGPU_EXPORT CUptiResult
cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp) {
  g_timestamp.store(funcTimestamp);
  return funcTimestamp == nullptr ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
}

// The caller of an allocation is not known here: the source in the records stays empty.
SIMGPU_EXPORT CUptiResult cuptiActivityEnableAllocationSource(uint8_t /*enable*/) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

SIMGPU_EXPORT CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  if (type > CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM) return CUPTI_ERROR_INVALID_PARAMETER;
  set_thread_id_type(type);
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType* type) {
  if (type == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *type = thread_id_type();
  return CUPTI_SUCCESS;
}

}  // namespace tidemark::simgpu
