// Types of the driver functions that tidemark or its samples call, found by dlsym or
// cuGetProcAddress, named <function>_fn. The `_ptsz` and `_ptds` variants have the same types.
#pragma once

#include "abi/cuda.h"

namespace tidemark::cuda {

// Start and devices.
using cuInit_fn = CUresult (*)(unsigned int Flags);
using cuDriverGetVersion_fn = CUresult (*)(int* driverVersion);
using cuDeviceGet_fn = CUresult (*)(CUdevice* device, int ordinal);
using cuDeviceGetCount_fn = CUresult (*)(int* count);
using cuDeviceGetName_fn = CUresult (*)(char* name, int len, CUdevice dev);
using cuDeviceGetUuid_fn = CUresult (*)(CUuuid* uuid, CUdevice dev);
using cuDeviceGetUuid_v2_fn = CUresult (*)(CUuuid* uuid, CUdevice dev);
using cuDeviceTotalMem_v2_fn = CUresult (*)(size_t* bytes, CUdevice dev);
using cuDeviceGetAttribute_fn = CUresult (*)(int* pi, CUdevice_attribute attrib, CUdevice dev);
using cuDeviceGetPCIBusId_fn = CUresult (*)(char* pciBusId, int len, CUdevice dev);
using cuGetProcAddress_v2_fn = CUresult (*)(const char* symbol, void** pfn, int cudaVersion,
                                            cuuint64_t flags,
                                            CUdriverProcAddressQueryResult* symbolStatus);

// Device memory.
using cuMemGetInfo_v2_fn = CUresult (*)(size_t* free, size_t* total);
using cuMemAlloc_v2_fn = CUresult (*)(CUdeviceptr* dptr, size_t bytesize);
using cuMemAllocPitch_v2_fn = CUresult (*)(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                           size_t Height, unsigned int ElementSizeBytes);
using cuMemAllocManaged_fn = CUresult (*)(CUdeviceptr* dptr, size_t bytesize, unsigned int flags);
using cuMemFree_v2_fn = CUresult (*)(CUdeviceptr dptr);
using cuMemGetAddressRange_v2_fn = CUresult (*)(CUdeviceptr* pbase, size_t* psize,
                                                CUdeviceptr dptr);
using cuPointerGetAttribute_fn = CUresult (*)(void* data, CUpointer_attribute attribute,
                                              CUdeviceptr ptr);

// Stream-ordered memory.
using cuMemAllocAsync_fn = CUresult (*)(CUdeviceptr* dptr, size_t bytesize, CUstream hStream);
using cuMemAllocFromPoolAsync_fn = CUresult (*)(CUdeviceptr* dptr, size_t bytesize,
                                                CUmemoryPool pool, CUstream hStream);
using cuMemFreeAsync_fn = CUresult (*)(CUdeviceptr dptr, CUstream hStream);

// Pools.
using cuMemPoolCreate_fn = CUresult (*)(CUmemoryPool* pool, const CUmemPoolProps* poolProps);
using cuMemPoolDestroy_fn = CUresult (*)(CUmemoryPool pool);
using cuMemPoolTrimTo_fn = CUresult (*)(CUmemoryPool pool, size_t minBytesToKeep);
using cuMemPoolSetAttribute_fn = CUresult (*)(CUmemoryPool pool, CUmemPool_attribute attr,
                                              void* value);
using cuMemPoolGetAttribute_fn = CUresult (*)(CUmemoryPool pool, CUmemPool_attribute attr,
                                              void* value);
using cuMemPoolSetAccess_fn = CUresult (*)(CUmemoryPool pool, const CUmemAccessDesc* map,
                                           size_t count);
using cuMemPoolGetAccess_fn = CUresult (*)(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                           CUmemLocation* location);
using cuMemPoolExportToShareableHandle_fn = CUresult (*)(void* handle_out, CUmemoryPool pool,
                                                         CUmemAllocationHandleType handleType,
                                                         unsigned long long flags);
using cuMemPoolImportFromShareableHandle_fn = CUresult (*)(CUmemoryPool* pool_out, void* handle,
                                                           CUmemAllocationHandleType handleType,
                                                           unsigned long long flags);
using cuMemPoolExportPointer_fn = CUresult (*)(CUmemPoolPtrExportData* shareData_out,
                                               CUdeviceptr ptr);
using cuMemPoolImportPointer_fn = CUresult (*)(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                               CUmemPoolPtrExportData* shareData);
using cuDeviceGetDefaultMemPool_fn = CUresult (*)(CUmemoryPool* pool_out, CUdevice dev);
using cuDeviceSetMemPool_fn = CUresult (*)(CUdevice dev, CUmemoryPool pool);
using cuDeviceGetMemPool_fn = CUresult (*)(CUmemoryPool* pool, CUdevice dev);
using cuMemGetDefaultMemPool_fn = CUresult (*)(CUmemoryPool* pool_out, CUmemLocation* location,
                                               CUmemAllocationType type);
using cuMemGetMemPool_fn = CUresult (*)(CUmemoryPool* pool, CUmemLocation* location,
                                        CUmemAllocationType type);
using cuMemSetMemPool_fn = CUresult (*)(CUmemLocation* location, CUmemAllocationType type,
                                        CUmemoryPool pool);

// Virtual memory management.
using cuMemGetAllocationGranularity_fn = CUresult (*)(size_t* granularity,
                                                      const CUmemAllocationProp* prop,
                                                      CUmemAllocationGranularity_flags option);
using cuMemCreate_fn = CUresult (*)(CUmemGenericAllocationHandle* handle, size_t size,
                                    const CUmemAllocationProp* prop, unsigned long long flags);
using cuMemRelease_fn = CUresult (*)(CUmemGenericAllocationHandle handle);
using cuMemRetainAllocationHandle_fn = CUresult (*)(CUmemGenericAllocationHandle* handle,
                                                    void* addr);
using cuMemExportToShareableHandle_fn = CUresult (*)(void* shareableHandle,
                                                     CUmemGenericAllocationHandle handle,
                                                     CUmemAllocationHandleType handleType,
                                                     unsigned long long flags);
using cuMemImportFromShareableHandle_fn = CUresult (*)(CUmemGenericAllocationHandle* handle,
                                                       void* osHandle,
                                                       CUmemAllocationHandleType shHandleType);
using cuMemGetAllocationPropertiesFromHandle_fn = CUresult (*)(CUmemAllocationProp* prop,
                                                               CUmemGenericAllocationHandle handle);
using cuMemAddressReserve_fn = CUresult (*)(CUdeviceptr* ptr, size_t size, size_t alignment,
                                            CUdeviceptr addr, unsigned long long flags);
using cuMemAddressFree_fn = CUresult (*)(CUdeviceptr ptr, size_t size);
using cuMemMap_fn = CUresult (*)(CUdeviceptr ptr, size_t size, size_t offset,
                                 CUmemGenericAllocationHandle handle, unsigned long long flags);
using cuMemUnmap_fn = CUresult (*)(CUdeviceptr ptr, size_t size);
using cuMemSetAccess_fn = CUresult (*)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                                       size_t count);
using cuMemGetAccess_fn = CUresult (*)(unsigned long long* flags, const CUmemLocation* location,
                                       CUdeviceptr ptr);
