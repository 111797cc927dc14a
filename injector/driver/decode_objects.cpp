// Calls that identify memory by a handle: virtual memory, multicast, shared memory, arrays, graphs.
#include "injector/driver/decoder.h"

namespace tidemark::injector {

void decode_virtual_handles(uint32_t id, Decoder& d) noexcept {
  DriverEvent& event = d.call.event;
  switch (id) {
    case CBID_cuMemCreate: {
      const auto& p = d.as<cuMemCreate_params>();
      d.takes(MemoryKind::kVirtual, 0, p.size);
      event.operation = DriverOperation::kCreate;
      event.handle = d.out(p.handle);
      if (p.prop != nullptr) d.located(p.prop->location);
      return;
    }
    case CBID_cuMemRelease:
      d.gives(MemoryKind::kVirtual, 0);
      event.operation = DriverOperation::kRelease;
      event.handle = d.as<cuMemRelease_params>().handle;
      return;
    case CBID_cuMemRetainAllocationHandle: {
      const auto& p = d.as<cuMemRetainAllocationHandle_params>();
      d.set(CallClass::kChanges, DriverOperation::kRetain, MemoryKind::kVirtual);
      event.handle = d.out(p.handle);
      event.address = bits(p.addr);
      return;
    }
    case CBID_cuMemExportToShareableHandle:
      d.set(CallClass::kChanges, DriverOperation::kExport, MemoryKind::kVirtual);
      event.handle = d.as<cuMemExportToShareableHandle_params>().handle;
      return;
    case CBID_cuMemImportFromShareableHandle:
      d.takes(MemoryKind::kVirtual, 0, 0);  // the size is known when it is mapped
      event.operation = DriverOperation::kImport;
      event.handle = d.out(d.as<cuMemImportFromShareableHandle_params>().handle);
      event.flags |= kDriverRemote;
      return;
    default:
      return;
  }
}

void decode_multicast(uint32_t id, Decoder& d) noexcept {
  DriverEvent& event = d.call.event;
  switch (id) {
    case CBID_cuMulticastCreate: {
      const auto& p = d.as<cuMulticastCreate_params>();
      d.takes(MemoryKind::kMulticast, 0, p.prop != nullptr ? p.prop->size : 0);
      event.operation = DriverOperation::kCreate;
      event.handle = d.out(p.mcHandle);
      return;
    }
    case CBID_cuMulticastBindMem: {
      const auto& p = d.as<cuMulticastBindMem_params>();
      d.set(CallClass::kChanges, DriverOperation::kMap, MemoryKind::kMulticast);
      event.handle = p.mcHandle;
      event.offset = p.mcOffset;
      event.size_bytes = p.size;
      return;
    }
    case CBID_cuMulticastBindAddr: {
      const auto& p = d.as<cuMulticastBindAddr_params>();
      d.set(CallClass::kChanges, DriverOperation::kMap, MemoryKind::kMulticast);
      event.handle = p.mcHandle;
      event.offset = p.mcOffset;
      event.size_bytes = p.size;
      event.address = p.memptr;
      return;
    }
    case CBID_cuMulticastUnbind: {
      const auto& p = d.as<cuMulticastUnbind_params>();
      d.set(CallClass::kGives, DriverOperation::kUnmap, MemoryKind::kMulticast);
      event.handle = p.mcHandle;
      event.offset = p.mcOffset;
      event.size_bytes = p.size;
      event.device = p.dev;
      d.call.device_known = true;
      return;
    }
    default:
      return;
  }
}

void decode_virtual_addresses(uint32_t id, Decoder& d) noexcept {
  DriverEvent& event = d.call.event;
  switch (id) {
    case CBID_cuMemAddressReserve: {
      const auto& p = d.as<cuMemAddressReserve_params>();
      d.takes(MemoryKind::kVirtual, d.out(p.ptr), p.size);
      event.operation = DriverOperation::kReserveAddress;
      return;
    }
    case CBID_cuMemAddressFree: {
      const auto& p = d.as<cuMemAddressFree_params>();
      d.gives(MemoryKind::kVirtual, p.ptr);
      event.operation = DriverOperation::kFreeAddress;
      event.size_bytes = p.size;
      return;
    }
    case CBID_cuMemMap: {
      const auto& p = d.as<cuMemMap_params>();
      d.takes(MemoryKind::kVirtual, p.ptr, p.size);
      event.operation = DriverOperation::kMap;
      event.handle = p.handle;
      event.offset = p.offset;
      return;
    }
    case CBID_cuMemUnmap: {
      const auto& p = d.as<cuMemUnmap_params>();
      d.gives(MemoryKind::kVirtual, p.ptr);
      event.operation = DriverOperation::kUnmap;
      event.size_bytes = p.size;
      return;
    }
    default:
      return;
  }
}

void decode_shared_memory(uint32_t id, Decoder& d) noexcept {
  DriverEvent& event = d.call.event;
  switch (id) {
    case CBID_cuIpcGetMemHandle:
      d.set(CallClass::kChanges, DriverOperation::kExport, MemoryKind::kIpc);
      event.address = d.as<cuIpcGetMemHandle_params>().dptr;
      return;
    case CBID_cuIpcOpenMemHandle:
    case CBID_cuIpcOpenMemHandle_v2:
      d.takes(MemoryKind::kIpc, d.out(d.as<cuIpcOpenMemHandle_v2_params>().pdptr), 0);
      event.operation = DriverOperation::kImport;
      event.flags |= kDriverRemote;
      d.call.size_missing = true;
      return;
    case CBID_cuIpcCloseMemHandle:
      d.gives(MemoryKind::kIpc, d.as<cuIpcCloseMemHandle_params>().dptr);
      event.flags |= kDriverRemote;
      return;
    case CBID_cuImportExternalMemory: {
      const auto& p = d.as<cuImportExternalMemory_params>();
      d.takes(MemoryKind::kExternal, 0, p.memHandleDesc != nullptr ? p.memHandleDesc->size : 0);
      event.operation = DriverOperation::kImport;
      event.handle = d.out(p.extMem_out);
      event.flags |= kDriverRemote;
      return;
    }
    case CBID_cuExternalMemoryGetMappedBuffer: {
      const auto& p = d.as<cuExternalMemoryGetMappedBuffer_params>();
      d.takes(MemoryKind::kExternal, d.out(p.devPtr), p.bufferDesc ? p.bufferDesc->size : 0);
      event.operation = DriverOperation::kMap;
      event.offset = p.bufferDesc != nullptr ? p.bufferDesc->offset : 0;
      event.handle = bits(p.extMem);
      event.flags |= kDriverRemote;
      return;
    }
    case CBID_cuDestroyExternalMemory:
      d.gives(MemoryKind::kExternal, 0);
      event.operation = DriverOperation::kRelease;
      event.handle = bits(d.as<cuDestroyExternalMemory_params>().extMem);
      event.flags |= kDriverRemote;
      return;
    default:
      return;
  }
}

namespace {
void takes_array(Decoder& d, uint64_t handle, uint64_t size) {
  d.takes(MemoryKind::kArray, 0, size);
  d.call.event.handle = handle;
}
}  // namespace

void decode_arrays(uint32_t id, Decoder& d) noexcept {
  switch (id) {
    case CBID_cuArrayCreate: {
      const auto& p = d.as<cuArrayCreate_params>();
      const auto* a = p.pAllocateArray;
      if (a == nullptr) return takes_array(d, 0, 0);
      return takes_array(d, d.out(p.pHandle),
                         array_bytes({a->Width, a->Height, 0, a->Format, a->NumChannels, 0}));
    }
    case CBID_cuArrayCreate_v2: {
      const auto& p = d.as<cuArrayCreate_v2_params>();
      const auto* a = p.pAllocateArray;
      if (a == nullptr) return takes_array(d, 0, 0);
      return takes_array(d, d.out(p.pHandle),
                         array_bytes({a->Width, a->Height, 0, a->Format, a->NumChannels, 0}));
    }
    case CBID_cuArray3DCreate: {
      const auto& p = d.as<cuArray3DCreate_params>();
      const auto* a = p.pAllocateArray;
      if (a == nullptr) return takes_array(d, 0, 0);
      return takes_array(
          d, d.out(p.pHandle),
          array_bytes({a->Width, a->Height, a->Depth, a->Format, a->NumChannels, a->Flags}));
    }
    case CBID_cuArray3DCreate_v2: {
      const auto& p = d.as<cuArray3DCreate_v2_params>();
      return takes_array(d, d.out(p.pHandle),
                         p.pAllocateArray != nullptr ? array_bytes(*p.pAllocateArray) : 0);
    }
    case CBID_cuMipmappedArrayCreate: {
      const auto& p = d.as<cuMipmappedArrayCreate_params>();
      const auto* a = p.pMipmappedArrayDesc;
      return takes_array(d, d.out(p.pHandle),
                         a != nullptr ? mipmapped_array_bytes(*a, p.numMipmapLevels) : 0);
    }
    case CBID_cuArrayDestroy:
      d.gives(MemoryKind::kArray, 0);
      d.call.event.handle = bits(d.as<cuArrayDestroy_params>().hArray);
      return;
    case CBID_cuMipmappedArrayDestroy:
      d.gives(MemoryKind::kArray, 0);
      d.call.event.handle = bits(d.as<cuMipmappedArrayDestroy_params>().hMipmappedArray);
      return;
    default:
      return;
  }
}

namespace {
void decode_graph_node(Decoder& d, const CUgraphNodeParams* node) {
  if (node == nullptr) return;
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    d.takes(MemoryKind::kGraph, d.call.event.result == 0 ? node->node.alloc.dptr : 0,
            node->node.alloc.bytesize);
    d.located(node->node.alloc.poolProps.location);
  } else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    d.gives(MemoryKind::kGraph, node->node.free.dptr);
  }
}
}  // namespace

