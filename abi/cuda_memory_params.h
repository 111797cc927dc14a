// Parameters of driver functions that allocate and free memory (cuda_params.h).
#pragma once

#include "abi/cuda.h"

namespace tidemark::cuda {

// Device memory.

struct cuMemGetInfo_v2_params {
  size_t* free;
  size_t* total;
};
struct cuMemAlloc_params {
  CUdeviceptr_v1* dptr;
  unsigned int bytesize;
};
struct cuMemAlloc_v2_params {
  CUdeviceptr* dptr;
  size_t bytesize;
};
struct cuMemAllocPitch_params {
  CUdeviceptr_v1* dptr;
  unsigned int* pPitch;
  unsigned int WidthInBytes;
  unsigned int Height;
  unsigned int ElementSizeBytes;
};
struct cuMemAllocPitch_v2_params {
  CUdeviceptr* dptr;
  size_t* pPitch;
  size_t WidthInBytes;
  size_t Height;
  unsigned int ElementSizeBytes;
};
struct cuMemAllocManaged_params {
  CUdeviceptr* dptr;
  size_t bytesize;
  unsigned int flags;
};
struct cuMemFree_params {
  CUdeviceptr_v1 dptr;
};
struct cuMemFree_v2_params {
  CUdeviceptr dptr;
};
struct cuMemGetAddressRange_v2_params {
  CUdeviceptr* pbase;
  size_t* psize;
  CUdeviceptr dptr;
};
struct cuPointerGetAttribute_params {
  void* data;
  CUpointer_attribute attribute;
  CUdeviceptr ptr;
};

// Stream-ordered memory.

struct cuMemAllocAsync_params {
  CUdeviceptr* dptr;
  size_t bytesize;
  CUstream hStream;
};
using cuMemAllocAsync_ptsz_params = cuMemAllocAsync_params;
struct cuMemAllocFromPoolAsync_params {
  CUdeviceptr* dptr;
  size_t bytesize;
  CUmemoryPool pool;
  CUstream hStream;
};
using cuMemAllocFromPoolAsync_ptsz_params = cuMemAllocFromPoolAsync_params;
struct cuMemFreeAsync_params {
  CUdeviceptr dptr;
  CUstream hStream;
};
using cuMemFreeAsync_ptsz_params = cuMemFreeAsync_params;

// Pools.

struct cuMemPoolCreate_params {
  CUmemoryPool* pool;
  const CUmemPoolProps* poolProps;
};
struct cuMemPoolDestroy_params {
  CUmemoryPool pool;
};
struct cuMemPoolTrimTo_params {
  CUmemoryPool pool;
  size_t minBytesToKeep;
};
struct cuMemPoolSetAttribute_params {
  CUmemoryPool pool;
  CUmemPool_attribute attr;
  void* value;
};
struct cuMemPoolGetAttribute_params {
  CUmemoryPool pool;
  CUmemPool_attribute attr;
  void* value;
};
struct cuMemPoolSetAccess_params {
  CUmemoryPool pool;
  const CUmemAccessDesc* map;
  size_t count;
};
struct cuMemPoolGetAccess_params {
  CUmemAccess_flags* flags;
  CUmemoryPool memPool;
  CUmemLocation* location;
};
struct cuMemPoolExportToShareableHandle_params {
  void* handle_out;
  CUmemoryPool pool;
  CUmemAllocationHandleType handleType;
  unsigned long long flags;
};
struct cuMemPoolImportFromShareableHandle_params {
  CUmemoryPool* pool_out;
  void* handle;
  CUmemAllocationHandleType handleType;
  unsigned long long flags;
};
struct cuMemPoolExportPointer_params {
  CUmemPoolPtrExportData* shareData_out;
  CUdeviceptr ptr;
};
struct cuMemPoolImportPointer_params {
  CUdeviceptr* ptr_out;
  CUmemoryPool pool;
  CUmemPoolPtrExportData* shareData;
};
struct cuDeviceGetDefaultMemPool_params {
  CUmemoryPool* pool_out;
  CUdevice dev;
};
struct cuDeviceSetMemPool_params {
  CUdevice dev;
  CUmemoryPool pool;
};
struct cuDeviceGetMemPool_params {
  CUmemoryPool* pool;
  CUdevice dev;
};
struct cuMemGetDefaultMemPool_params {
  CUmemoryPool* pool_out;
  CUmemLocation* location;
  CUmemAllocationType type;
};
struct cuMemGetMemPool_params {
  CUmemoryPool* pool;
  CUmemLocation* location;
  CUmemAllocationType type;
};
struct cuMemSetMemPool_params {
  CUmemLocation* location;
  CUmemAllocationType type;
  CUmemoryPool pool;
};

// Virtual memory management.

struct cuMemGetAllocationGranularity_params {
  size_t* granularity;
  const CUmemAllocationProp* prop;
  CUmemAllocationGranularity_flags option;
};
struct cuMemCreate_params {
  CUmemGenericAllocationHandle* handle;
  size_t size;
  const CUmemAllocationProp* prop;
  unsigned long long flags;
};
struct cuMemRelease_params {
  CUmemGenericAllocationHandle handle;
};
struct cuMemRetainAllocationHandle_params {
  CUmemGenericAllocationHandle* handle;
  void* addr;
};
struct cuMemExportToShareableHandle_params {
  void* shareableHandle;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationHandleType handleType;
  unsigned long long flags;
};
struct cuMemImportFromShareableHandle_params {
  CUmemGenericAllocationHandle* handle;
  void* osHandle;
  CUmemAllocationHandleType shHandleType;
};
struct cuMemGetAllocationPropertiesFromHandle_params {
  CUmemAllocationProp* prop;
  CUmemGenericAllocationHandle handle;
};
struct cuMemAddressReserve_params {
  CUdeviceptr* ptr;
  size_t size;
  size_t alignment;
  CUdeviceptr addr;
  unsigned long long flags;
};
struct cuMemAddressFree_params {
  CUdeviceptr ptr;
  size_t size;
};
struct cuMemMap_params {
  CUdeviceptr ptr;
  size_t size;
  size_t offset;
  CUmemGenericAllocationHandle handle;
  unsigned long long flags;
};
struct cuMemUnmap_params {
  CUdeviceptr ptr;
  size_t size;
};
struct cuMemSetAccess_params {
  CUdeviceptr ptr;
  size_t size;
  const CUmemAccessDesc* desc;
  size_t count;
};
struct cuMemGetAccess_params {
  unsigned long long* flags;
  const CUmemLocation* location;
  CUdeviceptr ptr;
};
struct cuMemMapArrayAsync_params {
  CUarrayMapInfo* mapInfoList;
  unsigned int count;
  CUstream hStream;
};
using cuMemMapArrayAsync_ptsz_params = cuMemMapArrayAsync_params;

// Multicast objects.

struct cuMulticastCreate_params {
  CUmemGenericAllocationHandle* mcHandle;
  const CUmulticastObjectProp* prop;
};
struct cuMulticastAddDevice_params {
  CUmemGenericAllocationHandle mcHandle;
  CUdevice dev;
};
struct cuMulticastBindMem_params {
  CUmemGenericAllocationHandle mcHandle;
  size_t mcOffset;
  CUmemGenericAllocationHandle memHandle;
  size_t memOffset;
  size_t size;
  unsigned long long flags;
};
struct cuMulticastBindAddr_params {
  CUmemGenericAllocationHandle mcHandle;
  size_t mcOffset;
  CUdeviceptr memptr;
  size_t size;
  unsigned long long flags;
};
struct cuMulticastUnbind_params {
  CUmemGenericAllocationHandle mcHandle;
  CUdevice dev;
  size_t mcOffset;
  size_t size;
};
struct cuMulticastGetGranularity_params {
  size_t* granularity;
  const CUmulticastObjectProp* prop;
  CUmulticastGranularity_flags option;
};

// Host memory.

struct cuMemAllocHost_params {
  void** pp;
  unsigned int bytesize;
};
struct cuMemAllocHost_v2_params {
  void** pp;
  size_t bytesize;
};
struct cuMemHostAlloc_params {
  void** pp;
  size_t bytesize;
  unsigned int Flags;
};
using cuMemHostAlloc_v2_params = cuMemHostAlloc_params;
struct cuMemFreeHost_params {
  void* p;
};
struct cuMemHostRegister_params {
  void* p;
  size_t bytesize;
  unsigned int Flags;
};
struct cuMemHostRegister_v2_params {
  void* p;
  size_t bytesize;
  unsigned int Flags;
};
struct cuMemHostUnregister_params {
  void* p;
};
struct cuMemHostGetDevicePointer_params {
  CUdeviceptr_v1* pdptr;
  void* p;
  unsigned int Flags;
};
struct cuMemHostGetDevicePointer_v2_params {
  CUdeviceptr* pdptr;
  void* p;
  unsigned int Flags;
};

// Memory of other processes.

struct cuIpcGetMemHandle_params {
  CUipcMemHandle* pHandle;
  CUdeviceptr dptr;
};
struct cuIpcOpenMemHandle_params {
  CUdeviceptr* pdptr;
  CUipcMemHandle handle;
  unsigned int Flags;
};
struct cuIpcOpenMemHandle_v2_params {
  CUdeviceptr* pdptr;
  CUipcMemHandle handle;
  unsigned int Flags;
};
struct cuIpcCloseMemHandle_params {
  CUdeviceptr dptr;
};

// Arrays.

struct cuArrayCreate_params {
  CUarray* pHandle;
  const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray;
};
struct cuArrayCreate_v2_params {
  CUarray* pHandle;
  const CUDA_ARRAY_DESCRIPTOR* pAllocateArray;
};
struct cuArray3DCreate_params {
  CUarray* pHandle;
  const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray;
};
struct cuArray3DCreate_v2_params {
  CUarray* pHandle;
  const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray;
};
struct cuArrayDestroy_params {
  CUarray hArray;
};
struct cuMipmappedArrayCreate_params {
  CUmipmappedArray* pHandle;
  const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc;
  unsigned int numMipmapLevels;
};
struct cuMipmappedArrayDestroy_params {
  CUmipmappedArray hMipmappedArray;
};
struct cuArrayGetDescriptor_v2_params {
  CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor;
  CUarray hArray;
};
struct cuArrayGetMemoryRequirements_params {
  CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements;
  CUarray array;
  CUdevice device;
};

// External memory.

struct cuImportExternalMemory_params {
  CUexternalMemory* extMem_out;
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc;
};
struct cuExternalMemoryGetMappedBuffer_params {
  CUdeviceptr* devPtr;
  CUexternalMemory extMem;
  const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc;
};
struct cuExternalMemoryGetMappedMipmappedArray_params {
  CUmipmappedArray* mipmap;
  CUexternalMemory extMem;
  const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* mipmapDesc;
};
struct cuDestroyExternalMemory_params {
  CUexternalMemory extMem;
};

}  // namespace tidemark::cuda