using cuMemMapArrayAsync_fn = CUresult (*)(CUarrayMapInfo* mapInfoList, unsigned int count,
                                           CUstream hStream);

// Multicast objects.
using cuMulticastCreate_fn = CUresult (*)(CUmemGenericAllocationHandle* mcHandle,
                                          const CUmulticastObjectProp* prop);
using cuMulticastAddDevice_fn = CUresult (*)(CUmemGenericAllocationHandle mcHandle, CUdevice dev);
using cuMulticastBindMem_fn = CUresult (*)(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                           CUmemGenericAllocationHandle memHandle, size_t memOffset,
                                           size_t size, unsigned long long flags);
using cuMulticastBindAddr_fn = CUresult (*)(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                            CUdeviceptr memptr, size_t size,
                                            unsigned long long flags);
using cuMulticastUnbind_fn = CUresult (*)(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                          size_t mcOffset, size_t size);
using cuMulticastGetGranularity_fn = CUresult (*)(size_t* granularity,
                                                  const CUmulticastObjectProp* prop,
                                                  CUmulticastGranularity_flags option);

// Host memory.
using cuMemAllocHost_v2_fn = CUresult (*)(void** pp, size_t bytesize);
using cuMemHostAlloc_fn = CUresult (*)(void** pp, size_t bytesize, unsigned int Flags);
using cuMemFreeHost_fn = CUresult (*)(void* p);
using cuMemHostRegister_fn = CUresult (*)(void* p, size_t bytesize, unsigned int Flags);
using cuMemHostRegister_v2_fn = CUresult (*)(void* p, size_t bytesize, unsigned int Flags);
using cuMemHostUnregister_fn = CUresult (*)(void* p);
using cuMemHostGetDevicePointer_v2_fn = CUresult (*)(CUdeviceptr* pdptr, void* p,
                                                     unsigned int Flags);

