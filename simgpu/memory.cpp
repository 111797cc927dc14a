// Device, pitched and managed memory, and queries about addresses.
#include "simgpu/memory.h"

#include <sys/mman.h>

#include <cstring>

#include "simgpu/call.h"
#include "simgpu/pools.h"

namespace tidemark::simgpu {
namespace {

constexpr uint64_t kPitchAlignment = 512;
constexpr uint64_t kGraphPoolAddress = 1;

cupti::CUpti_ActivityMemoryKind activity_kind(AllocationKind kind) {
  switch (kind) {
    case AllocationKind::kManaged:
      return cupti::CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
    case AllocationKind::kPinned:
    case AllocationKind::kRegistered:
      return cupti::CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    default:
      return cupti::CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  }
}

CUresult allocate(Driver& driver, Context& context, CUdeviceptr* out, uint64_t bytes) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Device& device = driver.device_of(context);
  // A huge size must not overflow when it is rounded.
  if (bytes > device.card.capacity_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t charged = round_up(bytes, kAllocationAlignment);
  if (!driver.take(device, charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t address = device.addresses.take(charged, kAllocationAlignment);
  if (address == 0) {
    device.card.give(charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Allocation allocation{AllocationKind::kDevice, address, bytes, charged,
                              context.device,          &context};
  driver.allocations.emplace(address, allocation);
  post(memory_event(true, allocation));
  *out = address;
  return CUDA_SUCCESS;
}

// Programs access managed memory, so host memory backs it. It moves to the card only page by page:
// as NVML sees it, it takes nothing from the card.
CUresult allocate_managed(Driver& driver, Context& context, CUdeviceptr* out, uint64_t bytes,
                          unsigned int flags) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != kMemAttachGlobal && flags != kMemAttachHost) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto address = reinterpret_cast<uint64_t>(memory);
  const Allocation allocation{AllocationKind::kManaged, address, bytes, 0,
                              context.device,           &context};
  driver.allocations.emplace(address, allocation);
  post(memory_event(true, allocation));
  *out = address;
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(Driver& driver, void* data, CUpointer_attribute attribute,
                           CUdeviceptr ptr) {
  const auto it = driver.find_range(ptr);
  if (data == nullptr || it == driver.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation& found = it->second;
  const bool host =
      found.kind == AllocationKind::kPinned || found.kind == AllocationKind::kRegistered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = reinterpret_cast<CUcontext>(found.context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(data) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) =
          attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? ptr : found.address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = found.bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned int*>(data) = found.kind == AllocationKind::kManaged ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = found.device;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

MemoryEvent memory_event(bool allocation, const Allocation& of, const Stream* stream) {
  MemoryEvent event{};
  event.allocation = allocation;
  event.kind = activity_kind(of.kind);
  event.address = of.address;
  event.bytes = of.bytes;
  event.device = static_cast<uint32_t>(of.device);
  event.context_id = context_id(of.context);
  event.stream_id = stream == nullptr ? cupti::kInvalidStreamId : stream->id;
  if (of.pool != nullptr) event.pool = pool_state(*of.pool);
  // An allocation of a graph comes from the pool that the driver has for graphs.
  if (of.kind == AllocationKind::kGraph) event.pool.address = kGraphPoolAddress;
  event.time_ns = now_ns();
  event.correlation = current_correlation();
  return event;
}

CUresult add_range(Driver& driver, Context& context, AllocationKind kind, uint64_t bytes,
                   Allocation** out) {
  Device& device = driver.device_of(context);
  const uint64_t address =
      device.addresses.take(round_up(bytes, kAllocationAlignment), kAllocationAlignment);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const Allocation allocation{kind, address, bytes, 0, context.device, &context};
  *out = &driver.allocations.emplace(address, allocation).first->second;
  return CUDA_SUCCESS;
}

void Driver::drop(std::map<uint64_t, Allocation>::iterator it) {
  const Allocation& gone = it->second;
  Device& device = *devices[static_cast<size_t>(gone.device)];
  device.card.give(gone.charged_bytes);
  switch (gone.kind) {
    case AllocationKind::kManaged:
    case AllocationKind::kPinned:
      // Whole pages: the thread sanitizer forgets nothing of a part.
      munmap(reinterpret_cast<void*>(gone.address), (gone.bytes + 4095) / 4096 * 4096);
      break;
    case AllocationKind::kRegistered:
      break;
    case AllocationKind::kPooled:
      gone.pool->give(gone.address, gone.bytes);
      break;
    case AllocationKind::kGraph:
      // The address stays with the graph's node.
      device.graph_memory.used_bytes -= round_up(gone.bytes, kVmmGranularity);
      break;
    default:
      device.addresses.give(gone.address, round_up(gone.bytes, kAllocationAlignment));
  }
  allocations.erase(it);
}

CUresult free_range(Driver& driver, CUdeviceptr address) {
  const auto it = driver.allocations.find(address);
  if (it == driver.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  switch (it->second.kind) {
    case AllocationKind::kPinned:
    case AllocationKind::kRegistered:
    case AllocationKind::kIpc:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      post(memory_event(false, it->second));
      driver.drop(it);
      return CUDA_SUCCESS;
  }
}

void release_context_memory(Driver& driver, Context* context) {
  for (auto it = driver.allocations.begin(); it != driver.allocations.end();) {
    const auto next = std::next(it);
    if (it->second.context == context) {
      // Stream-ordered memory belongs to its pool, which outlives the context.
      if (it->second.kind == AllocationKind::kPooled) {
        it->second.context = nullptr;
      } else {
        driver.drop(it);
      }
    }
    it = next;
  }
  driver.arrays.erase_if([&](const Array& array) {
    if (array.context == context) driver.device_of(*context).card.give(array.charged_bytes);
    return array.context == context;
  });
}

bool host_backed(Driver& driver, uint64_t address, uint64_t bytes) {
  const auto it = driver.find_range(address);
  if (it == driver.allocations.end()) return false;
  const Allocation& found = it->second;
  const bool host = found.kind == AllocationKind::kManaged ||
                    found.kind == AllocationKind::kPinned ||
                    found.kind == AllocationKind::kRegistered;
  return host && bytes <= found.bytes - (address - found.address);
}

SIMGPU_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return SIMGPU_CALL(cuMemGetInfo_v2, free, total)
      .run_in_context([&](Driver& driver, Context& context) {
        if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const Card& card = driver.device_of(context).card;
        *total = card.capacity_bytes();
        *free = card.capacity_bytes() - card.used_bytes();
        return CUDA_SUCCESS;
      });
}

SIMGPU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return SIMGPU_CALL(cuMemAlloc_v2, dptr, bytesize)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate(driver, context, dptr, bytesize);
      });
}

SIMGPU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                          size_t Height, unsigned int ElementSizeBytes) {
  return SIMGPU_CALL(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes)
      .run_in_context([&](Driver& driver, Context& context) {
        const bool element =
            ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
        if (pPitch == nullptr || WidthInBytes == 0 || Height == 0 || !element) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        uint64_t bytes = 0;
        const uint64_t pitch = round_up(WidthInBytes, kPitchAlignment);
        if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        const CUresult result = allocate(driver, context, dptr, bytes);
        if (result == CUDA_SUCCESS) *pPitch = pitch;
        return result;
      });
}

SIMGPU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return SIMGPU_CALL(cuMemAllocManaged, dptr, bytesize, flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return allocate_managed(driver, context, dptr, bytesize, flags);
      });
}

SIMGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return SIMGPU_CALL(cuMemFree_v2, dptr).run_in_context([&](Driver& driver, Context&) {
    return free_range(driver, dptr);
  });
}

SIMGPU_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize,
                                               CUdeviceptr dptr) {
  return SIMGPU_CALL(cuMemGetAddressRange_v2, pbase, psize, dptr)
      .run_in_context([&](Driver& driver, Context&) {
        const auto it = driver.find_range(dptr);
        if (it == driver.allocations.end()) return CUDA_ERROR_NOT_FOUND;
        if (pbase != nullptr) *pbase = it->second.address;
        if (psize != nullptr) *psize = it->second.bytes;
        return CUDA_SUCCESS;
      });
}

SIMGPU_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                             CUdeviceptr ptr) {
  return SIMGPU_CALL(cuPointerGetAttribute, data, attribute, ptr).run([&](Driver& driver) {
    return pointer_attribute(driver, data, attribute, ptr);
  });
}

}  // namespace tidemark::simgpu
