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

// SIMGPU_CUPTI_SHARED=1: as CUDA 13.3 with a driver that allows several subscribers;
// SIMGPU_CUPTI_SHARED=refused: the same library with an older driver.
bool is_shared_setting(const char* wanted) {
  const char* const text = driver_variable("SIMGPU_CUPTI_SHARED");
  return text != nullptr && std::strcmp(text, wanted) == 0;
}
bool has_shared_calls() {
  return is_shared_setting("1") || is_shared_setting("refused");
}

void hang_at_subscription() {
  static Hang& hang = *new Hang("subscribe", driver_variable);
  hang.if_asked();
}

// SIMGPU_NO_PAUSE=1: kinds cannot be disabled.
CUptiResult switch_kind(size_t slot, CUpti_ActivityKind kind, bool on) {
  static Hang& hang = *new Hang("switch", driver_variable);
  hang.if_asked();
  if (!on && driver_variable("SIMGPU_NO_PAUSE") != nullptr) return CUPTI_ERROR_NOT_SUPPORTED;
  return enable_kind(slot, kind, on);
}

// For the calls without a subscriber, once a process uses those with one.
constexpr CUptiResult kRefused = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;

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

const char* driver_variable(const char* name) {
  return driver_table() != nullptr ? driver_table()->variable(name) : nullptr;
}

SIMGPU_EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = has_shared_calls() ? 130300 : 130001;
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
  hang_at_subscription();
  return subscribe(subscriber, callback, userdata, false);
}

SIMGPU_EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                                            CUpti_CallbackFunc callback, void* userdata,
                                            CUpti_SubscriberParams* params) {
  static char name[64];  // of the current subscriber
  hang_at_subscription();
  if (params == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const bool shared =
      params->structSize >= sizeof(CUpti_SubscriberParams_13_2) &&
      reinterpret_cast<const CUpti_SubscriberParams_13_2*>(params)->allowMultipleSubscribers != 0;
  if (shared && !is_shared_setting("1")) return kRefused;
  const CUptiResult result = subscribe(subscriber, callback, userdata, shared);
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
  return is_shared() ? kRefused : switch_kind(0, kind, true);
}

SIMGPU_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return is_shared() ? kRefused : switch_kind(0, kind, false);
}

SIMGPU_EXPORT CUptiResult
cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                               CUpti_BuffersCallbackCompleteFunc funcBufferCompleted) {
  if (funcBufferRequested == nullptr || funcBufferCompleted == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (is_shared()) return kRefused;
  return register_buffers(0, funcBufferRequested,
                          [funcBufferCompleted](uint8_t* buffer, size_t size, size_t valid) {
                            funcBufferCompleted(nullptr, 0, buffer, size, valid);
                          });
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes,
                                                     CUpti_Activity** record) {
  return is_shared() ? kRefused : next_record(buffer, validBufferSizeBytes, record);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(cuda::CUcontext /*context*/,
                                                            uint32_t /*streamId*/,
                                                            size_t* dropped) {
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (is_shared()) return kRefused;
  *dropped = take_dropped(0);
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  static Hang& hang = *new Hang("cupti", driver_variable);
  hang.if_asked();
  return flush((flag & kActivityFlagFlushForced) != 0);
}

// Buffers are delivered as soon as they are full: there is nothing to do periodically.
SIMGPU_EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t /*time_ms*/) {
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize,
                                                    void* value) {
  return is_shared() ? kRefused : attribute(attr, valueSize, value, true);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attr, size_t* valueSize,
                                                    void* value) {
  return is_shared() ? kRefused : attribute(attr, valueSize, value, false);
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

// ---- the calls of one subscriber among several ----

SIMGPU_EXPORT CUptiResult cuptiGetTimestamp_v2(CUpti_SubscriberHandle subscriber,
                                               uint64_t* timestamp) {
  if (slot_of(subscriber) == kMostSubscribers) return CUPTI_ERROR_INVALID_PARAMETER;
  return cuptiGetTimestamp(timestamp);
}

SIMGPU_EXPORT CUptiResult cuptiActivityEnable_v2(CUpti_SubscriberHandle subscriber,
                                                 CUpti_ActivityKind kind, void* /*config*/) {
  const size_t slot = slot_of(subscriber);
  return slot < kMostSubscribers ? switch_kind(slot, kind, true) : CUPTI_ERROR_INVALID_PARAMETER;
}

SIMGPU_EXPORT CUptiResult cuptiActivityDisable_v2(CUpti_SubscriberHandle subscriber,
                                                  CUpti_ActivityKind kind, void* /*config*/) {
  const size_t slot = slot_of(subscriber);
  return slot < kMostSubscribers ? switch_kind(slot, kind, false) : CUPTI_ERROR_INVALID_PARAMETER;
}

SIMGPU_EXPORT CUptiResult cuptiActivityRegisterCallbacks_v2(
    CUpti_SubscriberHandle subscriber, CUpti_BuffersCallbackRequestFunc_v2 funcBufferRequested,
    CUpti_BuffersCallbackCompleteFunc_v2 funcBufferCompleted) {
  const size_t slot = slot_of(subscriber);
  if (slot == kMostSubscribers || funcBufferRequested == nullptr ||
      funcBufferCompleted == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return register_buffers(
      slot,
      [funcBufferRequested](uint8_t** buffer, size_t* size, size_t* max_records) {
        funcBufferRequested(buffer, size, max_records, nullptr);
      },
      [funcBufferCompleted](uint8_t* buffer, size_t size, size_t valid) {
        funcBufferCompleted(buffer, size, valid, nullptr);
      });
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle subscriber,
                                                        uint8_t* buffer,
                                                        size_t validBufferSizeBytes,
                                                        CUpti_Activity** record) {
  if (slot_of(subscriber) == kMostSubscribers) return CUPTI_ERROR_INVALID_PARAMETER;
  return next_record(buffer, validBufferSizeBytes, record);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords_v2(CUpti_SubscriberHandle subscriber,
                                                               cuda::CUcontext /*context*/,
                                                               uint32_t /*streamId*/,
                                                               size_t* dropped) {
  const size_t slot = slot_of(subscriber);
  if (slot == kMostSubscribers || dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = take_dropped(slot);
  return CUPTI_SUCCESS;
}

SIMGPU_EXPORT CUptiResult cuptiActivitySetAttribute_v2(CUpti_SubscriberHandle subscriber,
                                                       CUpti_ActivityAttribute attr,
                                                       size_t* valueSize, void* value) {
  if (slot_of(subscriber) == kMostSubscribers) return CUPTI_ERROR_INVALID_PARAMETER;
  return attribute(attr, valueSize, value, true);
}

SIMGPU_EXPORT CUptiResult cuptiActivityGetAttribute_v2(CUpti_SubscriberHandle subscriber,
                                                       CUpti_ActivityAttribute attr,
                                                       size_t* valueSize, void* value) {
  if (slot_of(subscriber) == kMostSubscribers) return CUPTI_ERROR_INVALID_PARAMETER;
  return attribute(attr, valueSize, value, false);
}

}  // namespace tidemark::simgpu
