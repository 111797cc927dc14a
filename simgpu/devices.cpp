// Initialisation, devices, and function lookup.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "simgpu/call.h"

namespace tidemark::simgpu {
namespace {

// Functions whose later versions have other parameters: a program gets the version that its CUDA
// version knew.
struct Versioned {
  std::string_view name;
  int since;  // 12050: CUDA 12.5
  const char* symbol;
};
constexpr Versioned kVersioned[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphAddNode", 12020, "cuGraphAddNode"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
};

void* own_library() {
  static void* library = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&own_library), &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return library;
}

void* symbol(const std::string& name) {
  return dlsym(own_library(), name.c_str());
}

// The newest version of a function, in the variant that the flags select.
void* find_newest(const std::string& name, bool per_thread) {
  constexpr const char* kVersions[] = {"_v4", "_v3", "_v2", ""};
  constexpr const char* kVariants[] = {"_ptsz", "_ptds"};
  for (const char* version : kVersions) {
    if (per_thread) {
      for (const char* variant : kVariants) {
        if (void* found = symbol(name + version + variant)) return found;
      }
    }
    if (void* found = symbol(name + version)) return found;
  }
  return nullptr;
}

CUresult get_proc_address(const char* name, void** out, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto answer = [&](void* found, CUdriverProcAddressQueryResult why) {
    *out = found;
    if (status != nullptr) *status = why;
    // Without a status parameter, a missing function is an error.
    return found != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  };
  bool versioned = false;
  for (const Versioned& entry : kVersioned) {
    if (entry.name != name) continue;
    versioned = true;
    if (version >= entry.since) return answer(symbol(entry.symbol), CU_GET_PROC_ADDRESS_SUCCESS);
  }
  if (versioned) return answer(nullptr, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  void* found = find_newest(name, (flags & kGetProcAddressPerThreadDefaultStream) != 0);
  return answer(
      found, found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

CUresult attribute(const Device& device, CUdevice_attribute which, int* out) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *out = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *out = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *out = device.card.index() + 1;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *out = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      *out = 1;
      break;
    default:
      *out = 0;
  }
  return CUDA_SUCCESS;
}

CUresult copy_text(const std::string& text, char* out, int length) {
  if (out == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(out, static_cast<size_t>(length), "%s", text.c_str());
  return CUDA_SUCCESS;
}

CUresult uuid(Driver& driver, CUuuid* out, CUdevice dev) {
  const Device* device = driver.device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  card_uuid(device->card.index(), out->bytes);
  return CUDA_SUCCESS;
}

struct ErrorText {
  CUresult result;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

const ErrorText* find_error(CUresult error) {
  const auto* it = std::find_if(std::begin(kErrors), std::end(kErrors),
                                [&](const ErrorText& e) { return e.result == error; });
  return it == std::end(kErrors) ? nullptr : it;
}

}  // namespace

SIMGPU_EXPORT CUresult cuInit(unsigned int Flags) {
  // As driver 580 does: for the first call, which loads the tool, the tool gets only
  // CU_INIT_FINISHED.
  static std::atomic<bool> finished{false};
  const CUresult initialised = Driver::get().initialise();
  if (initialised != CUDA_SUCCESS) return initialised;
  if (!finished.exchange(true)) {
    ResourceEvent event{};
    event.id = cupti::CUPTI_CBID_RESOURCE_CU_INIT_FINISHED;
    tell(event);
    return Flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return SIMGPU_CALL(cuInit, Flags).run([&](Driver&) {
    return Flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIMGPU_EXPORT CUresult cuDriverGetVersion(int* driverVersion) {
  return SIMGPU_CALL(cuDriverGetVersion, driverVersion)
      .needs(Need::kNothing)
      .run_unlocked([&](Driver&) {
        if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *driverVersion = kDriverVersion;
        return CUDA_SUCCESS;
      });
}

SIMGPU_EXPORT CUresult cuDeviceGetCount(int* count) {
  return SIMGPU_CALL(cuDeviceGetCount, count).run([&](Driver& driver) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(driver.devices.size());
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return SIMGPU_CALL(cuDeviceGet, device, ordinal).run([&](Driver& driver) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetName, name, len, dev).run([&](Driver& driver) {
    if (driver.device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return copy_text(kDeviceName, name, len);
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid_out, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetUuid, uuid_out, dev).run([&](Driver& driver) {
    return uuid(driver, uuid_out, dev);
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid_out, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetUuid_v2, uuid_out, dev).run([&](Driver& driver) {
    return uuid(driver, uuid_out, dev);
  });
}

SIMGPU_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceTotalMem_v2, bytes, dev).run([&](Driver& driver) {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device->card.capacity_bytes();
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetAttribute, pi, attrib, dev).run([&](Driver& driver) {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return pi == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute(*device, attrib, pi);
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetPCIBusId, pciBusId, len, dev).run([&](Driver& driver) {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return copy_text(card_bus_id(device->card.index()), pciBusId, len);
  });
}

SIMGPU_EXPORT CUresult cuGetProcAddress_v2(const char* symbol_name, void** pfn, int cudaVersion,
                                           cuuint64_t flags,
                                           CUdriverProcAddressQueryResult* symbolStatus) {
  return SIMGPU_CALL(cuGetProcAddress_v2, symbol_name, pfn, cudaVersion, flags, symbolStatus)
      .needs(Need::kNothing)
      .run_unlocked([&](Driver&) {
        return get_proc_address(symbol_name, pfn, cudaVersion, flags, symbolStatus);
      });
}

SIMGPU_EXPORT CUresult cuGetProcAddress(const char* symbol_name, void** pfn, int cudaVersion,
                                        cuuint64_t flags) {
  return SIMGPU_CALL(cuGetProcAddress, symbol_name, pfn, cudaVersion, flags)
      .needs(Need::kNothing)
      .run_unlocked(
          [&](Driver&) { return get_proc_address(symbol_name, pfn, cudaVersion, flags, nullptr); });
}

SIMGPU_EXPORT CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = find_error(error);
  *pStr = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = find_error(error);
  *pStr = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// The interface for the stand-ins of CUPTI and NVML (hooks.h).
SIMGPU_EXPORT CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::memcmp(pExportTableId, &kTracingTableId, sizeof(CUuuid)) != 0) {
    return CUDA_ERROR_NOT_FOUND;
  }
  *ppExportTable = &tracing_table();
  return CUDA_SUCCESS;
}

}  // namespace tidemark::simgpu
