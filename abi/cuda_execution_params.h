// Parameters of driver functions that are not only about memory: contexts, code, launches, graphs,
// copies, streams (cuda_params.h).
#pragma once

#include "abi/cuda.h"

namespace tidemark::cuda {

// Start and devices.

struct cuInit_params {
  unsigned int Flags;
};
struct cuDriverGetVersion_params {
  int* driverVersion;
};
struct cuDeviceGet_params {
  CUdevice* device;
  int ordinal;
};
struct cuDeviceGetCount_params {
  int* count;
};
struct cuDeviceGetName_params {
  char* name;
  int len;
  CUdevice dev;
};
struct cuDeviceGetUuid_params {
  CUuuid* uuid;
  CUdevice dev;
};
struct cuDeviceGetUuid_v2_params {
  CUuuid* uuid;
  CUdevice dev;
};
struct cuDeviceTotalMem_v2_params {
  size_t* bytes;
  CUdevice dev;
};
struct cuDeviceGetAttribute_params {
  int* pi;
  CUdevice_attribute attrib;
  CUdevice dev;
};
struct cuDeviceGetPCIBusId_params {
  char* pciBusId;
  int len;
  CUdevice dev;
};
struct cuGetProcAddress_params {
  const char* symbol;
  void** pfn;
  int cudaVersion;
  cuuint64_t flags;
};
struct cuGetProcAddress_v2_params {
  const char* symbol;
  void** pfn;
  int cudaVersion;
  cuuint64_t flags;
  CUdriverProcAddressQueryResult* symbolStatus;
};

// Contexts.

struct cuCtxCreate_params {
  CUcontext* pctx;
  unsigned int flags;
  CUdevice dev;
};
struct cuCtxCreate_v2_params {
  CUcontext* pctx;
  unsigned int flags;
  CUdevice dev;
};
struct cuCtxCreate_v3_params {
  CUcontext* pctx;
  CUexecAffinityParam* paramsArray;
  int numParams;
  unsigned int flags;
  CUdevice dev;
};
struct cuCtxCreate_v4_params {
  CUcontext* pctx;
  CUctxCreateParams* ctxCreateParams;
  unsigned int flags;
  CUdevice dev;
};
struct cuCtxDestroy_params {
  CUcontext ctx;
};
struct cuCtxDestroy_v2_params {
  CUcontext ctx;
};
struct cuCtxSetCurrent_params {
  CUcontext ctx;
};
struct cuCtxGetCurrent_params {
  CUcontext* pctx;
};
struct cuCtxPushCurrent_v2_params {
  CUcontext ctx;
};
struct cuCtxPopCurrent_v2_params {
  CUcontext* pctx;
};
struct cuCtxGetDevice_params {
  CUdevice* device;
};
struct cuDevicePrimaryCtxRetain_params {
  CUcontext* pctx;
  CUdevice dev;
};
struct cuDevicePrimaryCtxRelease_params {
  CUdevice dev;
};
struct cuDevicePrimaryCtxRelease_v2_params {
  CUdevice dev;
};
struct cuDevicePrimaryCtxReset_params {
  CUdevice dev;
};
struct cuDevicePrimaryCtxReset_v2_params {
  CUdevice dev;
};
struct cuDevicePrimaryCtxGetState_params {
  CUdevice dev;
  unsigned int* flags;
  int* active;
};
struct cuGreenCtxCreate_params {
  CUgreenCtx* phCtx;
  CUdevResourceDesc desc;
  CUdevice dev;
  unsigned int flags;
};
struct cuGreenCtxDestroy_params {
  CUgreenCtx hCtx;
};

// Graphs.

struct cuGraphCreate_params {
  CUgraph* phGraph;
  unsigned int flags;
};
struct cuGraphDestroy_params {
  CUgraph hGraph;
};
struct cuGraphAddMemAllocNode_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  size_t numDependencies;
  CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams;
};
struct cuGraphAddMemFreeNode_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  size_t numDependencies;
  CUdeviceptr dptr;
};
struct cuGraphMemAllocNodeGetParams_params {
  CUgraphNode hNode;
  CUDA_MEM_ALLOC_NODE_PARAMS* params_out;
};
struct cuGraphAddNode_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  size_t numDependencies;
  CUgraphNodeParams* nodeParams;
};
struct cuGraphAddNode_v2_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* dependencyData;
  size_t numDependencies;
  CUgraphNodeParams* nodeParams;
};
struct cuGraphAddKernelNode_v2_params {
  CUgraphNode* phGraphNode;
  CUgraph hGraph;
  const CUgraphNode* dependencies;
  size_t numDependencies;
  const CUDA_KERNEL_NODE_PARAMS* nodeParams;
};
struct cuGraphInstantiate_params {
  CUgraphExec* phGraphExec;
  CUgraph hGraph;
  CUgraphNode* phErrorNode;
  char* logBuffer;
  size_t bufferSize;
};
struct cuGraphInstantiate_v2_params {
  CUgraphExec* phGraphExec;
  CUgraph hGraph;
  CUgraphNode* phErrorNode;
  char* logBuffer;
  size_t bufferSize;
};
struct cuGraphInstantiateWithFlags_params {
  CUgraphExec* phGraphExec;
  CUgraph hGraph;
  unsigned long long flags;
};
struct cuGraphInstantiateWithParams_params {
  CUgraphExec* phGraphExec;
  CUgraph hGraph;
  CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams;
};
using cuGraphInstantiateWithParams_ptsz_params = cuGraphInstantiateWithParams_params;
struct cuGraphUpload_params {
  CUgraphExec hGraph;
  CUstream hStream;
};
using cuGraphUpload_ptsz_params = cuGraphUpload_params;
struct cuGraphLaunch_params {
  CUgraphExec hGraph;
  CUstream hStream;
};
using cuGraphLaunch_ptsz_params = cuGraphLaunch_params;
struct cuGraphExecDestroy_params {
  CUgraphExec hGraphExec;
};
struct cuDeviceGraphMemTrim_params {
  CUdevice device;
};
struct cuDeviceGetGraphMemAttribute_params {
  CUdevice device;
  CUgraphMem_attribute attr;
  void* value;
};
struct cuDeviceSetGraphMemAttribute_params {
  CUdevice device;
  CUgraphMem_attribute attr;
  void* value;
};
struct cuStreamBeginCapture_v2_params {
  CUstream hStream;
  CUstreamCaptureMode mode;
};
using cuStreamBeginCapture_v2_ptsz_params = cuStreamBeginCapture_v2_params;
struct cuStreamEndCapture_params {
  CUstream hStream;
  CUgraph* phGraph;
};
using cuStreamEndCapture_ptsz_params = cuStreamEndCapture_params;

