// Creating, querying, trimming and sharing pools of stream-ordered memory.
#include "simgpu/pools.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "simgpu/call.h"
#include "simgpu/memory.h"
#include "simgpu/shareable.h"

namespace tidemark::simgpu {
namespace {

Pool* add_pool(Driver& driver, int device, const CUmemPoolProps& props) {
  Pool pool{};
  pool.device = device;
  pool.props = props;
  pool.host = props.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  return driver.pools.add(std::move(pool));
}

void tell_pool(cupti::CUpti_ActivityMemoryPoolOperationType operation, const Pool& pool,
               uint64_t bytes_to_keep = 0) {
  PoolEvent event{};
  event.operation = operation;
  event.pool = pool_state(pool);
  event.bytes_to_keep = bytes_to_keep;
  event.device = static_cast<uint32_t>(pool.device);
  event.time_ns = now_ns();
  event.correlation = current_correlation();
  post(event);
}

CUresult create_pool(Driver& driver, CUmemoryPool* out, const CUmemPoolProps* props) {
  if (out == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int device = on_device ? props->location.id : 0;
  if (driver.device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Pool* pool = add_pool(driver, device, *props);
  *out = reinterpret_cast<CUmemoryPool>(pool);
  tell_pool(cupti::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED, *pool);
  return CUDA_SUCCESS;
}

// Pieces that are still in use are freed with their pool.
CUresult destroy_pool(Driver& driver, CUmemoryPool handle) {
  Pool* pool = driver.pools.find(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  tell_pool(cupti::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED, *pool);
  for (auto it = driver.allocations.begin(); it != driver.allocations.end();) {
    const auto next = std::next(it);
    if (it->second.pool == pool) driver.drop(it);
    it = next;
  }
  pool->trim(driver, 0);
  for (auto& device : driver.devices) {
    if (device->current_pool == pool) device->current_pool = nullptr;
  }
  driver.pools.erase(pool);
  return CUDA_SUCCESS;
}

CUresult get_attribute(Pool& pool, CUmemPool_attribute attribute, void* value) {
  const auto number = [&](uint64_t n) {
    *static_cast<cuuint64_t*>(value) = n;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = pool.reuse[attribute - 1];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return number(pool.release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return number(pool.reserved_bytes);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return number(pool.reserved_high_bytes);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return number(pool.used_bytes);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return number(pool.used_high_bytes);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The high-water marks can only be set to the current value, by writing zero.
CUresult set_attribute(Pool& pool, CUmemPool_attribute attribute, const void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool.reuse[attribute - 1] = *static_cast<const int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.release_threshold = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool.reserved_high_bytes = pool.reserved_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool.used_high_bytes = pool.used_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The device that a location names, or nullptr.
Device* device_at(Driver& driver, const CUmemLocation* location) {
  if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return nullptr;
  return driver.device(location->id);
}

CUresult hand_out(CUmemoryPool* out, Pool* pool) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

Pool* current_pool(Driver& driver, Device& device) {
  return device.current_pool != nullptr ? device.current_pool : default_pool(driver, device);
}

}  // namespace

PoolState pool_state(const Pool& pool) {
  return {reinterpret_cast<uint64_t>(&pool), pool.release_threshold, pool.reserved_bytes,
          pool.used_bytes, pool.imported};
}

Pool* default_pool(Driver& driver, Device& device) {
  if (device.default_pool == nullptr) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
    device.default_pool = add_pool(driver, device.ordinal, props);
    device.default_pool->is_default = true;
  }
  return device.default_pool;
}

SIMGPU_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return SIMGPU_CALL(cuMemPoolCreate, pool, poolProps).run([&](Driver& driver) {
    return create_pool(driver, pool, poolProps);
  });
}

SIMGPU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return SIMGPU_CALL(cuMemPoolDestroy, pool).run([&](Driver& driver) {
    return destroy_pool(driver, pool);
  });
}

SIMGPU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  return SIMGPU_CALL(cuMemPoolTrimTo, pool, minBytesToKeep).run([&](Driver& driver) {
    Pool* found = driver.pools.find(pool);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    found->trim(driver, minBytesToKeep);
    tell_pool(cupti::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED, *found, minBytesToKeep);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr,
                                             void* value) {
  return SIMGPU_CALL(cuMemPoolSetAttribute, pool, attr, value).run([&](Driver& driver) {
    Pool* found = driver.pools.find(pool);
    if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return set_attribute(*found, attr, value);
  });
}

SIMGPU_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr,
                                             void* value) {
  return SIMGPU_CALL(cuMemPoolGetAttribute, pool, attr, value).run([&](Driver& driver) {
    Pool* found = driver.pools.find(pool);
    if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_attribute(*found, attr, value);
  });
}

SIMGPU_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map,
                                          size_t count) {
  return SIMGPU_CALL(cuMemPoolSetAccess, pool, map, count).run([&](Driver& driver) {
    const bool known = driver.pools.find(pool) != nullptr;
    return known && map != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIMGPU_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                          CUmemLocation* location) {
  return SIMGPU_CALL(cuMemPoolGetAccess, flags, memPool, location).run([&](Driver& driver) {
    const Pool* pool = driver.pools.find(memPool);
    if (pool == nullptr || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetDefaultMemPool, pool_out, dev).run([&](Driver& driver) {
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return hand_out(pool_out, default_pool(driver, *device));
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  return SIMGPU_CALL(cuDeviceGetMemPool, pool, dev).run([&](Driver& driver) {
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return hand_out(pool, current_pool(driver, *device));
  });
}

SIMGPU_EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  return SIMGPU_CALL(cuDeviceSetMemPool, dev, pool).run([&](Driver& driver) {
    Device* device = driver.device(dev);
    Pool* found = driver.pools.find(pool);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (found == nullptr || found->device != dev) return CUDA_ERROR_INVALID_VALUE;
    device->current_pool = found;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                              CUmemAllocationType type) {
  return SIMGPU_CALL(cuMemGetDefaultMemPool, pool_out, location, type).run([&](Driver& driver) {
    Device* device = device_at(driver, location);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return hand_out(pool_out, default_pool(driver, *device));
  });
}

SIMGPU_EXPORT CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                       CUmemAllocationType type) {
  return SIMGPU_CALL(cuMemGetMemPool, pool, location, type).run([&](Driver& driver) {
    Device* device = device_at(driver, location);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return hand_out(pool, current_pool(driver, *device));
  });
}

SIMGPU_EXPORT CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                       CUmemoryPool pool) {
  return SIMGPU_CALL(cuMemSetMemPool, location, type, pool).run([&](Driver& driver) {
    Device* device = device_at(driver, location);
    Pool* found = driver.pools.find(pool);
    if (device == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    device->current_pool = found;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                                        CUmemAllocationHandleType handleType,
                                                        unsigned long long flags) {
  return SIMGPU_CALL(cuMemPoolExportToShareableHandle, handle_out, pool, handleType, flags)
      .run([&](Driver& driver) {
        const Pool* found = driver.pools.find(pool);
        if (found == nullptr || handle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            found->props.handleTypes != handleType) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        const int fd = export_shareable({Shareable::kPool, static_cast<uint32_t>(getpid()),
                                         driver.device(found->device)->card.index(), 0,
                                         reinterpret_cast<uint64_t>(found)});
        if (fd < 0) return CUDA_ERROR_UNKNOWN;
        *static_cast<int*>(handle_out) = fd;
        return CUDA_SUCCESS;
      });
}

// If the handle is a file descriptor, it is passed in place of the pointer.
SIMGPU_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                                          CUmemAllocationHandleType handleType,
                                                          unsigned long long flags) {
  return SIMGPU_CALL(cuMemPoolImportFromShareableHandle, pool_out, handle, handleType, flags)
      .run([&](Driver& driver) {
        if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        const auto content = import_shareable(static_cast<int>(reinterpret_cast<intptr_t>(handle)));
        if (!content || content->kind != Shareable::kPool) return CUDA_ERROR_INVALID_VALUE;
        Device* device = device_of_card(driver, content->card);
        if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        CUmemPoolProps props{};
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
        Pool* pool = add_pool(driver, device->ordinal, props);
        pool->imported = true;
        tell_pool(cupti::CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED, *pool);
        return hand_out(pool_out, pool);
      });
}

}  // namespace tidemark::simgpu
