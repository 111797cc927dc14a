#include "injector/driver/events.h"

#include <array>

#include "injector/driver/decoder.h"

namespace tidemark::injector {
namespace {

using Decode = void (*)(uint32_t id, Decoder& d) noexcept;
struct Watched {
  uint32_t id;
  Decode decode;
  bool from_enter;
};

// clang-format off
constexpr Watched kWatched[] = {
    {CBID_cuMemAlloc, decode_device_memory, false},
    {CBID_cuMemAlloc_v2, decode_device_memory, false},
    {CBID_cuMemAllocPitch, decode_device_memory, false},
    {CBID_cuMemAllocPitch_v2, decode_device_memory, false},
    {CBID_cuMemAllocManaged, decode_device_memory, false},
    {CBID_cuMemFree, decode_device_memory, true},
    {CBID_cuMemFree_v2, decode_device_memory, true},
    {CBID_cuMemAllocHost, decode_host_memory, false},
    {CBID_cuMemAllocHost_v2, decode_host_memory, false},
    {CBID_cuMemHostAlloc, decode_host_memory, false},
    {CBID_cuMemHostAlloc_v2, decode_host_memory, false},
    {CBID_cuMemFreeHost, decode_host_memory, true},
    {CBID_cuMemHostRegister, decode_host_memory, false},
    {CBID_cuMemHostRegister_v2, decode_host_memory, false},
    {CBID_cuMemHostUnregister, decode_host_memory, true},
    {CBID_cuMemAllocAsync, decode_stream_ordered, false},
    {CBID_cuMemAllocAsync_ptsz, decode_stream_ordered, false},
    {CBID_cuMemAllocFromPoolAsync, decode_stream_ordered, false},
    {CBID_cuMemAllocFromPoolAsync_ptsz, decode_stream_ordered, false},
    {CBID_cuMemFreeAsync, decode_stream_ordered, true},
    {CBID_cuMemFreeAsync_ptsz, decode_stream_ordered, true},
    {CBID_cuMemPoolExportPointer, decode_stream_ordered, false},
    {CBID_cuMemPoolImportPointer, decode_stream_ordered, false},
    {CBID_cuMemPoolCreate, decode_pools, false},
    {CBID_cuMemPoolDestroy, decode_pools, true},
    {CBID_cuMemPoolTrimTo, decode_pools, false},
    {CBID_cuMemPoolSetAttribute, decode_pools, false},
    {CBID_cuMemPoolExportToShareableHandle, decode_pools, false},
    {CBID_cuMemPoolImportFromShareableHandle, decode_pools, false},
    {CBID_cuDeviceSetMemPool, decode_pools, false},
    {CBID_cuMemSetMemPool, decode_pools, false},
    {CBID_cuMemCreate, decode_virtual_handles, false},
    {CBID_cuMemRelease, decode_virtual_handles, true},
    {CBID_cuMemRetainAllocationHandle, decode_virtual_handles, false},
    {CBID_cuMemExportToShareableHandle, decode_virtual_handles, false},
    {CBID_cuMemImportFromShareableHandle, decode_virtual_handles, false},
    {CBID_cuMulticastCreate, decode_multicast, false},
    {CBID_cuMulticastBindMem, decode_multicast, false},
    {CBID_cuMulticastBindAddr, decode_multicast, false},
    {CBID_cuMulticastUnbind, decode_multicast, true},
    {CBID_cuMemAddressReserve, decode_virtual_addresses, false},
    {CBID_cuMemAddressFree, decode_virtual_addresses, true},
    {CBID_cuMemMap, decode_virtual_addresses, false},
    {CBID_cuMemUnmap, decode_virtual_addresses, true},
    {CBID_cuIpcGetMemHandle, decode_shared_memory, false},
    {CBID_cuIpcOpenMemHandle, decode_shared_memory, false},
    {CBID_cuIpcOpenMemHandle_v2, decode_shared_memory, false},
    {CBID_cuIpcCloseMemHandle, decode_shared_memory, true},
    {CBID_cuImportExternalMemory, decode_shared_memory, false},
    {CBID_cuExternalMemoryGetMappedBuffer, decode_shared_memory, false},
    {CBID_cuDestroyExternalMemory, decode_shared_memory, true},
    {CBID_cuArrayCreate, decode_arrays, false},
    {CBID_cuArrayCreate_v2, decode_arrays, false},
    {CBID_cuArray3DCreate, decode_arrays, false},
    {CBID_cuArray3DCreate_v2, decode_arrays, false},
    {CBID_cuMipmappedArrayCreate, decode_arrays, false},
    {CBID_cuArrayDestroy, decode_arrays, true},
    {CBID_cuMipmappedArrayDestroy, decode_arrays, true},
    {CBID_cuGraphAddMemAllocNode, decode_graphs, false},
    {CBID_cuGraphAddMemFreeNode, decode_graphs, true},
    {CBID_cuGraphAddNode, decode_graphs, false},
    {CBID_cuGraphAddNode_v2, decode_graphs, false},
    {CBID_cuGraphLaunch, decode_graphs, false},
    {CBID_cuGraphLaunch_ptsz, decode_graphs, false},
    {CBID_cuStreamBeginCapture_v2, decode_graphs, false},
    {CBID_cuStreamBeginCapture_v2_ptsz, decode_graphs, false},
    {CBID_cuStreamEndCapture, decode_graphs, false},
    {CBID_cuStreamEndCapture_ptsz, decode_graphs, false},
};
// clang-format on

// By id: index of the call in kWatched, + 1.
constexpr auto kPlaceOf = [] {
  std::array<uint8_t, kDriverCallbackCount> places{};
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    places[kWatched[i].id] = static_cast<uint8_t>(i + 1);
  }
  return places;
}();
static_assert(std::size(kWatched) < 255);

constexpr auto kWatchedIds = [] {
  std::array<uint32_t, std::size(kWatched)> ids{};
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = kWatched[i].id;
  return ids;
}();

const Watched* find_watched(uint32_t id) {
  if (id >= kPlaceOf.size() || kPlaceOf[id] == 0) return nullptr;
  return &kWatched[kPlaceOf[id] - 1u];
}

}  // namespace

std::span<const uint32_t> watched_driver_calls() noexcept {
  return kWatchedIds;
}

DriverEvent older_context(int64_t device, int64_t time_ns) noexcept {
  DriverEvent event{};
  event.time_ns = time_ns;
  event.device = device;
  event.flags = kDriverSeeded;
  event.operation = DriverOperation::kContextCreate;
  event.kind = MemoryKind::kContext;
  return event;
}

bool counts_from_enter(uint32_t id) noexcept {
  const Watched* watched = find_watched(id);
  return watched != nullptr && watched->from_enter;
}

DriverCall decode_driver_call(uint32_t id, const void* params, CUresult result) noexcept {
  Decoder decoder(params, result);
  const Watched* watched = find_watched(id);
  if (watched != nullptr && params != nullptr) watched->decode(id, decoder);
  return decoder.call;
}

}  // namespace tidemark::injector