// Memory of other processes.
using cuIpcGetMemHandle_fn = CUresult (*)(CUipcMemHandle* pHandle, CUdeviceptr dptr);
using cuIpcOpenMemHandle_fn = CUresult (*)(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                           unsigned int Flags);
using cuIpcOpenMemHandle_v2_fn = CUresult (*)(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                              unsigned int Flags);
using cuIpcCloseMemHandle_fn = CUresult (*)(CUdeviceptr dptr);

// Contexts.
using cuCtxCreate_v2_fn = CUresult (*)(CUcontext* pctx, unsigned int flags, CUdevice dev);
using cuCtxCreate_v3_fn = CUresult (*)(CUcontext* pctx, CUexecAffinityParam* paramsArray,
                                       int numParams, unsigned int flags, CUdevice dev);
using cuCtxCreate_v4_fn = CUresult (*)(CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                                       unsigned int flags, CUdevice dev);
using cuCtxDestroy_v2_fn = CUresult (*)(CUcontext ctx);
using cuCtxSetCurrent_fn = CUresult (*)(CUcontext ctx);
using cuCtxGetCurrent_fn = CUresult (*)(CUcontext* pctx);
using cuCtxPushCurrent_v2_fn = CUresult (*)(CUcontext ctx);
using cuCtxPopCurrent_v2_fn = CUresult (*)(CUcontext* pctx);
using cuCtxGetDevice_fn = CUresult (*)(CUdevice* device);
using cuCtxSynchronize_fn = CUresult (*)();
using cuDevicePrimaryCtxRetain_fn = CUresult (*)(CUcontext* pctx, CUdevice dev);
using cuDevicePrimaryCtxRelease_fn = CUresult (*)(CUdevice dev);
using cuDevicePrimaryCtxRelease_v2_fn = CUresult (*)(CUdevice dev);
using cuDevicePrimaryCtxReset_fn = CUresult (*)(CUdevice dev);
using cuDevicePrimaryCtxReset_v2_fn = CUresult (*)(CUdevice dev);
using cuDevicePrimaryCtxGetState_fn = CUresult (*)(CUdevice dev, unsigned int* flags, int* active);
using cuGreenCtxCreate_fn = CUresult (*)(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                         unsigned int flags);
using cuGreenCtxDestroy_fn = CUresult (*)(CUgreenCtx hCtx);

// Arrays.
using cuArrayCreate_v2_fn = CUresult (*)(CUarray* pHandle,
                                         const CUDA_ARRAY_DESCRIPTOR* pAllocateArray);
using cuArray3DCreate_v2_fn = CUresult (*)(CUarray* pHandle,
                                           const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray);
using cuArrayDestroy_fn = CUresult (*)(CUarray hArray);
using cuMipmappedArrayCreate_fn = CUresult (*)(CUmipmappedArray* pHandle,
                                               const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                               unsigned int numMipmapLevels);
