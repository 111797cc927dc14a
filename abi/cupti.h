// Declarations of the parts of CUPTI that tidemark uses, written by hand (see cuda.h for the
// reason).
//
// Records: the loaded library fills its own newest struct. A record may be longer than declared
// here, but this prefix never changes: CUPTI only appends. Walk a buffer with
// cuptiActivityGetNextRecord only, and never use the sizeof of a record.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/cuda.h"
#include "abi/driver_callback_ids.h"

namespace tidemark::cupti {

enum CUptiResult : uint32_t {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_INVALID_DEVICE = 2,
  CUPTI_ERROR_INVALID_CONTEXT = 3,
  CUPTI_ERROR_INVALID_OPERATION = 7,
  CUPTI_ERROR_OUT_OF_MEMORY = 8,
  CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT = 10,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_INITIALIZED = 15,
  CUPTI_ERROR_INVALID_HANDLE = 19,
  CUPTI_ERROR_INVALID_STREAM = 20,
  CUPTI_ERROR_INVALID_KIND = 21,
  CUPTI_ERROR_NOT_SUPPORTED = 27,
  CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
  CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED = 38,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
  CUPTI_ERROR_UNKNOWN = 999,
};

using CUpti_SubscriberHandle = struct CUpti_Subscriber_st*;
using CUpti_CallbackId = uint32_t;

enum CUpti_CallbackDomain : uint32_t {
  CUPTI_CB_DOMAIN_INVALID = 0,
  CUPTI_CB_DOMAIN_DRIVER_API = 1,
  CUPTI_CB_DOMAIN_RUNTIME_API = 2,
  CUPTI_CB_DOMAIN_RESOURCE = 3,
  CUPTI_CB_DOMAIN_SYNCHRONIZE = 4,
  CUPTI_CB_DOMAIN_NVTX = 5,
  CUPTI_CB_DOMAIN_STATE = 6,
};

enum CUpti_ApiCallbackSite : uint32_t {
  CUPTI_API_ENTER = 0,
  CUPTI_API_EXIT = 1,
};

enum CUpti_CallbackIdResource : uint32_t {
  CUPTI_CBID_RESOURCE_CONTEXT_CREATED = 1,
  CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING = 2,
  CUPTI_CBID_RESOURCE_STREAM_CREATED = 3,
  CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING = 4,
  CUPTI_CBID_RESOURCE_CU_INIT_FINISHED = 5,
  CUPTI_CBID_RESOURCE_MODULE_LOADED = 6,
  CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING = 7,
  CUPTI_CBID_RESOURCE_GRAPH_CREATED = 9,
  CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING = 10,
  CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED = 13,
  CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED = 18,
  CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING = 19,
};

enum CUpti_CallbackIdState : uint32_t {
  CUPTI_CBID_STATE_FATAL_ERROR = 1,
  CUPTI_CBID_STATE_ERROR = 2,
  CUPTI_CBID_STATE_WARNING = 3,
};

// Valid during the callback only.
struct CUpti_CallbackData {
  CUpti_ApiCallbackSite callbackSite;
  const char* functionName;    // static
  const void* functionParams;  // the <function>_params of cuda_params.h
  void* functionReturnValue;   // CUresult*, read at EXIT only
  const char* symbolName;      // of the kernel, at launches
  cuda::CUcontext context;
  uint32_t contextUid;
  uint64_t* correlationData;  // scratch from ENTER to EXIT of one call
  uint32_t correlationId;
};

struct CUpti_ResourceData {
  cuda::CUcontext context;
  union {
    cuda::CUstream stream;
  } resourceHandle;
  void* resourceDescriptor;  // CUpti_ModuleResourceData, CUpti_GraphData
};

struct CUpti_ModuleResourceData {
  uint32_t moduleId;
  size_t cubinSize;
  const char* pCubin;
};

struct CUpti_GraphData {
  cuda::CUgraph graph;
  cuda::CUgraph originalGraph;
  cuda::CUgraphNode node;
  cuda::CUgraphNode originalNode;
  cuda::CUgraphNodeType nodeType;
  cuda::CUgraphNode dependency;
  cuda::CUgraphExec graphExec;
};

struct CUpti_StateData {
  CUptiResult result;
  const char* message;
};

// CUDA 13.0. From 13.2 on a member allowMultipleSubscribers follows; structSize tells them apart.
struct CUpti_SubscriberParams {
  size_t structSize;
  const char* subscriberName;
  char* oldSubscriberName;
  size_t oldSubscriberSize;
};

// CUDA 13.2. The first subscriber decides for all whether there may be others.
struct CUpti_SubscriberParams_13_2 {
  size_t structSize;
  const char* subscriberName;
  char* oldSubscriberName;
  size_t oldSubscriberSize;
  uint8_t allowMultipleSubscribers;
  uint8_t padding[7];
};
static_assert(sizeof(CUpti_SubscriberParams_13_2) == 40);

enum CUpti_ActivityKind : uint32_t {
  CUPTI_ACTIVITY_KIND_INVALID = 0,
  CUPTI_ACTIVITY_KIND_MEMCPY = 1,
  CUPTI_ACTIVITY_KIND_MEMSET = 2,
  CUPTI_ACTIVITY_KIND_KERNEL = 3,  // serializes kernels: never use
  CUPTI_ACTIVITY_KIND_DRIVER = 4,
  CUPTI_ACTIVITY_KIND_RUNTIME = 5,
  CUPTI_ACTIVITY_KIND_DEVICE = 8,
  CUPTI_ACTIVITY_KIND_CONTEXT = 9,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
  CUPTI_ACTIVITY_KIND_NAME = 11,
  CUPTI_ACTIVITY_KIND_MARKER = 12,
  CUPTI_ACTIVITY_KIND_MARKER_DATA = 13,
  CUPTI_ACTIVITY_KIND_OVERHEAD = 17,
  CUPTI_ACTIVITY_KIND_MEMCPY2 = 22,
  CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER = 25,
  CUPTI_ACTIVITY_KIND_MODULE = 27,
  CUPTI_ACTIVITY_KIND_CUDA_EVENT = 36,
  CUPTI_ACTIVITY_KIND_STREAM = 37,
  CUPTI_ACTIVITY_KIND_SYNCHRONIZATION = 38,
  CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION = 39,
  CUPTI_ACTIVITY_KIND_MEMORY = 45,
  CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API = 48,
  CUPTI_ACTIVITY_KIND_MEMORY2 = 49,
  CUPTI_ACTIVITY_KIND_MEMORY_POOL = 50,
  CUPTI_ACTIVITY_KIND_GRAPH_TRACE = 51,
  CUPTI_ACTIVITY_KIND_JIT = 52,
};

enum CUpti_ActivityAttribute : uint32_t {
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE = 0,
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,
  CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER = 5,
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6,
  CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED = 8,
  CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER = 9,
};

enum CUpti_ActivityMemoryKind : uint32_t {
  CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN = 0,
  CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE = 1,
  CUPTI_ACTIVITY_MEMORY_KIND_PINNED = 2,
  CUPTI_ACTIVITY_MEMORY_KIND_DEVICE = 3,
  CUPTI_ACTIVITY_MEMORY_KIND_ARRAY = 4,
  CUPTI_ACTIVITY_MEMORY_KIND_MANAGED = 5,
  CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC = 6,
  CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC = 7,
};

enum CUpti_ActivityMemoryOperationType : uint32_t {
  CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION = 1,
  CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE = 2,
};

enum CUpti_ActivityMemoryPoolType : uint32_t {
  CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID = 0,
  CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL = 1,
  CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED = 2,
};

enum CUpti_ActivityMemoryPoolOperationType : uint32_t {
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED = 1,
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED = 2,
  CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED = 3,
};

enum CUpti_ActivityMemcpyKind : uint32_t {
  CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN = 0,
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOD = 1,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOH = 2,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8,
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOH = 9,
  CUPTI_ACTIVITY_MEMCPY_KIND_PTOP = 10,
};

enum CUpti_ActivityOverheadKind : uint32_t {
  CUPTI_ACTIVITY_OVERHEAD_UNKNOWN = 0,
  CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER = 1,
  CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH = 1 << 16,
  CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION = 2 << 16,
  CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE = 3 << 16,
  CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING = 4 << 16,
  CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING = 5 << 16,
  CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL = 6 << 16,
  CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST = 7 << 16,
  CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT = 8 << 16,
};

enum CUpti_ActivityObjectKind : uint32_t {
  CUPTI_ACTIVITY_OBJECT_UNKNOWN = 0,
  CUPTI_ACTIVITY_OBJECT_PROCESS = 1,
  CUPTI_ACTIVITY_OBJECT_THREAD = 2,
  CUPTI_ACTIVITY_OBJECT_DEVICE = 3,
  CUPTI_ACTIVITY_OBJECT_CONTEXT = 4,
  CUPTI_ACTIVITY_OBJECT_STREAM = 5,
};

enum CUpti_ActivityThreadIdType : uint32_t {
  CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT = 0,
  CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM = 1,
};

inline constexpr uint32_t kActivityFlagFlushForced = 1;
inline constexpr uint8_t kActivityFlagMemcpyAsync = 1;
inline constexpr uint16_t kActivityFlagMemsetAsync = 1;
inline constexpr uint32_t kInvalidContextId = 0xffffffff;
inline constexpr uint32_t kInvalidStreamId = 0xffffffff;

// Common prefix of every record.
struct CUpti_Activity {
  CUpti_ActivityKind kind;
};

// Kind MEMORY2. 112 bytes in CUDA 11.2, + utilizedSize in 11.6, + source in 12.6.
struct CUpti_ActivityMemory4 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryOperationType memoryOperationType;
  CUpti_ActivityMemoryKind memoryKind;
  uint32_t correlationId;
  uint64_t address;
  uint64_t bytes;
  uint64_t timestamp;
  uint64_t PC;
  uint32_t processId;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  const char* name;
  uint32_t isAsync;
  uint32_t pad1;
  struct {
    CUpti_ActivityMemoryPoolType memoryPoolType;
    uint32_t pad2;
    uint64_t address;
    uint64_t releaseThreshold;
    union {
      uint64_t size;
      uint64_t processId;
    } pool;
    uint64_t utilizedSize;
  } memoryPoolConfig;
  const char* source;
};
static_assert(sizeof(CUpti_ActivityMemory4) == 128);