// Modules and libraries.

struct cuModuleLoad_params {
  CUmodule* module;
  const char* fname;
};
struct cuModuleLoadData_params {
  CUmodule* module;
  const void* image;
};
struct cuModuleLoadDataEx_params {
  CUmodule* module;
  const void* image;
  unsigned int numOptions;
  CUjit_option* options;
  void** optionValues;
};
struct cuModuleLoadFatBinary_params {
  CUmodule* module;
  const void* fatCubin;
};
struct cuModuleUnload_params {
  CUmodule hmod;
};
struct cuModuleGetFunction_params {
  CUfunction* hfunc;
  CUmodule hmod;
  const char* name;
};
struct cuLibraryLoadData_params {
  CUlibrary* library;
  const void* code;
  CUjit_option* jitOptions;
  void** jitOptionsValues;
  unsigned int numJitOptions;
  CUlibraryOption* libraryOptions;
  void** libraryOptionValues;
  unsigned int numLibraryOptions;
};
struct cuLibraryLoadFromFile_params {
  CUlibrary* library;
  const char* fileName;
  CUjit_option* jitOptions;
  void** jitOptionsValues;
  unsigned int numJitOptions;
  CUlibraryOption* libraryOptions;
  void** libraryOptionValues;
  unsigned int numLibraryOptions;
};
struct cuLibraryUnload_params {
  CUlibrary library;
};
struct cuLibraryGetKernel_params {
  CUkernel* pKernel;
  CUlibrary library;
  const char* name;
};
struct cuKernelGetFunction_params {
  CUfunction* pFunc;
  CUkernel kernel;
};