using cuMipmappedArrayDestroy_fn = CUresult (*)(CUmipmappedArray hMipmappedArray);
using cuArrayGetDescriptor_v2_fn = CUresult (*)(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor,
                                                CUarray hArray);
using cuArrayGetMemoryRequirements_fn = CUresult (*)(
    CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements, CUarray array, CUdevice device);

// External memory.
using cuImportExternalMemory_fn = CUresult (*)(
    CUexternalMemory* extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc);
using cuExternalMemoryGetMappedBuffer_fn =
    CUresult (*)(CUdeviceptr* devPtr, CUexternalMemory extMem,
                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc);
using cuExternalMemoryGetMappedMipmappedArray_fn =
    CUresult (*)(CUmipmappedArray* mipmap, CUexternalMemory extMem,
                 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* mipmapDesc);
using cuDestroyExternalMemory_fn = CUresult (*)(CUexternalMemory extMem);

// Graphs.
using cuGraphCreate_fn = CUresult (*)(CUgraph* phGraph, unsigned int flags);
using cuGraphDestroy_fn = CUresult (*)(CUgraph hGraph);
using cuGraphAddMemAllocNode_fn = CUresult (*)(CUgraphNode* phGraphNode, CUgraph hGraph,
                                               const CUgraphNode* dependencies,
                                               size_t numDependencies,
                                               CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams);
using cuGraphAddMemFreeNode_fn = CUresult (*)(CUgraphNode* phGraphNode, CUgraph hGraph,
                                              const CUgraphNode* dependencies,
                                              size_t numDependencies, CUdeviceptr dptr);
using cuGraphMemAllocNodeGetParams_fn = CUresult (*)(CUgraphNode hNode,
                                                     CUDA_MEM_ALLOC_NODE_PARAMS* params_out);
using cuGraphAddNode_fn = CUresult (*)(CUgraphNode* phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       CUgraphNodeParams* nodeParams);
using cuGraphAddNode_v2_fn = CUresult (*)(CUgraphNode* phGraphNode, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUgraphNodeParams* nodeParams);
using cuGraphAddKernelNode_v2_fn = CUresult (*)(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                const CUgraphNode* dependencies,
                                                size_t numDependencies,
                                                const CUDA_KERNEL_NODE_PARAMS* nodeParams);
using cuGraphInstantiate_v2_fn = CUresult (*)(CUgraphExec* phGraphExec, CUgraph hGraph,
                                              CUgraphNode* phErrorNode, char* logBuffer,
                                              size_t bufferSize);
using cuGraphInstantiateWithFlags_fn = CUresult (*)(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                    unsigned long long flags);
using cuGraphInstantiateWithParams_fn = CUresult (*)(
    CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams);
using cuGraphUpload_fn = CUresult (*)(CUgraphExec hGraph, CUstream hStream);
using cuGraphLaunch_fn = CUresult (*)(CUgraphExec hGraph, CUstream hStream);
using cuGraphExecDestroy_fn = CUresult (*)(CUgraphExec hGraphExec);
using cuDeviceGraphMemTrim_fn = CUresult (*)(CUdevice device);
using cuDeviceGetGraphMemAttribute_fn = CUresult (*)(CUdevice device, CUgraphMem_attribute attr,
                                                     void* value);
using cuDeviceSetGraphMemAttribute_fn = CUresult (*)(CUdevice device, CUgraphMem_attribute attr,
                                                     void* value);
using cuStreamBeginCapture_v2_fn = CUresult (*)(CUstream hStream, CUstreamCaptureMode mode);
using cuStreamEndCapture_fn = CUresult (*)(CUstream hStream, CUgraph* phGraph);

// Modules and libraries.
using cuModuleLoad_fn = CUresult (*)(CUmodule* module, const char* fname);
using cuModuleLoadData_fn = CUresult (*)(CUmodule* module, const void* image);
using cuModuleLoadDataEx_fn = CUresult (*)(CUmodule* module, const void* image,
                                           unsigned int numOptions, CUjit_option* options,
                                           void** optionValues);