// Kind MEMORY_POOL. 64 bytes in CUDA 11.2, + utilizedSize in 11.6, + isManagedPool in 13.0.
struct CUpti_ActivityMemoryPool3 {
  CUpti_ActivityKind kind;
  CUpti_ActivityMemoryPoolOperationType memoryPoolOperationType;
  CUpti_ActivityMemoryPoolType memoryPoolType;
  uint32_t correlationId;
  uint32_t processId;
  uint32_t deviceId;
  size_t minBytesToKeep;
  uint64_t address;
  uint64_t size;
  uint64_t releaseThreshold;
  uint64_t timestamp;
  uint64_t utilizedSize;
  uint8_t isManagedPool;
  uint8_t pad2[7];
};
static_assert(sizeof(CUpti_ActivityMemoryPool3) == 80);

// Kind CONCURRENT_KERNEL: the prefix common to CUDA 11.8 (Kernel8, 200 bytes) and later.
struct CUpti_ActivityKernel8 {
  CUpti_ActivityKind kind;
  uint8_t cacheConfig;
  uint8_t sharedMemoryConfig;
  uint16_t registersPerThread;
  uint32_t partitionedGlobalCacheRequested;
  uint32_t partitionedGlobalCacheExecuted;
  uint64_t start;  // start == end == 0: the time was lost
  uint64_t end;
  uint64_t completed;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  int32_t gridX;
  int32_t gridY;
  int32_t gridZ;
  int32_t blockX;
  int32_t blockY;
  int32_t blockZ;
  int32_t staticSharedMemory;
  int32_t dynamicSharedMemory;
  uint32_t localMemoryPerThread;
  uint32_t localMemoryTotal;
  uint32_t correlationId;
  int64_t gridId;
  const char* name;
  void* reserved0;
  uint64_t queued;
  uint64_t submitted;
  uint8_t launchType;
  uint8_t isSharedMemoryCarveoutRequested;
  uint8_t sharedMemoryCarveoutRequested;
  uint8_t padding;
  uint32_t sharedMemoryExecuted;
  uint64_t graphNodeId;
  uint32_t shmemLimitConfig;
  uint32_t graphId;
  void* pAccessPolicyWindow;
  uint32_t channelID;
  uint32_t channelType;
  uint32_t clusterX;
  uint32_t clusterY;
  uint32_t clusterZ;
  uint32_t clusterSchedulingPolicy;
  uint64_t localMemoryTotal_v2;
};
static_assert(sizeof(CUpti_ActivityKernel8) == 200);

