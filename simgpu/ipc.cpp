// Memory of other processes: IPC handles and external memory. It has addresses here but its bytes
// belong to the other process, so nothing is taken from the card.
//
// An IPC handle contains, from its first byte: magic, pid, card, address, bytes.
#include <unistd.h>

#include <cstring>

#include "simgpu/call.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

struct IpcContent {
  uint64_t magic;
  uint32_t pid;
  int32_t card;
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(IpcContent) <= sizeof(CUipcMemHandle));

constexpr uint64_t kIpcMagic = 0x3163706967706d53;

CUresult get_handle(Driver& driver, CUipcMemHandle* out, CUdeviceptr address) {
  const auto it = driver.find_range(address);
  if (out == nullptr || it == driver.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation& found = it->second;
  if (found.kind != AllocationKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  const IpcContent content{kIpcMagic, static_cast<uint32_t>(getpid()),
                           driver.device(found.device)->card.index(), found.address, found.bytes};
  *out = {};
  std::memcpy(out, &content, sizeof(content));
  return CUDA_SUCCESS;
}

CUresult open_handle(Driver& driver, Context& context, CUdeviceptr* out,
                     const CUipcMemHandle& handle) {
  IpcContent content{};
  std::memcpy(&content, &handle, sizeof(content));
  if (out == nullptr || content.magic != kIpcMagic) return CUDA_ERROR_INVALID_VALUE;
  // As with the real driver, a handle is for other processes, on the card where the memory is.
  if (content.pid == static_cast<uint32_t>(getpid())) return CUDA_ERROR_INVALID_CONTEXT;
  if (driver.device_of(context).card.index() != content.card) return CUDA_ERROR_INVALID_VALUE;
  for (auto& entry : driver.allocations) {
    Allocation& known = entry.second;
    if (known.kind == AllocationKind::kIpc && known.remote_pid == content.pid &&
        known.remote_address == content.address && known.context == &context) {
      ++known.users;
      *out = known.address;
      return CUDA_SUCCESS;
    }
  }
  Allocation* opened = nullptr;
  const CUresult result = add_range(driver, context, AllocationKind::kIpc, content.bytes, &opened);
  if (result != CUDA_SUCCESS) return result;
  opened->remote_pid = content.pid;
  opened->remote_address = content.address;
  post(memory_event(true, *opened));  // as CUPTI 13.0 does, although the bytes belong elsewhere
  *out = opened->address;
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  return SIMGPU_CALL(cuIpcGetMemHandle, pHandle, dptr)
      .run_in_context([&](Driver& driver, Context&) { return get_handle(driver, pHandle, dptr); });
}

SIMGPU_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                          unsigned int Flags) {
  return SIMGPU_CALL(cuIpcOpenMemHandle, pdptr, handle, Flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return open_handle(driver, context, pdptr, handle);
      });
}

SIMGPU_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                             unsigned int Flags) {
  return SIMGPU_CALL(cuIpcOpenMemHandle_v2, pdptr, handle, Flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return open_handle(driver, context, pdptr, handle);
      });
}

SIMGPU_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return SIMGPU_CALL(cuIpcCloseMemHandle, dptr).run_in_context([&](Driver& driver, Context&) {
    const auto it = driver.allocations.find(dptr);
    if (it == driver.allocations.end() || it->second.kind != AllocationKind::kIpc) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (--it->second.users == 0) {
      post(memory_event(false, it->second));
      driver.drop(it);
    }
    return CUDA_SUCCESS;
  });
}

// Takes over the descriptor, as the driver does.
SIMGPU_EXPORT CUresult cuImportExternalMemory(
    CUexternalMemory* extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
  return SIMGPU_CALL(cuImportExternalMemory, extMem_out, memHandleDesc)
      .run_in_context([&](Driver& driver, Context& context) {
        if (extMem_out == nullptr || memHandleDesc == nullptr || memHandleDesc->size == 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
            memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (close(memHandleDesc->handle.fd) != 0) return CUDA_ERROR_INVALID_HANDLE;
        *extMem_out = reinterpret_cast<CUexternalMemory>(
            driver.external.add({memHandleDesc->size, context.device}));
        return CUDA_SUCCESS;
      });
}

SIMGPU_EXPORT CUresult
cuExternalMemoryGetMappedBuffer(CUdeviceptr* devPtr, CUexternalMemory extMem,
                                const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc) {
  return SIMGPU_CALL(cuExternalMemoryGetMappedBuffer, devPtr, extMem, bufferDesc)
      .run_in_context([&](Driver& driver, Context& context) {
        const ExternalMemory* memory = driver.external.find(extMem);
        if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (devPtr == nullptr || bufferDesc == nullptr || bufferDesc->size == 0 ||
            bufferDesc->offset > memory->bytes ||
            bufferDesc->size > memory->bytes - bufferDesc->offset) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        Allocation* mapped = nullptr;
        const CUresult result =
            add_range(driver, context, AllocationKind::kExternal, bufferDesc->size, &mapped);
        if (result == CUDA_SUCCESS) *devPtr = mapped->address;
        return result;
      });
}

// An array over imported memory: none of its bytes belong to this process.
SIMGPU_EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray* mipmap, CUexternalMemory extMem,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* mipmapDesc) {
  return SIMGPU_CALL(cuExternalMemoryGetMappedMipmappedArray, mipmap, extMem, mipmapDesc)
      .run_in_context([&](Driver& driver, Context& context) {
        const ExternalMemory* memory = driver.external.find(extMem);
        if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (mipmap == nullptr || mipmapDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *mipmap = reinterpret_cast<CUmipmappedArray>(
            driver.arrays.add({memory->bytes, 0, context.device, &context, {}, 1}));
        return CUDA_SUCCESS;
      });
}

SIMGPU_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory extMem) {
  return SIMGPU_CALL(cuDestroyExternalMemory, extMem).run_in_context([&](Driver& driver, Context&) {
    if (driver.external.find(extMem) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    driver.external.erase(extMem);
    return CUDA_SUCCESS;
  });
}

}  // namespace tidemark::simgpu
