// Every kind of allocation: what the program gets, what callbacks report, what the card counts.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/simgpu/fixture.h"

namespace tidemark {
namespace {

using cupti::CBID_cuMemAlloc_v2;

TEST(Start, FirstInitialisationReportsOnlyItsEnd) {
  OK(CU(cuInit)(0));
  probe::Log seen;
  find_in<probe::probe_log_fn>(std::getenv("CUDA_INJECTION64_PATH"), "probe_log")(&seen);
  ASSERT_EQ(seen.callbacks.size(), 1U);
  EXPECT_EQ(seen.callbacks[0].domain, cupti::CUPTI_CB_DOMAIN_RESOURCE);
  EXPECT_EQ(seen.callbacks[0].id, cupti::CUPTI_CBID_RESOURCE_CU_INIT_FINISHED);
  EXPECT_EQ(seen.callbacks[0].name, "no data");
}

TEST_F(SimGpu, InjectionIsLoadedOnceAndCannotCallTheDriver) {
  OK(CU(cuInit)(0));
  EXPECT_EQ(one_call(cupti::CBID_cuInit).result, CUDA_SUCCESS);
  const probe::Log all = log();
  EXPECT_EQ(all.initialised, 1);
  EXPECT_EQ(all.subscribed, cupti::CUPTI_SUCCESS);
  EXPECT_EQ(all.driver_call_while_loading, CUDA_ERROR_NOT_INITIALIZED);
}

TEST_F(SimGpu, DeviceMemory) {
  CUdeviceptr p = 0;
  OK(CU(cuMemAlloc_v2)(&p, 1000));
  const probe::Callback call = one_call(CBID_cuMemAlloc_v2);
  EXPECT_EQ(call.name, "cuMemAlloc_v2");
  EXPECT_EQ(call.result, CUDA_SUCCESS);
  EXPECT_EQ(call.address, p);
  EXPECT_EQ(call.bytes, 1000U);
  EXPECT_EQ(call.context, reinterpret_cast<uint64_t>(context_));
  EXPECT_EQ(taken(), 1024U) << "in steps of 512 bytes";

  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(CU(cuMemGetAddressRange_v2)(&base, &bytes, p + 999));
  EXPECT_EQ(base, p);
  EXPECT_EQ(bytes, 1000U);
  EXPECT_EQ(CU(cuMemGetAddressRange_v2)(&base, &bytes, p + 1000), CUDA_ERROR_NOT_FOUND);

  OK(CU(cuMemFree_v2)(p));
  EXPECT_EQ(one_call(cupti::CBID_cuMemFree_v2).address, p);
  EXPECT_EQ(taken(), 0U);
  const auto memory = records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2);
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[0].operation, cupti::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
  EXPECT_EQ(memory[0].memory_kind, cupti::CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  EXPECT_EQ(memory[0].address, p);
  EXPECT_EQ(memory[0].bytes, 1000U);
  EXPECT_EQ(memory[0].correlation, call.correlation);
  EXPECT_EQ(memory[0].stream, cupti::kInvalidStreamId);
  EXPECT_EQ(memory[1].operation, cupti::CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
}

TEST_F(SimGpu, FreedAddressesComeBackFirstFit) {
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  CUdeviceptr c = 0;
  OK(CU(cuMemAlloc_v2)(&a, 2 * kMiB));
  OK(CU(cuMemAlloc_v2)(&b, 2 * kMiB));
  OK(CU(cuMemFree_v2)(a));
  OK(CU(cuMemAlloc_v2)(&c, kMiB));
  EXPECT_EQ(c, a);
  OK(CU(cuMemAlloc_v2)(&a, kMiB));
  EXPECT_EQ(a, c + kMiB);
  for (CUdeviceptr p : {a, b, c}) OK(CU(cuMemFree_v2)(p));
}

TEST_F(SimGpu, FailedCallsAreSeenWithTheirSize) {
  CUdeviceptr p = 0;
  size_t free = free_bytes();
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, free + 1), CUDA_ERROR_OUT_OF_MEMORY);
  const probe::Callback call = one_call(CBID_cuMemAlloc_v2);
  EXPECT_EQ(call.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(call.bytes, free + 1);
  EXPECT_EQ(call.address, 0U);
  EXPECT_EQ(taken(), 0U);
  clear();
  OK(CU(cuMemAlloc_v2)(&p, free)) << "all free memory can be allocated";
  EXPECT_EQ(free_bytes(), 0U);
  OK(CU(cuMemFree_v2)(p));
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, ~size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFree_v2)(p), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(CU(cuMemFree_v2)(0x1234), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2).size() == 2) << "only what happened";
}