// Nodes fix addresses; they have memory from the launch on (Counter rows say how much).
void decode_graphs(uint32_t id, Decoder& d) noexcept {
  switch (id) {
    case CBID_cuGraphAddMemAllocNode: {
      const auto* node = d.as<cuGraphAddMemAllocNode_params>().nodeParams;
      if (node == nullptr) return;
      d.takes(MemoryKind::kGraph, d.call.event.result == 0 ? node->dptr : 0, node->bytesize);
      return d.located(node->poolProps.location);
    }
    case CBID_cuGraphAddMemFreeNode:
      return d.gives(MemoryKind::kGraph, d.as<cuGraphAddMemFreeNode_params>().dptr);
    case CBID_cuGraphAddNode:
      return decode_graph_node(d, d.as<cuGraphAddNode_params>().nodeParams);
    case CBID_cuGraphAddNode_v2:
      return decode_graph_node(d, d.as<cuGraphAddNode_v2_params>().nodeParams);
    case CBID_cuStreamBeginCapture_v2:
    case CBID_cuStreamBeginCapture_v2_ptsz:
      d.call.begins_capture = true;
      d.call.event.stream = bits(d.as<cuStreamBeginCapture_v2_params>().hStream);
      return;
    case CBID_cuStreamEndCapture:
    case CBID_cuStreamEndCapture_ptsz:
      d.call.ends_capture = true;
      d.call.event.stream = bits(d.as<cuStreamEndCapture_params>().hStream);
      return;
    case CBID_cuGraphLaunch:
    case CBID_cuGraphLaunch_ptsz: {
      const auto& p = d.as<cuGraphLaunch_params>();
      d.set(CallClass::kChanges, DriverOperation::kGraphLaunch, MemoryKind::kGraph);
      d.call.event.handle = bits(p.hGraph);
      d.call.event.stream = bits(p.hStream);
      return;
    }
    default:
      return;
  }
}

}  // namespace tidemark::injector
