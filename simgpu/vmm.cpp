// Physical memory and its mapping to reserved addresses.
#include <unistd.h>

#include "simgpu/call.h"
#include "simgpu/shareable.h"

namespace tidemark::simgpu {
namespace {

bool whole(uint64_t value) {
  return value % kVmmGranularity == 0;
}

Physical* find_physical(Driver& driver, CUmemGenericAllocationHandle handle) {
  const auto it = driver.vmm.physical.find(handle);
  return it == driver.vmm.physical.end() ? nullptr : it->second.get();
}

// Finds live handles only: memory that is only mapped has none until it is retained.
Physical* find_handle(Driver& driver, CUmemGenericAllocationHandle handle) {
  Physical* physical = find_physical(driver, handle);
  return physical != nullptr && physical->handles > 0 ? physical : nullptr;
}

void end_if_unused(Driver& driver, Physical* physical) {
  if (physical->handles > 0 || physical->mappings > 0) return;
  if (physical->charged) driver.device(physical->device)->card.give(physical->bytes);
  driver.vmm.physical.erase(physical->handle);
}

Physical* add_physical(Driver& driver, uint64_t bytes, const CUmemAllocationProp& prop, int device,
                       bool charged) {
  VirtualMemory& vmm = driver.vmm;
  const uint64_t handle = ++vmm.last_handle;
  auto& slot = vmm.physical[handle];
  slot = std::make_unique<Physical>(Physical{handle, bytes, prop, device, charged});
  return slot.get();
}

CUresult create(Driver& driver, CUmemGenericAllocationHandle* out, uint64_t bytes,
                const CUmemAllocationProp* prop) {
  if (out == nullptr || prop == nullptr || bytes == 0 || !whole(bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  Device* device = on_device ? driver.device(prop->location.id) : nullptr;
  if (on_device && device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (on_device && !driver.take(*device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = add_physical(driver, bytes, *prop, on_device ? prop->location.id : -1, on_device)->handle;
  return CUDA_SUCCESS;
}

// The reservation that contains the whole range, or end.
bool reserved(const VirtualMemory& vmm, uint64_t address, uint64_t bytes) {
  auto it = vmm.reservations.upper_bound(address);
  if (it == vmm.reservations.begin()) return false;
  --it;
  const uint64_t offset = address - it->first;
  return offset < it->second && bytes <= it->second - offset;
}

// The first mapping that overlaps a range, or end.
std::map<uint64_t, Mapping>::iterator overlapping(VirtualMemory& vmm, uint64_t address,
                                                  uint64_t bytes) {
  auto it = vmm.mappings.upper_bound(address);
  if (it != vmm.mappings.begin()) {
    const auto before = std::prev(it);
    if (address - before->first < before->second.bytes) return before;
  }
  return it != vmm.mappings.end() && it->first - address < bytes ? it : vmm.mappings.end();
}

void tell_mapping(Driver& driver, bool allocation, uint64_t address, const Mapping& mapping) {
  if (mapping.physical->device < 0) return;
  MemoryEvent event{};
  event.allocation = allocation;
  event.kind = cupti::CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  event.address = address;
  event.bytes = mapping.bytes;
  event.device = static_cast<uint32_t>(mapping.physical->device);
  event.context_id = context_id(current_context(driver));
  event.stream_id = cupti::kInvalidStreamId;
  event.time_ns = now_ns();
  event.correlation = current_correlation();
  post(event);
}

CUresult map(Driver& driver, CUdeviceptr address, uint64_t bytes, uint64_t offset,
             CUmemGenericAllocationHandle handle) {
  VirtualMemory& vmm = driver.vmm;
  Physical* physical = find_handle(driver, handle);
  const bool sized = bytes != 0 && whole(bytes) && whole(address) && whole(offset);
  if (physical == nullptr || !sized || !reserved(vmm, address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset > physical->bytes || bytes > physical->bytes - offset) return CUDA_ERROR_INVALID_VALUE;
  if (overlapping(vmm, address, bytes) != vmm.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++physical->mappings;
  const Mapping mapping{bytes, offset, physical};
  vmm.mappings.emplace(address, mapping);
  tell_mapping(driver, true, address, mapping);
  return CUDA_SUCCESS;
}

// A range of whole mappings without gaps: only such a range may be unmapped or get access.
bool covers_mappings(VirtualMemory& vmm, uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  for (uint64_t at = address; at != end;) {
    const auto it = vmm.mappings.find(at);
    if (it == vmm.mappings.end() || it->second.bytes > end - at) return false;
    at += it->second.bytes;
  }
  return bytes != 0;
}

CUresult unmap(Driver& driver, CUdeviceptr address, uint64_t bytes) {
  VirtualMemory& vmm = driver.vmm;
  if (!covers_mappings(vmm, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = vmm.mappings.find(address);
       it != vmm.mappings.end() && it->first < address + bytes;) {
    tell_mapping(driver, false, it->first, it->second);
    Physical* physical = it->second.physical;
    it = vmm.mappings.erase(it);
    --physical->mappings;
    end_if_unused(driver, physical);
  }
  return CUDA_SUCCESS;
}

CUresult reserve(Driver& driver, CUdeviceptr* out, uint64_t bytes, uint64_t alignment,
                 CUdeviceptr wanted) {
  VirtualMemory& vmm = driver.vmm;
  const bool power = (alignment & (alignment - 1)) == 0;
  if (out == nullptr || bytes == 0 || !whole(bytes) || !power) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  if (wanted != 0 && whole(wanted) && vmm.addresses.take_at(wanted, bytes)) address = wanted;
  if (address == 0) address = vmm.addresses.take(bytes, std::max(alignment, kVmmGranularity));
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  vmm.reservations.emplace(address, bytes);
  *out = address;
  return CUDA_SUCCESS;
}

CUresult import(Driver& driver, CUmemGenericAllocationHandle* out, int fd) {
  const auto content = import_shareable(fd);
  if (!content || content->kind != Shareable::kPhysical) return CUDA_ERROR_INVALID_VALUE;
  if (content->pid == static_cast<uint32_t>(getpid())) {
    Physical* own = find_physical(driver, content->handle);
    if (own == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ++own->handles;
    *out = own->handle;
    return CUDA_SUCCESS;
  }
  const Device* device = device_of_card(driver, content->card);
  if (content->card >= 0 && device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {device != nullptr ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA,
                   device != nullptr ? device->ordinal : 0};
  // The bytes belong to the owner, who is charged for them.
  *out = add_physical(driver, content->bytes, prop, device != nullptr ? device->ordinal : -1, false)
             ->handle;
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuMemGetAllocationGranularity(size_t* granularity,
                                                     const CUmemAllocationProp* prop,
                                                     CUmemAllocationGranularity_flags option) {
  return SIMGPU_CALL(cuMemGetAllocationGranularity, granularity, prop, option).run([&](Driver&) {
    if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kVmmGranularity;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                   const CUmemAllocationProp* prop, unsigned long long flags) {
  return SIMGPU_CALL(cuMemCreate, handle, size, prop, flags).run([&](Driver& driver) {
    return create(driver, handle, size, prop);
  });
}

SIMGPU_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return SIMGPU_CALL(cuMemRelease, handle).run([&](Driver& driver) {
    Physical* physical = find_handle(driver, handle);
    if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
    --physical->handles;
    end_if_unused(driver, physical);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                   void* addr) {
  return SIMGPU_CALL(cuMemRetainAllocationHandle, handle, addr).run([&](Driver& driver) {
    const auto it = overlapping(driver.vmm, reinterpret_cast<uint64_t>(addr), 1);
    if (handle == nullptr || it == driver.vmm.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    ++it->second.physical->handles;
    *handle = it->second.physical->handle;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                              CUmemGenericAllocationHandle handle) {
  return SIMGPU_CALL(cuMemGetAllocationPropertiesFromHandle, prop, handle).run([&](Driver& driver) {
    const Physical* physical = find_handle(driver, handle);
    if (physical == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *prop = physical->prop;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemExportToShareableHandle(void* shareableHandle,
                                                    CUmemGenericAllocationHandle handle,
                                                    CUmemAllocationHandleType handleType,
                                                    unsigned long long flags) {
  return SIMGPU_CALL(cuMemExportToShareableHandle, shareableHandle, handle, handleType, flags)
      .run([&](Driver& driver) {
        const Physical* physical = find_handle(driver, handle);
        if (physical == nullptr || shareableHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        if ((physical->prop.requestedHandleTypes & handleType) == 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const int card = physical->device < 0 ? -1 : driver.device(physical->device)->card.index();
        const int fd = export_shareable({Shareable::kPhysical, static_cast<uint32_t>(getpid()),
                                         card, physical->bytes, physical->handle});
        if (fd < 0) return CUDA_ERROR_UNKNOWN;
        *static_cast<int*>(shareableHandle) = fd;
        return CUDA_SUCCESS;
      });
}

// If the handle is a file descriptor, it is passed in place of the pointer.
SIMGPU_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                      void* osHandle,
                                                      CUmemAllocationHandleType shHandleType) {
  return SIMGPU_CALL(cuMemImportFromShareableHandle, handle, osHandle, shHandleType)
      .run([&](Driver& driver) {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        return import(driver, handle, static_cast<int>(reinterpret_cast<intptr_t>(osHandle)));
      });
}

SIMGPU_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment,
                                           CUdeviceptr addr, unsigned long long flags) {
  return SIMGPU_CALL(cuMemAddressReserve, ptr, size, alignment, addr, flags)
      .run([&](Driver& driver) { return reserve(driver, ptr, size, alignment, addr); });
}

SIMGPU_EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return SIMGPU_CALL(cuMemAddressFree, ptr, size).run([&](Driver& driver) {
    VirtualMemory& vmm = driver.vmm;
    const auto it = vmm.reservations.find(ptr);
    if (it == vmm.reservations.end() || it->second != size) return CUDA_ERROR_INVALID_VALUE;
    if (overlapping(vmm, ptr, size) != vmm.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    vmm.reservations.erase(it);
    vmm.addresses.give(ptr, size);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return SIMGPU_CALL(cuMemMap, ptr, size, offset, handle, flags).run([&](Driver& driver) {
    return map(driver, ptr, size, offset, handle);
  });
}

SIMGPU_EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return SIMGPU_CALL(cuMemUnmap, ptr, size).run([&](Driver& driver) {
    return unmap(driver, ptr, size);
  });
}

SIMGPU_EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                                      size_t count) {
  return SIMGPU_CALL(cuMemSetAccess, ptr, size, desc, count).run([&](Driver& driver) {
    VirtualMemory& vmm = driver.vmm;
    if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    if (!covers_mappings(vmm, ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    for (auto it = vmm.mappings.find(ptr); it != vmm.mappings.end() && it->first < ptr + size;
         ++it) {
      it->second.access = desc[0].flags;
    }
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                      CUdeviceptr ptr) {
  return SIMGPU_CALL(cuMemGetAccess, flags, location, ptr).run([&](Driver& driver) {
    const auto it = overlapping(driver.vmm, ptr, 1);
    if (flags == nullptr || location == nullptr || it == driver.vmm.mappings.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = it->second.access;
    return CUDA_SUCCESS;
  });
}

// Sparse arrays are not simulated; the result is that of a device without them.
SIMGPU_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count,
                                          CUstream hStream) {
  return SIMGPU_CALL(cuMemMapArrayAsync, mapInfoList, count, hStream).run([](Driver&) {
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

SIMGPU_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* mapInfoList, unsigned int count,
                                               CUstream hStream) {
  return SIMGPU_CALL(cuMemMapArrayAsync_ptsz, mapInfoList, count, hStream).run([](Driver&) {
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

// ---- Multicast objects: handles that can be mapped and have no memory of their own. ----

SIMGPU_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle,
                                         const CUmulticastObjectProp* prop) {
  return SIMGPU_CALL(cuMulticastCreate, mcHandle, prop).run([&](Driver& driver) {
    if (mcHandle == nullptr || prop == nullptr || prop->numDevices == 0 || prop->size == 0 ||
        !whole(prop->size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    Physical* object = add_physical(driver, prop->size, {}, -1, false);
    object->multicast = true;
    *mcHandle = object->handle;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev) {
  return SIMGPU_CALL(cuMulticastAddDevice, mcHandle, dev).run([&](Driver& driver) {
    const Physical* object = find_handle(driver, mcHandle);
    if (object == nullptr || !object->multicast) return CUDA_ERROR_INVALID_VALUE;
    return driver.device(dev) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                          CUmemGenericAllocationHandle memHandle, size_t memOffset,
                                          size_t size, unsigned long long flags) {
  return SIMGPU_CALL(cuMulticastBindMem, mcHandle, mcOffset, memHandle, memOffset, size, flags)
      .run([&](Driver& driver) {
        const Physical* object = find_handle(driver, mcHandle);
        const Physical* memory = find_handle(driver, memHandle);
        const bool fits = object != nullptr && object->multicast && memory != nullptr &&
                          mcOffset <= object->bytes && size <= object->bytes - mcOffset &&
                          memOffset <= memory->bytes && size <= memory->bytes - memOffset;
        return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      });
}

SIMGPU_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                           CUdeviceptr memptr, size_t size,
                                           unsigned long long flags) {
  return SIMGPU_CALL(cuMulticastBindAddr, mcHandle, mcOffset, memptr, size, flags)
      .run([&](Driver& driver) {
        const Physical* object = find_handle(driver, mcHandle);
        const bool fits = object != nullptr && object->multicast && mcOffset <= object->bytes &&
                          size <= object->bytes - mcOffset &&
                          covers_mappings(driver.vmm, memptr, size);
        return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      });
}

SIMGPU_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                         size_t mcOffset, size_t size) {
  return SIMGPU_CALL(cuMulticastUnbind, mcHandle, dev, mcOffset, size).run([&](Driver& driver) {
    const Physical* object = find_handle(driver, mcHandle);
    return object != nullptr && object->multicast ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIMGPU_EXPORT CUresult cuMulticastGetGranularity(size_t* granularity,
                                                 const CUmulticastObjectProp* prop,
                                                 CUmulticastGranularity_flags option) {
  return SIMGPU_CALL(cuMulticastGetGranularity, granularity, prop, option).run([&](Driver&) {
    if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kVmmGranularity;
    return CUDA_SUCCESS;
  });
}

}  // namespace tidemark::simgpu
