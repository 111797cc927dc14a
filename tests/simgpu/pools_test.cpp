// Stream-ordered memory and virtual memory management.
#include <unistd.h>

#include "tests/simgpu/fixture.h"

namespace tidemark {
namespace {

uint64_t pool_value(CUmemoryPool pool, CUmemPool_attribute attribute) {
  uint64_t value = 0;
  EXPECT_EQ(CU(cuMemPoolGetAttribute)(pool, attribute, &value), CUDA_SUCCESS);
  return value;
}

TEST_F(SimGpu, PoolReservesMoreThanItGivesOut) {
  CUmemoryPool pool = nullptr;
  OK(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
  CUdeviceptr p = 0;
  OK(CU(cuMemAllocAsync)(&p, 5 * kMiB, nullptr));
  EXPECT_EQ(one_call(cupti::CBID_cuMemAllocAsync).address, p);
  EXPECT_EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 5 * kMiB);
  EXPECT_EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * kMiB);
  EXPECT_EQ(taken(), 32 * kMiB);
  const auto memory = records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2);
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0].pool, reinterpret_cast<uint64_t>(pool));
  EXPECT_EQ(memory[0].pool_used, 5 * kMiB);
  EXPECT_NE(memory[0].stream, cupti::kInvalidStreamId);

  OK(CU(cuMemFreeAsync)(p, nullptr));
  EXPECT_EQ(one_call(cupti::CBID_cuMemFreeAsync).address, p);
  EXPECT_EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0U);
  EXPECT_EQ(taken(), 32 * kMiB) << "until a synchronisation";
  OK(CU(cuStreamSynchronize)(nullptr));
  EXPECT_EQ(taken(), 0U);
  EXPECT_EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 5 * kMiB);
  uint64_t zero = 0;
  OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0U);
  OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
}

TEST_F(SimGpu, PoolKeepsUpToItsThresholdAndTrims) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  OK(CU(cuMemPoolCreate)(&pool, &props));
  uint64_t threshold = 40 * kMiB;
  OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CUdeviceptr p[3] = {};
  for (CUdeviceptr& each : p) {
    OK(CU(cuMemAllocFromPoolAsync)(&each, 30 * kMiB, pool, nullptr));
  }
  EXPECT_EQ(taken(), 96 * kMiB);
  for (CUdeviceptr each : p) OK(CU(cuMemFreeAsync)(each, nullptr));
  OK(CU(cuCtxSynchronize)());
  EXPECT_EQ(taken(), 64 * kMiB) << "whole chunks, not below the threshold";
  OK(CU(cuMemPoolTrimTo)(pool, 0));
  EXPECT_EQ(taken(), 0U);
  OK(CU(cuMemPoolDestroy)(pool));
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimGpu, FullCardReclaimsUnusedPoolMemory) {
  CUmemoryPool pool = nullptr;
  OK(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
  uint64_t threshold = ~uint64_t{0};
  OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CUdeviceptr p = 0;
  OK(CU(cuMemAllocAsync)(&p, 64 * kMiB, nullptr));
  OK(CU(cuMemFreeAsync)(p, nullptr));
  OK(CU(cuCtxSynchronize)());
  EXPECT_EQ(taken(), 64 * kMiB);
  OK(CU(cuMemAlloc_v2)(&p, free_at_start_));
  EXPECT_EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0U);
  CUdeviceptr q = 0;
  EXPECT_EQ(CU(cuMemAllocAsync)(&q, 512, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(one_call(cupti::CBID_cuMemFreeAsync).result, CUDA_SUCCESS);
  OK(CU(cuMemFree_v2)(p));
  threshold = 0;
  OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

TEST_F(SimGpu, FreeAsyncOnlyFreesOrderedMemory) {
  CUdeviceptr p = 0;
  OK(CU(cuMemAlloc_v2)(&p, 512));
  EXPECT_EQ(CU(cuMemFreeAsync)(p, nullptr), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMemFree_v2)(p));
}

TEST_F(SimGpu, PerThreadVariantsHaveTheirOwnIdAndStream) {
  CUdeviceptr p = 0;
  CUdeviceptr q = 0;
  const auto per_thread = find_in<cuMemAllocAsync_fn>("libcuda.so.1", "cuMemAllocAsync_ptsz");
  OK(CU(cuMemAllocAsync)(&p, kMiB, nullptr));
  OK(per_thread(&q, 2 * kMiB, nullptr));
  EXPECT_EQ(one_call(cupti::CBID_cuMemAllocAsync).bytes, kMiB);
  EXPECT_EQ(one_call(cupti::CBID_cuMemAllocAsync_ptsz).bytes, 2 * kMiB);
  const auto memory = records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2);
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_NE(memory[0].stream, memory[1].stream);
  for (CUdeviceptr each : {p, q}) OK(CU(cuMemFreeAsync)(each, nullptr));
}

TEST_F(SimGpu, ImportedPoolHoldsNoMemory) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUmemoryPool imported = nullptr;
  CUdeviceptr p = 0;
  CUdeviceptr q = 0;
  int fd = -1;
  CUmemPoolPtrExportData shared{};
  OK(CU(cuMemPoolCreate)(&pool, &props));
  OK(CU(cuMemAllocFromPoolAsync)(&p, kMiB, pool, nullptr));
  OK(CU(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(CU(cuMemPoolImportFromShareableHandle)(&imported,
                                            reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  const size_t before = taken();
  OK(CU(cuMemPoolExportPointer)(&shared, p));
  EXPECT_EQ(CU(cuMemPoolImportPointer)(&q, pool, &shared), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMemPoolImportPointer)(&q, imported, &shared));
  EXPECT_EQ(taken(), before);
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&q, kMiB, imported, nullptr), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMemFreeAsync)(q, nullptr));
  OK(CU(cuMemFreeAsync)(p, nullptr));
  OK(CU(cuMemPoolDestroy)(imported));
  OK(CU(cuMemPoolDestroy)(pool));
  EXPECT_EQ(taken(), 0U);
}

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