// Launches.

struct cuLaunchKernel_params {
  CUfunction f;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
  void** extra;
};
using cuLaunchKernel_ptsz_params = cuLaunchKernel_params;
struct cuLaunchKernelEx_params {
  const CUlaunchConfig* config;
  CUfunction f;
  void** kernelParams;
  void** extra;
};
using cuLaunchKernelEx_ptsz_params = cuLaunchKernelEx_params;
struct cuLaunchCooperativeKernel_params {
  CUfunction f;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
};
using cuLaunchCooperativeKernel_ptsz_params = cuLaunchCooperativeKernel_params;

// Copies.

struct cuMemcpyHtoD_v2_params {
  CUdeviceptr dstDevice;
  const void* srcHost;
  size_t ByteCount;
};
using cuMemcpyHtoD_v2_ptds_params = cuMemcpyHtoD_v2_params;
struct cuMemcpyDtoH_v2_params {
  void* dstHost;
  CUdeviceptr srcDevice;
  size_t ByteCount;
};
using cuMemcpyDtoH_v2_ptds_params = cuMemcpyDtoH_v2_params;
struct cuMemcpyDtoD_v2_params {
  CUdeviceptr dstDevice;
  CUdeviceptr srcDevice;
  size_t ByteCount;
};
using cuMemcpyDtoD_v2_ptds_params = cuMemcpyDtoD_v2_params;
struct cuMemcpyHtoDAsync_v2_params {
  CUdeviceptr dstDevice;
  const void* srcHost;
  size_t ByteCount;
  CUstream hStream;
};
using cuMemcpyHtoDAsync_v2_ptsz_params = cuMemcpyHtoDAsync_v2_params;
struct cuMemcpyDtoHAsync_v2_params {
  void* dstHost;
  CUdeviceptr srcDevice;
  size_t ByteCount;
  CUstream hStream;
};
using cuMemcpyDtoHAsync_v2_ptsz_params = cuMemcpyDtoHAsync_v2_params;
struct cuMemcpyDtoDAsync_v2_params {
  CUdeviceptr dstDevice;
  CUdeviceptr srcDevice;
  size_t ByteCount;
  CUstream hStream;
};
using cuMemcpyDtoDAsync_v2_ptsz_params = cuMemcpyDtoDAsync_v2_params;

// Fills.

struct cuMemsetD8_v2_params {
  CUdeviceptr dstDevice;
  unsigned char uc;
  size_t N;
};
using cuMemsetD8_v2_ptds_params = cuMemsetD8_v2_params;
struct cuMemsetD8Async_params {
  CUdeviceptr dstDevice;
  unsigned char uc;
  size_t N;
  CUstream hStream;
};
using cuMemsetD8Async_ptsz_params = cuMemsetD8Async_params;
struct cuMemsetD32Async_params {
  CUdeviceptr dstDevice;
  unsigned int ui;
  size_t N;
  CUstream hStream;
};
using cuMemsetD32Async_ptsz_params = cuMemsetD32Async_params;
struct cuStreamWriteValue32_v2_params {
  CUstream stream;
  CUdeviceptr addr;
  uint32_t value;
  unsigned int flags;
};
using cuStreamWriteValue32_params = cuStreamWriteValue32_v2_params;

// Streams.

struct cuStreamCreate_params {
  CUstream* phStream;
  unsigned int Flags;
};
struct cuStreamCreateWithPriority_params {
  CUstream* phStream;
  unsigned int flags;
  int priority;
};
struct cuStreamDestroy_v2_params {
  CUstream hStream;
};
struct cuStreamSynchronize_params {
  CUstream hStream;
};
using cuStreamSynchronize_ptsz_params = cuStreamSynchronize_params;
struct cuStreamQuery_params {
  CUstream hStream;
};
using cuStreamQuery_ptsz_params = cuStreamQuery_params;

// Errors.

struct cuGetErrorName_params {
  CUresult error;
  const char** pStr;
};
struct cuGetErrorString_params {
  CUresult error;
  const char** pStr;
};

}  // namespace tidemark::cuda
