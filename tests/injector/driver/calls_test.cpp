// Decodes driver calls into rows, with hand-made parameters.
#include <gtest/gtest.h>

#include "abi/cuda_params.h"
#include "abi/driver_callback_ids.h"
#include "injector/driver/events.h"

namespace tidemark::injector {
namespace {

using namespace cuda;
using namespace cupti;

template <typename Params>
DriverCall decode(uint32_t id, const Params& params, CUresult result = CUDA_SUCCESS) {
  return decode_driver_call(id, &params, result);
}

template <typename Handle>
Handle handle(uintptr_t bits) {
  return reinterpret_cast<Handle>(bits);
}

TEST(CaptureCalls, DeviceMemory) {
  CUdeviceptr address = 0x7000;
  const cuMemAlloc_v2_params params{&address, 4096};
  const DriverCall call = decode(CBID_cuMemAlloc_v2, params);
  EXPECT_EQ(call.call_class, CallClass::kTakes);
  EXPECT_EQ(call.event.operation, DriverOperation::kAllocate);
  EXPECT_EQ(call.event.kind, MemoryKind::kDevice);
  EXPECT_EQ(call.event.address, 0x7000u);
  EXPECT_EQ(call.event.size_bytes, 4096u);
  EXPECT_EQ(call.event.result, 0u);
  EXPECT_FALSE(call.device_known);
}

TEST(CaptureCalls, AFailedCallKeepsTheSizeAndReadsNoOutParameter) {
  // The driver leaves out-parameters untouched: a garbage pointer value must not become a row.
  CUdeviceptr address = 0xdeadbeef;
  const cuMemAlloc_v2_params params{&address, 1ull << 40};
  const DriverCall call = decode(CBID_cuMemAlloc_v2, params, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(call.call_class, CallClass::kTakes);
  EXPECT_EQ(call.event.address, 0u);
  EXPECT_EQ(call.event.size_bytes, 1ull << 40);
  EXPECT_EQ(call.event.result, 2u);
}

TEST(CaptureCalls, NullOutParametersAreTolerated) {
  const cuMemAlloc_v2_params params{nullptr, 16};
  EXPECT_EQ(decode(CBID_cuMemAlloc_v2, params).event.address, 0u);
  const cuArray3DCreate_v2_params array{nullptr, nullptr};
  EXPECT_EQ(decode(CBID_cuArray3DCreate_v2, array).event.size_bytes, 0u);
  const cuMemCreate_params create{nullptr, 16, nullptr, 0};
  EXPECT_EQ(decode(CBID_cuMemCreate, create).event.handle, 0u);
  EXPECT_EQ(decode_driver_call(CBID_cuMemCreate, nullptr, CUDA_SUCCESS).call_class,
            CallClass::kIgnored);
}

TEST(CaptureCalls, OldCallsHaveNarrowParameters) {
  CUdeviceptr_v1 address = 0x1000;
  const cuMemAlloc_params params{&address, 256};
  const DriverCall call = decode(CBID_cuMemAlloc, params);
  EXPECT_EQ(call.event.address, 0x1000u);
  EXPECT_EQ(call.event.size_bytes, 256u);
}

TEST(CaptureCalls, PitchedMemoryIsPitchTimesHeight) {
  CUdeviceptr address = 0x9000;
  size_t pitch = 512;
  const cuMemAllocPitch_v2_params params{&address, &pitch, 300, 10, 4};
  EXPECT_EQ(decode(CBID_cuMemAllocPitch_v2, params).event.size_bytes, 5120u);
  EXPECT_EQ(decode(CBID_cuMemAllocPitch_v2, params, CUDA_ERROR_OUT_OF_MEMORY).event.size_bytes,
            3000u);
}

TEST(CaptureCalls, FreesCountFromEnter) {
  const cuMemFree_v2_params params{0x7000};
  const DriverCall call = decode(CBID_cuMemFree_v2, params);
  EXPECT_EQ(call.call_class, CallClass::kGives);
  EXPECT_EQ(call.event.operation, DriverOperation::kFree);
  EXPECT_EQ(call.event.address, 0x7000u);
  for (const uint32_t id :
       {CBID_cuMemFree_v2, CBID_cuMemFreeAsync, CBID_cuMemFreeAsync_ptsz, CBID_cuMemFreeHost,
        CBID_cuMemUnmap, CBID_cuMemRelease, CBID_cuIpcCloseMemHandle, CBID_cuArrayDestroy}) {
    EXPECT_TRUE(counts_from_enter(id)) << id;
  }
  for (const uint32_t id : {CBID_cuMemAlloc_v2, CBID_cuMemCreate, CBID_cuMemMap}) {
    EXPECT_FALSE(counts_from_enter(id)) << id;
  }
  EXPECT_FALSE(counts_from_enter(1000000));
}

TEST(CaptureCalls, PinnedMemoryAndRegistration) {
  void* memory = handle<void*>(0x5000);
  const cuMemHostAlloc_params allocate{&memory, 128, 0};
  EXPECT_EQ(decode(CBID_cuMemHostAlloc, allocate).event.kind, MemoryKind::kPinned);
  EXPECT_EQ(decode(CBID_cuMemHostAlloc_v2, allocate).event.address, 0x5000u);
  const cuMemHostRegister_v2_params params{memory, 64, 0};
  const DriverCall call = decode(CBID_cuMemHostRegister_v2, params);
  EXPECT_EQ(call.event.operation, DriverOperation::kRegister);
  EXPECT_EQ(call.event.size_bytes, 64u);
  const cuMemHostUnregister_params unregister{memory};
  EXPECT_EQ(decode(CBID_cuMemHostUnregister, unregister).event.operation,
            DriverOperation::kUnregister);
}

TEST(CaptureCalls, StreamOrderedMemory) {
  CUdeviceptr address = 0x8000;
  const cuMemAllocAsync_params plain{&address, 77, handle<CUstream>(0x11)};
  const DriverCall from_current = decode(CBID_cuMemAllocAsync_ptsz, plain);
  EXPECT_TRUE(from_current.current_pool);
  EXPECT_EQ(from_current.event.stream, 0x11u);
  EXPECT_EQ(from_current.event.kind, MemoryKind::kStreamOrdered);
  const cuMemAllocFromPoolAsync_params pooled{&address, 77, handle<CUmemoryPool>(0x22),
                                              handle<CUstream>(0x11)};
  const DriverCall from_pool = decode(CBID_cuMemAllocFromPoolAsync, pooled);
  EXPECT_FALSE(from_pool.current_pool);
  EXPECT_EQ(from_pool.pool_handle, 0x22u);
}

TEST(CaptureCalls, SettingADevicesPoolMakesNoRow) {
  const cuDeviceSetMemPool_params params{3, handle<CUmemoryPool>(0x22)};
  const DriverCall call = decode(CBID_cuDeviceSetMemPool, params);
  EXPECT_EQ(call.call_class, CallClass::kIgnored);
  EXPECT_TRUE(call.sets_pool);
  EXPECT_EQ(call.event.device, 3);
}

TEST(CaptureCalls, VirtualMemoryKnowsWhereItLives) {
  CUmemGenericAllocationHandle memory = 0x99;
  CUmemAllocationProp prop{};
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 5};
  const cuMemCreate_params params{&memory, 2 << 20, &prop, 0};
  const DriverCall on_device = decode(CBID_cuMemCreate, params);
  EXPECT_EQ(on_device.event.operation, DriverOperation::kCreate);
  EXPECT_EQ(on_device.event.handle, 0x99u);
  EXPECT_TRUE(on_device.device_known);
  EXPECT_EQ(on_device.event.device, 5);
  EXPECT_EQ(on_device.event.flags, 0u);
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  const DriverCall on_host = decode(CBID_cuMemCreate, params);
  EXPECT_EQ(on_host.event.flags, kDriverHostLocated);
  EXPECT_EQ(on_host.event.device, -1);
}

TEST(CaptureCalls, Mappings) {
  const cuMemMap_params map{0xa000, 4096, 8192, 0x99, 0};
  const DriverCall mapped = decode(CBID_cuMemMap, map);
  EXPECT_EQ(mapped.event.operation, DriverOperation::kMap);
  EXPECT_EQ(mapped.event.offset, 8192u);
  EXPECT_EQ(mapped.event.handle, 0x99u);
  const cuMemUnmap_params unmap{0xa000, 4096};
  EXPECT_EQ(decode(CBID_cuMemUnmap, unmap).event.operation, DriverOperation::kUnmap);
}

TEST(CaptureCalls, MemoryOfOthersIsMarked) {
  CUdeviceptr address = 0xb000;
  cuIpcOpenMemHandle_v2_params open{};
  open.pdptr = &address;
  const DriverCall opened = decode(CBID_cuIpcOpenMemHandle_v2, open);
  EXPECT_EQ(opened.event.operation, DriverOperation::kImport);
  EXPECT_EQ(opened.event.kind, MemoryKind::kIpc);
  EXPECT_EQ(opened.event.flags, kDriverRemote);
  EXPECT_TRUE(opened.size_missing);
  CUmemGenericAllocationHandle memory = 0x77;
  const cuMemImportFromShareableHandle_params import{&memory, nullptr, {}};
  EXPECT_EQ(decode(CBID_cuMemImportFromShareableHandle, import).event.flags, kDriverRemote);
}

TEST(CaptureCalls, GraphNodes) {
  CUDA_MEM_ALLOC_NODE_PARAMS node{};
  node.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  node.bytesize = 1000;
  node.dptr = 0xc000;
  const cuGraphAddMemAllocNode_params add{nullptr, nullptr, nullptr, 0, &node};
  const DriverCall added = decode(CBID_cuGraphAddMemAllocNode, add);
  EXPECT_EQ(added.event.kind, MemoryKind::kGraph);
  EXPECT_EQ(added.event.address, 0xc000u);
  EXPECT_EQ(added.event.device, 1);
  CUgraphNodeParams generic{};
  generic.type = CU_GRAPH_NODE_TYPE_KERNEL;
  cuGraphAddNode_params any{nullptr, nullptr, nullptr, 0, &generic};
  EXPECT_EQ(decode(CBID_cuGraphAddNode, any).call_class, CallClass::kIgnored);
  generic.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  generic.node.alloc = node;
  EXPECT_EQ(decode(CBID_cuGraphAddNode, any).event.size_bytes, 1000u);
}

TEST(CaptureCalls, EveryWatchedCallIsDecodedAndNoOther) {
  // All parameters are zero: every decoder must check a pointer before it reads through it.
  const uint64_t zeros[32] = {};
  for (const uint32_t id : watched_driver_calls()) {
    const DriverCall call = decode_driver_call(id, zeros, CUDA_ERROR_UNKNOWN);
    const bool needs_pointer = id == CBID_cuGraphAddMemAllocNode || id == CBID_cuGraphAddNode ||
                               id == CBID_cuGraphAddNode_v2 || id == CBID_cuMemSetMemPool;
    if (id == CBID_cuMemPoolSetAttribute) continue;  // only its beginning counts
    if (needs_pointer || call.sets_pool || call.begins_capture || call.ends_capture) continue;
    EXPECT_NE(call.call_class, CallClass::kIgnored) << id;
    EXPECT_NE(call.event.operation, DriverOperation::kNone) << id;
    EXPECT_EQ(counts_from_enter(id), call.call_class == CallClass::kGives) << id;
  }
  EXPECT_EQ(decode_driver_call(CBID_cuDevicePrimaryCtxGetState, zeros, CUDA_SUCCESS).call_class,
            CallClass::kIgnored);
}

CUDA_ARRAY3D_DESCRIPTOR array(size_t width, size_t height, size_t depth, CUarray_format format,
                              unsigned channels, unsigned flags = 0) {
  return {width, height, depth, format, channels, flags};
}

TEST(CaptureArrays, SizesFollowTheDescription) {
  EXPECT_EQ(array_bytes(array(100, 0, 0, CU_AD_FORMAT_FLOAT, 1)), 400u);
  EXPECT_EQ(array_bytes(array(100, 10, 0, CU_AD_FORMAT_HALF, 4)), 8000u);
  EXPECT_EQ(array_bytes(array(16, 8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 2)), 1024u);
  EXPECT_EQ(array_bytes(array(8, 8, 0, CU_AD_FORMAT_UNORM_INT16X4, 4)), 512u);
  EXPECT_EQ(array_bytes(array(16, 16, 0, CU_AD_FORMAT_NV12, 3)), 384u);
}

TEST(CaptureArrays, CompressedFormatsCountBlocks) {
  EXPECT_EQ(array_bytes(array(16, 16, 0, CU_AD_FORMAT_BC1_UNORM, 4)), 128u);
  EXPECT_EQ(array_bytes(array(17, 16, 0, CU_AD_FORMAT_BC7_UNORM_SRGB, 4)), 5u * 4 * 16);
}

TEST(CaptureArrays, ArraysWithoutMemoryOfTheirOwn) {
  EXPECT_EQ(array_bytes(array(64, 64, 0, CU_AD_FORMAT_FLOAT, 1, kArray3DSparse)), 0u);
  EXPECT_EQ(array_bytes(array(64, 64, 0, static_cast<CUarray_format>(0x7777), 1)), 0u);
}

TEST(CaptureArrays, MipmapsAddTheirLevels) {
  // 8x8 + 4x4 + 2x2 + 1x1 texels of 4 bytes.
  EXPECT_EQ(mipmapped_array_bytes(array(8, 8, 0, CU_AD_FORMAT_FLOAT, 1), 4), 340u);
  EXPECT_EQ(mipmapped_array_bytes(array(8, 8, 0, CU_AD_FORMAT_FLOAT, 1), 100), 340u);
  EXPECT_EQ(mipmapped_array_bytes(array(8, 8, 3, CU_AD_FORMAT_FLOAT, 1, kArray3DLayered), 2),
            3u * 4 * (64 + 16));
}

}  // namespace
}  // namespace tidemark::injector
