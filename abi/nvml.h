// Declarations of the parts of NVML that tidemark uses, written by hand (see cuda.h for the
// reason): the driver ships the library, but a toolkit may come without its header. Layouts are
// those of NVML API 13. The versioned structs carry their size, so that another driver version
// refuses them instead of guessing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::nvml {

enum nvmlReturn_t : uint32_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_OPERATING_SYSTEM = 17,
  NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

using nvmlDevice_t = struct nvmlDevice_st*;

inline constexpr unsigned long long kValueNotAvailable = ~0ULL;
inline constexpr unsigned int kNoInstance = 0xffffffff;  // gpuInstanceId without MIG

// Large enough for what the driver writes, including the terminating zero.
inline constexpr unsigned int kDeviceUuidBytes = 96;
inline constexpr unsigned int kDeviceNameBytes = 96;
inline constexpr unsigned int kDriverVersionBytes = 80;

struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;  // including what driver and firmware reserve
};
static_assert(sizeof(nvmlMemory_t) == 24);

struct nvmlMemory_v2_t {
  unsigned int version;  // kMemoryV2
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
static_assert(sizeof(nvmlMemory_v2_t) == 40);
inline constexpr unsigned int kMemoryV2 = sizeof(nvmlMemory_v2_t) | 2U << 24;

struct nvmlBAR1Memory_t {
  unsigned long long bar1Total;
  unsigned long long bar1Free;
  unsigned long long bar1Used;
};

struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
};
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16);

// Also filled by _v3, except by drivers that use nvmlProcessDetail_v1_t.
struct nvmlProcessInfo_v2_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
};
static_assert(sizeof(nvmlProcessInfo_v2_t) == 24);

struct nvmlProcessDetail_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory;
};
static_assert(sizeof(nvmlProcessDetail_v1_t) == 32);

struct nvmlProcessDetailList_v1_t {
  unsigned int version;  // kProcessDetailListV1
  unsigned int mode;     // 0 compute, 1 graphics, 2 MPS
  unsigned int numProcArrayEntries;
  nvmlProcessDetail_v1_t* procArray;
};
static_assert(sizeof(nvmlProcessDetailList_v1_t) == 24);
inline constexpr unsigned int kProcessDetailListV1 = sizeof(nvmlProcessDetailList_v1_t) | 1U << 24;

// Functions, as found by dlsym.
using nvmlInit_v2_fn = nvmlReturn_t (*)();
using nvmlInitWithFlags_fn = nvmlReturn_t (*)(unsigned int flags);
using nvmlShutdown_fn = nvmlReturn_t (*)();
using nvmlErrorString_fn = const char* (*)(nvmlReturn_t result);
using nvmlSystemGetDriverVersion_fn = nvmlReturn_t (*)(char* version, unsigned int length);
using nvmlSystemGetCudaDriverVersion_v2_fn = nvmlReturn_t (*)(int* version);
using nvmlDeviceGetCount_v2_fn = nvmlReturn_t (*)(unsigned int* count);
using nvmlDeviceGetHandleByIndex_v2_fn = nvmlReturn_t (*)(unsigned int index, nvmlDevice_t* device);
using nvmlDeviceGetHandleByUUID_fn = nvmlReturn_t (*)(const char* uuid, nvmlDevice_t* device);
using nvmlDeviceGetHandleByPciBusId_v2_fn = nvmlReturn_t (*)(const char* bus, nvmlDevice_t* device);
using nvmlDeviceGetUUID_fn = nvmlReturn_t (*)(nvmlDevice_t device, char* uuid, unsigned int length);
using nvmlDeviceGetName_fn = nvmlReturn_t (*)(nvmlDevice_t device, char* name, unsigned int length);
using nvmlDeviceGetMemoryInfo_fn = nvmlReturn_t (*)(nvmlDevice_t device, nvmlMemory_t* memory);
using nvmlDeviceGetMemoryInfo_v2_fn = nvmlReturn_t (*)(nvmlDevice_t device,
                                                       nvmlMemory_v2_t* memory);
using nvmlDeviceGetBAR1MemoryInfo_fn = nvmlReturn_t (*)(nvmlDevice_t device,
                                                        nvmlBAR1Memory_t* memory);
// `infos` is an array of nvmlProcessInfo_v1_t, _v2_t or (some drivers) nvmlProcessDetail_v1_t.
using nvmlDeviceGetComputeRunningProcesses_fn = nvmlReturn_t (*)(nvmlDevice_t device,
                                                                 unsigned int* count, void* infos);
using nvmlDeviceGetRunningProcessDetailList_fn = nvmlReturn_t (*)(nvmlDevice_t device,
                                                                  nvmlProcessDetailList_v1_t* list);
using nvmlDeviceGetMigMode_fn = nvmlReturn_t (*)(nvmlDevice_t device, unsigned int* current,
                                                 unsigned int* pending);

}  // namespace tidemark::nvml