// The complete record of CUDA 13.0, for the stand-in.
struct CUpti_ActivityKernel10 : CUpti_ActivityKernel8 {
  uint32_t maxPotentialClusterSize;
  uint32_t maxActiveClusters;
  uint8_t isDeviceLaunched;
  uint8_t padding3[7];
};
static_assert(sizeof(CUpti_ActivityKernel10) == 216);

// Kind MEMCPY.
struct CUpti_ActivityMemcpy6 {
  CUpti_ActivityKind kind;
  uint8_t copyKind;  // CUpti_ActivityMemcpyKind
  uint8_t srcKind;   // CUpti_ActivityMemoryKind
  uint8_t dstKind;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  uint32_t correlationId;
  uint32_t runtimeCorrelationId;
  uint32_t pad;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channelID;
  uint32_t channelType;
  uint8_t isDeviceLaunched;
  uint8_t pad2[3];
  uint64_t copyCount;
};

// Kind MEMSET.
struct CUpti_ActivityMemset4 {
  CUpti_ActivityKind kind;
  uint32_t value;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  uint32_t correlationId;
  uint16_t flags;
  uint16_t memoryKind;
  uint32_t pad;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channelID;
  uint32_t channelType;
  uint8_t isDeviceLaunched;
  uint8_t pad2[3];
};

