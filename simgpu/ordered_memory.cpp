// Stream-ordered allocation and free, and pool memory shared between processes.
#include <unistd.h>

#include <cstring>

#include "simgpu/call.h"
#include "simgpu/contexts.h"
#include "simgpu/graphs.h"
#include "simgpu/memory.h"
#include "simgpu/pools.h"

namespace tidemark::simgpu {
namespace {

// The content of CUmemPoolPtrExportData, from its first byte.
struct PointerExport {
  uint64_t magic;
  uint64_t address;
  uint64_t bytes;
  uint32_t pid;
};
static_assert(sizeof(PointerExport) <= sizeof(CUmemPoolPtrExportData));
constexpr uint64_t kPointerMagic = 0x3172746e69507053;

CUresult allocate(Driver& driver, Context& context, CUdeviceptr* out, uint64_t bytes, Pool* pool,
                  CUstream handle, bool per_thread) {
  const Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr) {
    return add_alloc_node(driver, *stream->capture, bytes, out) != nullptr
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (bytes > driver.device_of(context).card.capacity_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (pool->imported) return CUDA_ERROR_INVALID_VALUE;  // only the owner allocates
  const uint64_t address = pool->take(driver, bytes);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation{AllocationKind::kPooled, address, bytes, 0, pool->device, &context};
  allocation.pool = pool;
  driver.allocations.emplace(address, allocation);
  post(memory_event(true, allocation, stream));
  *out = address;
  return CUDA_SUCCESS;
}

CUresult allocate_default(Driver& driver, Context& context, CUdeviceptr* out, uint64_t bytes,
                          CUstream stream, bool per_thread) {
  Device& device = driver.device_of(context);
  Pool* pool = device.current_pool != nullptr ? device.current_pool : default_pool(driver, device);
  return allocate(driver, context, out, bytes, pool, stream, per_thread);
}

CUresult allocate_from(Driver& driver, Context& context, CUdeviceptr* out, uint64_t bytes,
                       CUmemoryPool handle, CUstream stream, bool per_thread) {
  Pool* pool = driver.pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return allocate(driver, context, out, bytes, pool, stream, per_thread);
}

CUresult release(Driver& driver, Context& context, CUdeviceptr address, CUstream handle,
                 bool per_thread) {
  const Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {
    add_free_node(driver, *stream->capture, address);
    return CUDA_SUCCESS;
  }
  const auto it = driver.allocations.find(address);
  if (it == driver.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation& found = it->second;
  const bool ordered = found.kind == AllocationKind::kPooled ||
                       found.kind == AllocationKind::kGraph || found.pool != nullptr;
  if (!ordered) return CUDA_ERROR_INVALID_VALUE;
  post(memory_event(false, found, stream));
  driver.drop(it);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return SIMGPU_CALL(cuMemAllocAsync, dptr, bytesize, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_default(driver, context, dptr, bytesize, hStream, false);
      });
}

SIMGPU_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return SIMGPU_CALL(cuMemAllocAsync_ptsz, dptr, bytesize, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_default(driver, context, dptr, bytesize, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize,
                                               CUmemoryPool pool, CUstream hStream) {
  return SIMGPU_CALL(cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_from(driver, context, dptr, bytesize, pool, hStream, false);
      });
}

SIMGPU_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize,
                                                    CUmemoryPool pool, CUstream hStream) {
  return SIMGPU_CALL(cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_from(driver, context, dptr, bytesize, pool, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return SIMGPU_CALL(cuMemFreeAsync, dptr, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return release(driver, context, dptr, hStream, false);
      });
}

SIMGPU_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return SIMGPU_CALL(cuMemFreeAsync_ptsz, dptr, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return release(driver, context, dptr, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out,
                                              CUdeviceptr ptr) {
  return SIMGPU_CALL(cuMemPoolExportPointer, shareData_out, ptr).run([&](Driver& driver) {
    const auto it = driver.allocations.find(ptr);
    if (shareData_out == nullptr || it == driver.allocations.end() ||
        it->second.kind != AllocationKind::kPooled) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const PointerExport content{kPointerMagic, ptr, it->second.bytes,
                                static_cast<uint32_t>(getpid())};
    *shareData_out = {};
    std::memcpy(shareData_out, &content, sizeof(content));
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                              CUmemPoolPtrExportData* shareData) {
  return SIMGPU_CALL(cuMemPoolImportPointer, ptr_out, pool, shareData)
      .run_in_context([&](Driver& driver, Context& context) {
        Pool* found = driver.pools.find(pool);
        if (ptr_out == nullptr || shareData == nullptr || found == nullptr || !found->imported) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        PointerExport content{};
        std::memcpy(&content, shareData, sizeof(content));
        if (content.magic != kPointerMagic) return CUDA_ERROR_INVALID_VALUE;
        Allocation* imported = nullptr;
        const CUresult result =
            add_range(driver, context, AllocationKind::kExternal, content.bytes, &imported);
        if (result != CUDA_SUCCESS) return result;
        imported->pool = found;
        imported->remote_pid = content.pid;
        *ptr_out = imported->address;
        return CUDA_SUCCESS;
      });
}

}  // namespace tidemark::simgpu