TEST_F(SimGpu, MappingKeepsReleasedMemoryAlive) {
  const CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  OK(CU(cuMemCreate)(&handle, 4 * kMiB, &prop, 0));
  EXPECT_EQ(one_call(cupti::CBID_cuMemCreate).bytes, 4 * kMiB);
  EXPECT_EQ(taken(), 4 * kMiB);
  OK(CU(cuMemAddressReserve)(&range, 8 * kMiB, 0, 0, 0));
  EXPECT_EQ(taken(), 4 * kMiB) << "addresses are not memory";
  OK(CU(cuMemMap)(range, 4 * kMiB, 0, handle, 0));
  EXPECT_EQ(one_call(cupti::CBID_cuMemMap).address, range);
  OK(CU(cuMemRelease)(handle));
  EXPECT_EQ(taken(), 4 * kMiB);
  EXPECT_EQ(CU(cuMemMap)(range + 4 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "a handle that no longer exists";
  OK(CU(cuMemUnmap)(range, 4 * kMiB));
  EXPECT_EQ(taken(), 0U);
  OK(CU(cuMemAddressFree)(range, 8 * kMiB));
  const auto memory = records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2);
  ASSERT_EQ(memory.size(), 2U) << "one per map and unmap";
  EXPECT_EQ(memory[0].address, range);
  EXPECT_EQ(memory[0].bytes, 4 * kMiB);
}

// How NCCL frees: retain, release, unmap, release, free the address range.
TEST_F(SimGpu, RetainedHandlesAreCounted) {
  const CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle again = 0;
  CUdeviceptr range = 0;
  OK(CU(cuMemCreate)(&handle, 2 * kMiB, &prop, 0));
  OK(CU(cuMemAddressReserve)(&range, 2 * kMiB, 0, 0, 0));
  OK(CU(cuMemMap)(range, 2 * kMiB, 0, handle, 0));
  OK(CU(cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(range + 100)));
  OK(CU(cuMemRelease)(handle));
  OK(CU(cuMemUnmap)(range, 2 * kMiB));
  EXPECT_EQ(taken(), 2 * kMiB) << "one handle is left";
  OK(CU(cuMemRelease)(again));
  EXPECT_EQ(taken(), 0U);
  EXPECT_EQ(CU(cuMemRelease)(again), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMemAddressFree)(range, 2 * kMiB));
}

TEST_F(SimGpu, ExportedHandleImportsAsTheSameMemory) {
  const CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle imported = 0;
  int fd = -1;
  OK(CU(cuMemCreate)(&handle, 2 * kMiB, &prop, 0));
  OK(CU(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(CU(cuMemImportFromShareableHandle)(&imported,
                                        reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  EXPECT_EQ(taken(), 2 * kMiB);
  OK(CU(cuMemRelease)(handle));
  EXPECT_EQ(taken(), 2 * kMiB);
  OK(CU(cuMemRelease)(imported));
  EXPECT_EQ(taken(), 0U);
}

TEST_F(SimGpu, VmmRefusesWhatDoesNotFit) {
  CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  EXPECT_EQ(CU(cuMemCreate)(&handle, 3 * kMiB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemCreate)(&handle, 4096 * kMiB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  prop.location.id = 2;
  EXPECT_EQ(CU(cuMemCreate)(&handle, 2 * kMiB, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  OK(CU(cuMemCreate)(&handle, 2 * kMiB, &prop, 0));
  EXPECT_EQ(taken(), 0U) << "host memory";
  OK(CU(cuMemAddressReserve)(&range, 4 * kMiB, 0, 0, 0));
  EXPECT_EQ(CU(cuMemMap)(range + 4 * kMiB, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMemMap)(range, 2 * kMiB, 0, handle, 0));
  EXPECT_EQ(CU(cuMemMap)(range, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "mapped";
  EXPECT_EQ(CU(cuMemAddressFree)(range, 4 * kMiB), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  EXPECT_EQ(CU(cuMemUnmap)(range, 4 * kMiB), CUDA_ERROR_INVALID_VALUE)
      << "half of it is not mapped";
  OK(CU(cuMemUnmap)(range, 2 * kMiB));
  OK(CU(cuMemAddressFree)(range, 4 * kMiB));
  OK(CU(cuMemRelease)(handle));
}

TEST_F(SimGpu, MulticastHoldsNoMemory) {
  CUmulticastObjectProp prop{};
  prop.numDevices = 2;
  prop.size = 2 * kMiB;
  CUmemGenericAllocationHandle object = 0;
  CUmemGenericAllocationHandle memory = 0;
  const CUmemAllocationProp physical = on_device(0);
  OK(CU(cuMulticastCreate)(&object, &prop));
  EXPECT_EQ(taken(), 0U);
  OK(CU(cuMulticastAddDevice)(object, 0));
  OK(CU(cuMemCreate)(&memory, 2 * kMiB, &physical, 0));
  OK(CU(cuMulticastBindMem)(object, 0, memory, 0, 2 * kMiB, 0));
  EXPECT_EQ(CU(cuMulticastBindMem)(memory, 0, memory, 0, 2 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMulticastUnbind)(object, 0, 0, 2 * kMiB));
  OK(CU(cuMemRelease)(memory));
  OK(CU(cuMemRelease)(object));
  EXPECT_EQ(taken(), 0U);
}

}  // namespace
}  // namespace tidemark