TEST_F(SimGpu, NeedsAContext) {
  CUdeviceptr p = 0;
  OK(CU(cuCtxSetCurrent)(nullptr));
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, 512), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SimGpu, PitchedMemory) {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  OK(CU(cuMemAllocPitch_v2)(&p, &pitch, 5000, 100, 4));
  EXPECT_EQ(pitch, 5120U);
  const probe::Callback call = one_call(cupti::CBID_cuMemAllocPitch_v2);
  EXPECT_EQ(call.address, p);
  EXPECT_EQ(call.bytes, 512000U);
  EXPECT_EQ(taken(), 512000U);
  OK(CU(cuMemFree_v2)(p));
  EXPECT_EQ(CU(cuMemAllocPitch_v2)(&p, &pitch, 5000, 100, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimGpu, ManagedMemoryCanBeTouchedAndTakesNothing) {
  CUdeviceptr p = 0;
  OK(CU(cuMemAllocManaged)(&p, 3 * kMiB, kMemAttachGlobal));
  EXPECT_EQ(one_call(cupti::CBID_cuMemAllocManaged).bytes, 3 * kMiB);
  EXPECT_EQ(taken(), 0U);
  OK(CU(cuMemsetD8_v2)(p, 7, 3 * kMiB));
  EXPECT_EQ(reinterpret_cast<char*>(p)[3 * kMiB - 1], 7);
  unsigned int managed = 0;
  OK(CU(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 5));
  EXPECT_EQ(managed, 1U);
  OK(CU(cuMemFree_v2)(p));
  const auto memory = records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2);
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[0].memory_kind, cupti::CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
}

TEST_F(SimGpu, HostMemory) {
  void* a = nullptr;
  void* b = nullptr;
  std::vector<char> own(100000);
  OK(CU(cuMemHostAlloc)(&a, kMiB, 0));
  OK(CU(cuMemAllocHost_v2)(&b, 2 * kMiB));
  OK(CU(cuMemHostRegister_v2)(own.data(), own.size(), 0));
  EXPECT_EQ(one_call(cupti::CBID_cuMemHostAlloc).address, reinterpret_cast<uint64_t>(a));
  EXPECT_EQ(one_call(cupti::CBID_cuMemAllocHost_v2).bytes, 2 * kMiB);
  EXPECT_EQ(one_call(cupti::CBID_cuMemHostRegister_v2).bytes, own.size());
  EXPECT_EQ(taken(), 0U);
  std::memset(a, 1, kMiB);
  OK(CU(cuMemcpyHtoD_v2)(reinterpret_cast<CUdeviceptr>(b), a, kMiB));
  EXPECT_EQ(static_cast<char*>(b)[kMiB - 1], 1) << "host memory is really copied";

  EXPECT_EQ(CU(cuMemHostRegister_v2)(own.data() + 10, 10, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(CU(cuMemFree_v2)(reinterpret_cast<CUdeviceptr>(a)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemHostUnregister)(a), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(CU(cuMemFreeHost)(a));
  OK(CU(cuMemFreeHost)(b));
  OK(CU(cuMemHostUnregister)(own.data()));
  EXPECT_EQ(CU(cuMemHostUnregister)(own.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(SimGpu, Arrays) {
  CUarray flat = nullptr;
  CUarray cube = nullptr;
  CUmipmappedArray levels = nullptr;
  const CUDA_ARRAY_DESCRIPTOR d2{128, 64, CU_AD_FORMAT_FLOAT, 4};
  OK(CU(cuArrayCreate_v2)(&flat, &d2));
  EXPECT_EQ(taken(), 128U * 64 * 16);
  const CUDA_ARRAY3D_DESCRIPTOR d3{32, 32, 32, CU_AD_FORMAT_HALF, 1, 0};
  OK(CU(cuArray3DCreate_v2)(&cube, &d3));
  EXPECT_EQ(taken(), 128U * 64 * 16 + 32 * 32 * 32 * 2);
  const CUDA_ARRAY3D_DESCRIPTOR dm{256, 256, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
  const size_t before = taken();
  OK(CU(cuMipmappedArrayCreate)(&levels, &dm, 2));
  EXPECT_EQ(taken() - before, 4U * (256 * 256 + 128 * 128));
  const CUDA_ARRAY_DESCRIPTOR bad{128, 64, CU_AD_FORMAT_FLOAT, 3};
  CUarray none = nullptr;
  EXPECT_EQ(CU(cuArrayCreate_v2)(&none, &bad), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuArrayDestroy)(flat));
  OK(CU(cuArrayDestroy)(cube));
  OK(CU(cuMipmappedArrayDestroy)(levels));
  EXPECT_EQ(CU(cuArrayDestroy)(flat), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(taken(), 0U);
  EXPECT_EQ(records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2).size(), 8U) << "one per level";
}

TEST_F(SimGpu, ExternalMemory) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC d{};
  d.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  d.handle.fd = memfd_create("external", 0);
  d.size = 4 * kMiB;
  CUexternalMemory memory = nullptr;
  OK(CU(cuImportExternalMemory)(&memory, &d));
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC b{};
  b.offset = kMiB;
  b.size = 3 * kMiB;
  CUdeviceptr p = 0;
  OK(CU(cuExternalMemoryGetMappedBuffer)(&p, memory, &b));
  b.offset = 2 * kMiB;
  EXPECT_EQ(CU(cuExternalMemoryGetMappedBuffer)(&p, memory, &b), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(taken(), 0U) << "bytes of others";
  OK(CU(cuMemFree_v2)(p));
  OK(CU(cuDestroyExternalMemory)(memory));
  EXPECT_EQ(CU(cuDestroyExternalMemory)(memory), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(SimGpu, IpcHandleIsForOtherProcesses) {
  CUdeviceptr p = 0;
  CUdeviceptr q = 0;
  CUipcMemHandle handle{};
  OK(CU(cuMemAlloc_v2)(&p, kMiB));
  OK(CU(cuIpcGetMemHandle)(&handle, p));
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&q, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(p), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuMemFree_v2)(p));
}

TEST_F(SimGpu, ContextsCostAndTakeTheirMemoryWithThem) {
  CUcontext context = nullptr;
  OK(CU(cuCtxCreate_v4)(&context, nullptr, 0, 0));
  EXPECT_EQ(taken(), 100 * kMiB) << "SIMGPU_CONTEXT_MB";
  EXPECT_EQ(resources(cupti::CUPTI_CBID_RESOURCE_CONTEXT_CREATED), 1U);
  CUdeviceptr p = 0;
  OK(CU(cuMemAlloc_v2)(&p, 5 * kMiB));
  EXPECT_EQ(taken(), 105 * kMiB);
  OK(CU(cuCtxDestroy_v2)(context));
  OK(CU(cuCtxSetCurrent)(context_));
  EXPECT_EQ(taken(), 0U);
  EXPECT_EQ(resources(cupti::CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING), 1U);
  EXPECT_EQ(one_call(cupti::CBID_cuCtxDestroy_v2).context, reinterpret_cast<uint64_t>(context_))
      << "the one below on the stack";
  EXPECT_EQ(CU(cuMemFree_v2)(p), CUDA_ERROR_INVALID_VALUE) << "gone with its context";
  EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SimGpu, DestroyedPrimaryContextIsNamedWithoutId) {
  OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
  const probe::Callback call = one_call(cupti::CBID_cuDevicePrimaryCtxRelease_v2);
  EXPECT_EQ(call.context, reinterpret_cast<uint64_t>(context_));
  EXPECT_EQ(call.context_id, 0U);
  CUdeviceptr p = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, 512), CUDA_ERROR_INVALID_CONTEXT);
  OK(CU(cuDevicePrimaryCtxRetain)(&context_, 0));
}

TEST_F(SimGpu, PrimaryContextIsCounted) {
  CUcontext again = nullptr;
  unsigned int flags = 0;
  int active = 0;
  OK(CU(cuDevicePrimaryCtxRetain)(&again, 0));
  EXPECT_EQ(again, context_);
  OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
  OK(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
  EXPECT_EQ(active, 1);
  OK(CU(cuDevicePrimaryCtxGetState)(1, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuDevicePrimaryCtxRetain)(&again, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(SimGpu, Devices) {
  int count = 0;
  OK(CU(cuDeviceGetCount)(&count));
  EXPECT_EQ(count, 2);
  size_t bytes = 0;
  OK(CU(cuDeviceTotalMem_v2)(&bytes, 1));
  EXPECT_EQ(bytes, 1024 * kMiB);
  char name[64];
  OK(CU(cuDeviceGetName)(name, sizeof(name), 0));
  EXPECT_STREQ(name, "Simulated GPU");
  CUuuid a{};
  CUuuid b{};
  OK(CU(cuDeviceGetUuid_v2)(&a, 0));
  OK(CU(cuDeviceGetUuid_v2)(&b, 1));
  EXPECT_NE(std::memcmp(&a, &b, sizeof(a)), 0);
  int major = 0;
  OK(CU(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  EXPECT_EQ(major, 9);
  EXPECT_EQ(CU(cuDeviceGetName)(name, sizeof(name), 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(SimGpu, ProcAddressGivesTheVersionThatFits) {
  const auto get = CU(cuGetProcAddress_v2);
  void* p = nullptr;
  CUdriverProcAddressQueryResult status{};
  OK(get("cuMemAlloc", &p, 13000, 0, &status));
  EXPECT_EQ(p, reinterpret_cast<void*>(CU(cuMemAlloc_v2)));
  OK(get("cuCtxCreate", &p, 11000, 0, &status));
  EXPECT_EQ(p, reinterpret_cast<void*>(CU(cuCtxCreate_v2)));
  OK(get("cuMemAllocAsync", &p, 13000, kGetProcAddressPerThreadDefaultStream, &status));
  EXPECT_EQ(p, (find_in<void*>("libcuda.so.1", "cuMemAllocAsync_ptsz")));
  OK(get("cuNoSuchThing", &p, 13000, 0, &status));
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(get("cuNoSuchThing", &p, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace tidemark