union CUpti_ActivityObjectKindId {
  struct {
    uint32_t processId;
    uint32_t threadId;
  } pt;
  struct {
    uint32_t deviceId;
    uint32_t contextId;
    uint32_t streamId;
  } dcs;
};

// Kind OVERHEAD. `overheadData`, if set, was malloc'd for the client, which frees it (CUDA 12.4+).
struct CUpti_ActivityOverhead3 {
  CUpti_ActivityKind kind;
  CUpti_ActivityOverheadKind overheadKind;
  CUpti_ActivityObjectKind objectKind;
  CUpti_ActivityObjectKindId objectId;
  uint64_t start;
  uint64_t end;
  uint32_t correlationId;
  uint32_t reserved0;
  void* overheadData;
};

// Kinds DRIVER, RUNTIME, INTERNAL_LAUNCH_API.
struct CUpti_ActivityAPI {
  CUpti_ActivityKind kind;
  CUpti_CallbackId cbid;
  uint64_t start;
  uint64_t end;
  uint32_t processId;
  uint32_t threadId;
  uint32_t correlationId;
  uint32_t returnValue;
};

using CUpti_CallbackFunc = void (*)(void* userdata, CUpti_CallbackDomain domain,
                                    CUpti_CallbackId cbid, const void* cbdata);
using CUpti_BuffersCallbackRequestFunc = void (*)(uint8_t** buffer, size_t* size,
                                                  size_t* maxNumRecords);
using CUpti_BuffersCallbackCompleteFunc = void (*)(cuda::CUcontext context, uint32_t streamId,
                                                   uint8_t* buffer, size_t size, size_t validSize);
using CUpti_TimestampCallbackFunc = uint64_t (*)();

// Functions, as found by dlsym.
using cuptiGetVersion_fn = CUptiResult (*)(uint32_t* version);
using cuptiGetResultString_fn = CUptiResult (*)(CUptiResult result, const char** str);
using cuptiGetTimestamp_fn = CUptiResult (*)(uint64_t* timestamp);
using cuptiSubscribe_fn = CUptiResult (*)(CUpti_SubscriberHandle* subscriber,
                                          CUpti_CallbackFunc callback, void* userdata);
using cuptiSubscribe_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle* subscriber,
                                             CUpti_CallbackFunc callback, void* userdata,
                                             CUpti_SubscriberParams* params);
// The calls of one subscriber among several, from CUDA 13.3 on. A process uses either these or
// those without a number: CUPTI refuses a mixture.
using CUpti_BuffersCallbackRequestFunc_v2 = void (*)(uint8_t** buffer, size_t* size,
                                                     size_t* maxNumRecords, void* info);
using CUpti_BuffersCallbackCompleteFunc_v2 = void (*)(uint8_t* buffer, size_t size,
                                                      size_t validSize, void* info);
