// Pinned host memory: real memory, since programs write to it.
#include <sys/mman.h>

#include "simgpu/call.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

CUresult allocate_host(Driver& driver, Context& context, void** out, size_t bytes) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const Allocation allocation{AllocationKind::kPinned,
                              reinterpret_cast<uint64_t>(memory),
                              bytes,
                              0,
                              context.device,
                              &context};
  driver.allocations.emplace(allocation.address, allocation);
  post(memory_event(true, allocation));
  *out = memory;
  return CUDA_SUCCESS;
}

CUresult register_host(Driver& driver, Context& context, void* p, size_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(p);
  if (p == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto after = driver.allocations.lower_bound(address);
  const bool overlaps = driver.find_range(address) != driver.allocations.end() ||
                        (after != driver.allocations.end() && after->first - address < bytes);
  if (overlaps) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const Allocation allocation{
      AllocationKind::kRegistered, address, bytes, 0, context.device, &context};
  driver.allocations.emplace(address, allocation);
  post(memory_event(true, allocation));
  return CUDA_SUCCESS;
}

// Frees an allocation of `kind` that begins at `p`.
CUresult end_host(Driver& driver, void* p, AllocationKind kind, CUresult otherwise) {
  const auto it = driver.allocations.find(reinterpret_cast<uint64_t>(p));
  if (it == driver.allocations.end() || it->second.kind != kind) return otherwise;
  post(memory_event(false, it->second));
  driver.drop(it);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return SIMGPU_CALL(cuMemAllocHost_v2, pp, bytesize)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_host(driver, context, pp, bytesize);
      });
}

SIMGPU_EXPORT CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return SIMGPU_CALL(cuMemHostAlloc, pp, bytesize, Flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_host(driver, context, pp, bytesize);
      });
}

SIMGPU_EXPORT CUresult cuMemFreeHost(void* p) {
  return SIMGPU_CALL(cuMemFreeHost, p).run_in_context([&](Driver& driver, Context&) {
    return end_host(driver, p, AllocationKind::kPinned, CUDA_ERROR_INVALID_VALUE);
  });
}

SIMGPU_EXPORT CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return SIMGPU_CALL(cuMemHostRegister, p, bytesize, Flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return register_host(driver, context, p, bytesize);
      });
}

SIMGPU_EXPORT CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return SIMGPU_CALL(cuMemHostRegister_v2, p, bytesize, Flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return register_host(driver, context, p, bytesize);
      });
}

SIMGPU_EXPORT CUresult cuMemHostUnregister(void* p) {
  return SIMGPU_CALL(cuMemHostUnregister, p).run_in_context([&](Driver& driver, Context&) {
    return end_host(driver, p, AllocationKind::kRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  });
}

SIMGPU_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p,
                                                    unsigned int Flags) {
  return SIMGPU_CALL(cuMemHostGetDevicePointer_v2, pdptr, p, Flags)
      .run_in_context([&](Driver& driver, Context&) {
        const auto address = reinterpret_cast<uint64_t>(p);
        if (pdptr == nullptr || !host_backed(driver, address, 1)) return CUDA_ERROR_INVALID_VALUE;
        *pdptr = address;  // one address space for host and devices
        return CUDA_SUCCESS;
      });
}

}  // namespace tidemark::simgpu