using cuModuleLoadFatBinary_fn = CUresult (*)(CUmodule* module, const void* fatCubin);
using cuModuleUnload_fn = CUresult (*)(CUmodule hmod);
using cuModuleGetFunction_fn = CUresult (*)(CUfunction* hfunc, CUmodule hmod, const char* name);
using cuLibraryLoadData_fn = CUresult (*)(CUlibrary* library, const void* code,
                                          CUjit_option* jitOptions, void** jitOptionsValues,
                                          unsigned int numJitOptions,
                                          CUlibraryOption* libraryOptions,
                                          void** libraryOptionValues,
                                          unsigned int numLibraryOptions);
using cuLibraryLoadFromFile_fn = CUresult (*)(CUlibrary* library, const char* fileName,
                                              CUjit_option* jitOptions, void** jitOptionsValues,
                                              unsigned int numJitOptions,
                                              CUlibraryOption* libraryOptions,
                                              void** libraryOptionValues,
                                              unsigned int numLibraryOptions);
using cuLibraryUnload_fn = CUresult (*)(CUlibrary library);
using cuLibraryGetKernel_fn = CUresult (*)(CUkernel* pKernel, CUlibrary library, const char* name);
using cuKernelGetFunction_fn = CUresult (*)(CUfunction* pFunc, CUkernel kernel);

// Launches.
using cuLaunchKernel_fn = CUresult (*)(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX,
                                       unsigned int blockDimY, unsigned int blockDimZ,
                                       unsigned int sharedMemBytes, CUstream hStream,
                                       void** kernelParams, void** extra);
using cuLaunchKernelEx_fn = CUresult (*)(const CUlaunchConfig* config, CUfunction f,
                                         void** kernelParams, void** extra);
using cuLaunchCooperativeKernel_fn = CUresult (*)(CUfunction f, unsigned int gridDimX,
                                                  unsigned int gridDimY, unsigned int gridDimZ,
                                                  unsigned int blockDimX, unsigned int blockDimY,
                                                  unsigned int blockDimZ,
                                                  unsigned int sharedMemBytes, CUstream hStream,
                                                  void** kernelParams);

// Copies.
using cuMemcpyHtoD_v2_fn = CUresult (*)(CUdeviceptr dstDevice, const void* srcHost,
                                        size_t ByteCount);
using cuMemcpyDtoH_v2_fn = CUresult (*)(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount);
using cuMemcpyDtoD_v2_fn = CUresult (*)(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                        size_t ByteCount);
using cuMemcpyHtoDAsync_v2_fn = CUresult (*)(CUdeviceptr dstDevice, const void* srcHost,
                                             size_t ByteCount, CUstream hStream);
using cuMemcpyDtoHAsync_v2_fn = CUresult (*)(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                             CUstream hStream);
using cuMemcpyDtoDAsync_v2_fn = CUresult (*)(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                             size_t ByteCount, CUstream hStream);

// Fills.
using cuMemsetD8_v2_fn = CUresult (*)(CUdeviceptr dstDevice, unsigned char uc, size_t N);
using cuMemsetD8Async_fn = CUresult (*)(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                        CUstream hStream);
using cuMemsetD32Async_fn = CUresult (*)(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                         CUstream hStream);
using cuStreamWriteValue32_v2_fn = CUresult (*)(CUstream stream, CUdeviceptr addr, uint32_t value,
                                                unsigned int flags);

// Streams.
using cuStreamCreate_fn = CUresult (*)(CUstream* phStream, unsigned int Flags);
using cuStreamCreateWithPriority_fn = CUresult (*)(CUstream* phStream, unsigned int flags,
                                                   int priority);
using cuStreamDestroy_v2_fn = CUresult (*)(CUstream hStream);
using cuStreamSynchronize_fn = CUresult (*)(CUstream hStream);
using cuStreamQuery_fn = CUresult (*)(CUstream hStream);

// Errors.
using cuGetErrorName_fn = CUresult (*)(CUresult error, const char** pStr);
using cuGetErrorString_fn = CUresult (*)(CUresult error, const char** pStr);

}  // namespace tidemark::cuda
