// Calls that return memory by its address: device, host, stream-ordered, and the pools.
#include <algorithm>

#include "injector/driver/decoder.h"

namespace tidemark::injector {

void decode_device_memory(uint32_t id, Decoder& d) noexcept {
  switch (id) {
    case CBID_cuMemAlloc: {
      const auto& p = d.as<cuMemAlloc_params>();
      return d.takes(MemoryKind::kDevice, d.out(p.dptr), p.bytesize);
    }
    case CBID_cuMemAlloc_v2: {
      const auto& p = d.as<cuMemAlloc_v2_params>();
      return d.takes(MemoryKind::kDevice, d.out(p.dptr), p.bytesize);
    }
    case CBID_cuMemAllocPitch: {
      // A failed call returns no pitch: the requested width counts.
      const auto& p = d.as<cuMemAllocPitch_params>();
      const uint64_t row = std::max<uint64_t>(d.out(p.pPitch), p.WidthInBytes);
      return d.takes(MemoryKind::kPitched, d.out(p.dptr), row * p.Height);
    }
    case CBID_cuMemAllocPitch_v2: {
      const auto& p = d.as<cuMemAllocPitch_v2_params>();
      const uint64_t row = std::max<uint64_t>(d.out(p.pPitch), p.WidthInBytes);
      return d.takes(MemoryKind::kPitched, d.out(p.dptr), row * p.Height);
    }
    case CBID_cuMemAllocManaged: {
      const auto& p = d.as<cuMemAllocManaged_params>();
      return d.takes(MemoryKind::kManaged, d.out(p.dptr), p.bytesize);
    }
    // cuMemFree frees device, pitched, managed and mapped external memory; readers find the kind by
    // address.
    case CBID_cuMemFree:
      return d.gives(MemoryKind::kDevice, d.as<cuMemFree_params>().dptr);
    case CBID_cuMemFree_v2:
      return d.gives(MemoryKind::kDevice, d.as<cuMemFree_v2_params>().dptr);
    default:
      return;
  }
}

void decode_host_memory(uint32_t id, Decoder& d) noexcept {
  switch (id) {
    case CBID_cuMemAllocHost: {
      const auto& p = d.as<cuMemAllocHost_params>();
      return d.takes(MemoryKind::kPinned, d.out(p.pp), p.bytesize);
    }
    case CBID_cuMemAllocHost_v2: {
      const auto& p = d.as<cuMemAllocHost_v2_params>();
      return d.takes(MemoryKind::kPinned, d.out(p.pp), p.bytesize);
    }
    case CBID_cuMemHostAlloc:
    case CBID_cuMemHostAlloc_v2: {
      const auto& p = d.as<cuMemHostAlloc_params>();
      return d.takes(MemoryKind::kPinned, d.out(p.pp), p.bytesize);
    }
    case CBID_cuMemFreeHost:
      return d.gives(MemoryKind::kPinned, bits(d.as<cuMemFreeHost_params>().p));
    case CBID_cuMemHostRegister:
    case CBID_cuMemHostRegister_v2: {
      const auto& p = d.as<cuMemHostRegister_v2_params>();
      d.takes(MemoryKind::kPinned, bits(p.p), p.bytesize);
      d.call.event.operation = DriverOperation::kRegister;
      return;
    }
    case CBID_cuMemHostUnregister:
      d.gives(MemoryKind::kPinned, bits(d.as<cuMemHostUnregister_params>().p));
      d.call.event.operation = DriverOperation::kUnregister;
      return;
    default:
      return;
  }
}

void decode_stream_ordered(uint32_t id, Decoder& d) noexcept {
  switch (id) {
    case CBID_cuMemAllocAsync:
    case CBID_cuMemAllocAsync_ptsz: {
      const auto& p = d.as<cuMemAllocAsync_params>();
      d.takes(MemoryKind::kStreamOrdered, d.out(p.dptr), p.bytesize);
      d.call.event.stream = bits(p.hStream);
      d.call.current_pool = true;
      return;
    }
    case CBID_cuMemAllocFromPoolAsync:
    case CBID_cuMemAllocFromPoolAsync_ptsz: {
      const auto& p = d.as<cuMemAllocFromPoolAsync_params>();
      d.takes(MemoryKind::kStreamOrdered, d.out(p.dptr), p.bytesize);
      d.call.event.stream = bits(p.hStream);
      d.call.pool_handle = bits(p.pool);
      return;
    }
    case CBID_cuMemFreeAsync:
    case CBID_cuMemFreeAsync_ptsz: {
      const auto& p = d.as<cuMemFreeAsync_params>();
      d.gives(MemoryKind::kStreamOrdered, p.dptr);
      d.call.event.stream = bits(p.hStream);
      return;
    }
    case CBID_cuMemPoolExportPointer:
      d.set(CallClass::kChanges, DriverOperation::kExport, MemoryKind::kStreamOrdered);
      d.call.event.address = d.as<cuMemPoolExportPointer_params>().ptr;
      return;
    case CBID_cuMemPoolImportPointer: {
      const auto& p = d.as<cuMemPoolImportPointer_params>();
      d.takes(MemoryKind::kStreamOrdered, d.out(p.ptr_out), 0);
      d.call.event.operation = DriverOperation::kImport;
      d.call.event.flags |= kDriverRemote;
      d.call.pool_handle = bits(p.pool);
      d.call.size_missing = true;
      return;
    }
    default:
      return;
  }
}

void decode_pools(uint32_t id, Decoder& d) noexcept {
  switch (id) {
    case CBID_cuMemPoolCreate: {
      const auto& p = d.as<cuMemPoolCreate_params>();
      d.set(CallClass::kChanges, DriverOperation::kPoolCreate, MemoryKind::kStreamOrdered);
      if (p.poolProps != nullptr) {
        d.located(p.poolProps->location);
        d.call.event.size_bytes = p.poolProps->maxSize;
      }
      d.call.pool_handle = d.out(p.pool);
      break;
    }
    case CBID_cuMemPoolDestroy:
      d.set(CallClass::kGives, DriverOperation::kPoolDestroy, MemoryKind::kStreamOrdered);
      d.call.pool_handle = bits(d.as<cuMemPoolDestroy_params>().pool);
      break;
    case CBID_cuMemPoolTrimTo:
      d.set(CallClass::kChanges, DriverOperation::kPoolTrim, MemoryKind::kStreamOrdered);
      d.call.pool_handle = bits(d.as<cuMemPoolTrimTo_params>().pool);
      d.call.event.size_bytes = d.as<cuMemPoolTrimTo_params>().minBytesToKeep;
      break;
    case CBID_cuMemPoolExportToShareableHandle:
      d.set(CallClass::kChanges, DriverOperation::kExport, MemoryKind::kStreamOrdered);
      d.call.pool_handle = bits(d.as<cuMemPoolExportToShareableHandle_params>().pool);
      break;
    case CBID_cuMemPoolImportFromShareableHandle:
      d.set(CallClass::kChanges, DriverOperation::kPoolCreate, MemoryKind::kStreamOrdered);
      d.call.pool_handle = d.out(d.as<cuMemPoolImportFromShareableHandle_params>().pool_out);
      d.call.event.flags |= kDriverRemote;
      break;
    case CBID_cuDeviceSetMemPool: {
      const auto& p = d.as<cuDeviceSetMemPool_params>();
      d.call.sets_pool = true;
      d.call.device_known = true;
      d.call.event.device = p.dev;
      d.call.pool_handle = bits(p.pool);
      return;
    }
    case CBID_cuMemSetMemPool: {
      const auto& p = d.as<cuMemSetMemPool_params>();
      d.call.sets_pool = p.location != nullptr && p.type == CU_MEM_ALLOCATION_TYPE_PINNED;
      if (p.location != nullptr) d.located(*p.location);
      d.call.pool_handle = bits(p.pool);
      return;
    }
    default:
      return;
  }
  d.call.event.handle = d.call.pool_handle;
}

}  // namespace tidemark::injector