using cuptiGetTimestamp_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                uint64_t* timestamp);
// config: which members a record has; nullptr for the usual record.
using cuptiActivityEnable_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                  CUpti_ActivityKind kind, void* config);
using cuptiActivityDisable_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                   CUpti_ActivityKind kind, void* config);
using cuptiActivityRegisterCallbacks_v2_fn = CUptiResult (*)(
    CUpti_SubscriberHandle subscriber, CUpti_BuffersCallbackRequestFunc_v2 funcBufferRequested,
    CUpti_BuffersCallbackCompleteFunc_v2 funcBufferCompleted);
using cuptiActivityGetNextRecord_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                         uint8_t* buffer,
                                                         size_t validBufferSizeBytes,
                                                         CUpti_Activity** record);
using cuptiActivityGetNumDroppedRecords_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                                cuda::CUcontext context,
                                                                uint32_t streamId, size_t* dropped);
using cuptiActivitySetAttribute_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                        CUpti_ActivityAttribute attr,
                                                        size_t* valueSize, void* value);
using cuptiActivityGetAttribute_v2_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber,
                                                        CUpti_ActivityAttribute attr,
                                                        size_t* valueSize, void* value);
using cuptiUnsubscribe_fn = CUptiResult (*)(CUpti_SubscriberHandle subscriber);
using cuptiEnableCallback_fn = CUptiResult (*)(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                               CUpti_CallbackDomain domain, CUpti_CallbackId cbid);
using cuptiEnableDomain_fn = CUptiResult (*)(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                             CUpti_CallbackDomain domain);
using cuptiGetCallbackState_fn = CUptiResult (*)(uint32_t* enable,
                                                 CUpti_SubscriberHandle subscriber,
                                                 CUpti_CallbackDomain domain,
                                                 CUpti_CallbackId cbid);
using cuptiGetCallbackName_fn = CUptiResult (*)(CUpti_CallbackDomain domain, uint32_t cbid,
                                                const char** name);
using cuptiGetDeviceId_fn = CUptiResult (*)(cuda::CUcontext context, uint32_t* deviceId);
using cuptiGetContextId_fn = CUptiResult (*)(cuda::CUcontext context, uint32_t* contextId);
using cuptiGetStreamId_fn = CUptiResult (*)(cuda::CUcontext context, cuda::CUstream stream,
                                            uint32_t* streamId);
using cuptiGetStreamIdEx_fn = CUptiResult (*)(cuda::CUcontext context, cuda::CUstream stream,
                                              uint8_t perThreadStream, uint32_t* streamId);
using cuptiActivityEnable_fn = CUptiResult (*)(CUpti_ActivityKind kind);
using cuptiActivityDisable_fn = CUptiResult (*)(CUpti_ActivityKind kind);
using cuptiActivityRegisterCallbacks_fn =
    CUptiResult (*)(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                    CUpti_BuffersCallbackCompleteFunc funcBufferCompleted);
using cuptiActivityGetNextRecord_fn = CUptiResult (*)(uint8_t* buffer, size_t validBufferSizeBytes,
                                                      CUpti_Activity** record);
using cuptiActivityGetNumDroppedRecords_fn = CUptiResult (*)(cuda::CUcontext context,
                                                             uint32_t streamId, size_t* dropped);
using cuptiActivityFlushAll_fn = CUptiResult (*)(uint32_t flag);
using cuptiActivityFlushPeriod_fn = CUptiResult (*)(uint32_t time_ms);
using cuptiActivitySetAttribute_fn = CUptiResult (*)(CUpti_ActivityAttribute attr,
                                                     size_t* valueSize, void* value);
using cuptiActivityGetAttribute_fn = CUptiResult (*)(CUpti_ActivityAttribute attr,
                                                     size_t* valueSize, void* value);
using cuptiActivityRegisterTimestampCallback_fn =
    CUptiResult (*)(CUpti_TimestampCallbackFunc funcTimestamp);
using cuptiActivityEnableAllocationSource_fn = CUptiResult (*)(uint8_t enable);
using cuptiSetThreadIdType_fn = CUptiResult (*)(CUpti_ActivityThreadIdType type);
using cuptiGetThreadIdType_fn = CUptiResult (*)(CUpti_ActivityThreadIdType* type);
using cuptiGetGraphNodeId_fn = CUptiResult (*)(cuda::CUgraphNode node, uint64_t* nodeId);
using cuptiGetGraphId_fn = CUptiResult (*)(cuda::CUgraph graph, uint32_t* id);
using cuptiFinalize_fn = CUptiResult (*)();

}  // namespace tidemark::cupti
