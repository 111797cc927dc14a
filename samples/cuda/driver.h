// The CUDA driver as the samples use it: loaded at run time, so that they build on any machine and
// run on a real GPU as well as on the stand-in of simgpu/.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "abi/cuda_functions.h"

namespace tidemark::samples {

using namespace cuda;  // NOLINT: a sample reads like any CUDA program

[[noreturn]] inline void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

class Driver {
 public:
#define TIDEMARK_SAMPLE_CALL(NAME) NAME##_fn NAME = find<NAME##_fn>(#NAME)
  TIDEMARK_SAMPLE_CALL(cuInit);
  TIDEMARK_SAMPLE_CALL(cuGetErrorName);
  TIDEMARK_SAMPLE_CALL(cuDeviceGetCount);
  TIDEMARK_SAMPLE_CALL(cuDevicePrimaryCtxRetain);
  TIDEMARK_SAMPLE_CALL(cuDevicePrimaryCtxRelease_v2);
  TIDEMARK_SAMPLE_CALL(cuCtxCreate_v2);
  TIDEMARK_SAMPLE_CALL(cuCtxSetCurrent);
  TIDEMARK_SAMPLE_CALL(cuCtxSynchronize);
  TIDEMARK_SAMPLE_CALL(cuStreamCreate);
  TIDEMARK_SAMPLE_CALL(cuStreamDestroy_v2);
  TIDEMARK_SAMPLE_CALL(cuStreamSynchronize);
  TIDEMARK_SAMPLE_CALL(cuMemGetInfo_v2);
  TIDEMARK_SAMPLE_CALL(cuMemAlloc_v2);
  TIDEMARK_SAMPLE_CALL(cuMemAllocPitch_v2);
  TIDEMARK_SAMPLE_CALL(cuMemAllocManaged);
  TIDEMARK_SAMPLE_CALL(cuMemFree_v2);
  TIDEMARK_SAMPLE_CALL(cuMemAllocHost_v2);
  TIDEMARK_SAMPLE_CALL(cuMemHostAlloc);
  TIDEMARK_SAMPLE_CALL(cuMemFreeHost);
  TIDEMARK_SAMPLE_CALL(cuMemHostRegister_v2);
  TIDEMARK_SAMPLE_CALL(cuMemHostUnregister);
  TIDEMARK_SAMPLE_CALL(cuMemAllocAsync);
  TIDEMARK_SAMPLE_CALL(cuMemAllocFromPoolAsync);
  TIDEMARK_SAMPLE_CALL(cuMemFreeAsync);
  TIDEMARK_SAMPLE_CALL(cuMemPoolCreate);
  TIDEMARK_SAMPLE_CALL(cuMemPoolDestroy);
  TIDEMARK_SAMPLE_CALL(cuMemCreate);
  TIDEMARK_SAMPLE_CALL(cuMemRelease);
  TIDEMARK_SAMPLE_CALL(cuMemExportToShareableHandle);
  TIDEMARK_SAMPLE_CALL(cuMemImportFromShareableHandle);
  TIDEMARK_SAMPLE_CALL(cuMemAddressReserve);
  TIDEMARK_SAMPLE_CALL(cuMemAddressFree);
  TIDEMARK_SAMPLE_CALL(cuMemMap);
  TIDEMARK_SAMPLE_CALL(cuMemUnmap);
  TIDEMARK_SAMPLE_CALL(cuMemSetAccess);
  TIDEMARK_SAMPLE_CALL(cuIpcGetMemHandle);
  TIDEMARK_SAMPLE_CALL(cuIpcOpenMemHandle_v2);
  TIDEMARK_SAMPLE_CALL(cuIpcCloseMemHandle);
  TIDEMARK_SAMPLE_CALL(cuArrayCreate_v2);
  TIDEMARK_SAMPLE_CALL(cuArray3DCreate_v2);
  TIDEMARK_SAMPLE_CALL(cuArrayDestroy);
  TIDEMARK_SAMPLE_CALL(cuMipmappedArrayCreate);
  TIDEMARK_SAMPLE_CALL(cuMipmappedArrayDestroy);
  TIDEMARK_SAMPLE_CALL(cuGraphCreate);
  TIDEMARK_SAMPLE_CALL(cuGraphDestroy);
  TIDEMARK_SAMPLE_CALL(cuGraphAddMemAllocNode);
  TIDEMARK_SAMPLE_CALL(cuGraphInstantiateWithFlags);
  TIDEMARK_SAMPLE_CALL(cuGraphLaunch);
  TIDEMARK_SAMPLE_CALL(cuGraphExecDestroy);
  TIDEMARK_SAMPLE_CALL(cuDeviceGraphMemTrim);
  TIDEMARK_SAMPLE_CALL(cuModuleLoadData);
  TIDEMARK_SAMPLE_CALL(cuModuleUnload);
  TIDEMARK_SAMPLE_CALL(cuModuleGetFunction);
  TIDEMARK_SAMPLE_CALL(cuLaunchKernel);
  TIDEMARK_SAMPLE_CALL(cuMemcpyHtoD_v2);
  TIDEMARK_SAMPLE_CALL(cuMemsetD8_v2);
#undef TIDEMARK_SAMPLE_CALL

  // Ends the program when a call failed.
  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
    fail(what, name);
  }

  // Initialises the driver; afterwards the primary context of `device` is current.
  CUcontext use_device(CUdevice device) const {
    CUcontext context = nullptr;
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return context;
  }

 private:
  static void* library() {
    static void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) fail("libcuda.so.1", dlerror());
    return handle;
  }
  template <typename Function>
  static Function find(const char* name) {
    void* symbol = dlsym(library(), name);
    if (symbol == nullptr) fail(name, "not found in libcuda.so.1");
    return reinterpret_cast<Function>(symbol);
  }
};

// A kernel that does nothing, for any GPU of compute capability 7.5 and later.
inline constexpr char kIdlePtx[] =
    ".version 6.3\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry idle() { ret; }\n";

}  // namespace tidemark::samples
