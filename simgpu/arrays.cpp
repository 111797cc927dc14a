// Arrays and mipmapped arrays: device memory without an address visible to programs.
#include <algorithm>
#include <optional>

#include "simgpu/call.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

constexpr unsigned int kMaxLevels = 18;

// Bytes per channel of an element; formats without channels are not simulated.
std::optional<uint64_t> channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return std::nullopt;
  }
}

uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR& d, uint64_t element, unsigned int level) {
  const bool layered = (d.Flags & kArray3DLayered) != 0;
  const auto shrink = [&](size_t n) { return std::max<uint64_t>(n >> level, 1); };
  const uint64_t depth = layered ? std::max<uint64_t>(d.Depth, 1) : shrink(d.Depth);
  return shrink(d.Width) * shrink(d.Height) * depth * element;
}

CUresult create(Driver& driver, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& d,
                unsigned int levels, Array** out) {
  const std::optional<uint64_t> channel = channel_bytes(d.Format);
  const bool channels = d.NumChannels == 1 || d.NumChannels == 2 || d.NumChannels == 4;
  if (!channel || !channels || d.Width == 0 || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr size_t kMaxSide = 1 << 17;
  if (d.Width > kMaxSide || d.Height > kMaxSide || d.Depth > kMaxSide) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  levels = std::min(levels, kMaxLevels);
  uint64_t bytes = 0;
  for (unsigned int level = 0; level < levels; ++level) {
    bytes += level_bytes(d, *channel * d.NumChannels, level);
  }
  const uint64_t charged = round_up(bytes, kAllocationAlignment);
  if (!driver.take(driver.device_of(context), charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = driver.arrays.add({bytes, charged, context.device, &context, d, levels});
  return CUDA_SUCCESS;
}

// One record per level, as CUPTI 13.0 does.
void tell_memory(bool allocation, const Array& array) {
  MemoryEvent event{};
  event.allocation = allocation;
  event.kind = cupti::CUPTI_ACTIVITY_MEMORY_KIND_ARRAY;
  event.address = reinterpret_cast<uint64_t>(&array);
  event.device = static_cast<uint32_t>(array.device);
  event.context_id = array.context->id;
  event.stream_id = cupti::kInvalidStreamId;
  event.time_ns = now_ns();
  event.correlation = current_correlation();
  const CUDA_ARRAY3D_DESCRIPTOR& d = array.descriptor;
  const uint64_t element = channel_bytes(d.Format).value_or(0) * d.NumChannels;
  for (unsigned int level = 0; element != 0 && level < array.levels; ++level) {
    event.bytes = level_bytes(d, element, level);
    post(event);
    event.address += event.bytes;
  }
}

template <typename Handle>
CUresult create_as(Driver& driver, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& d,
                   unsigned int levels, Handle* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Array* array = nullptr;
  const CUresult result = create(driver, context, d, levels, &array);
  if (result != CUDA_SUCCESS) return result;
  tell_memory(true, *array);
  *out = reinterpret_cast<Handle>(array);
  return CUDA_SUCCESS;
}

CUresult destroy(Driver& driver, const void* handle) {
  const Array* array = driver.arrays.find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  driver.device(array->device)->card.give(array->charged_bytes);
  tell_memory(false, *array);
  driver.arrays.erase(handle);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuArrayCreate_v2(CUarray* pHandle,
                                        const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  return SIMGPU_CALL(cuArrayCreate_v2, pHandle, pAllocateArray)
      .run_in_context([&](Driver& driver, Context& context) {
        if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUDA_ARRAY3D_DESCRIPTOR d{pAllocateArray->Width,  pAllocateArray->Height,      0,
                                        pAllocateArray->Format, pAllocateArray->NumChannels, 0};
        return create_as(driver, context, d, 1, pHandle);
      });
}

SIMGPU_EXPORT CUresult cuArray3DCreate_v2(CUarray* pHandle,
                                          const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return SIMGPU_CALL(cuArray3DCreate_v2, pHandle, pAllocateArray)
      .run_in_context([&](Driver& driver, Context& context) {
        if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return create_as(driver, context, *pAllocateArray, 1, pHandle);
      });
}

SIMGPU_EXPORT CUresult cuArrayDestroy(CUarray hArray) {
  return SIMGPU_CALL(cuArrayDestroy, hArray).run_in_context([&](Driver& driver, Context&) {
    return destroy(driver, hArray);
  });
}

SIMGPU_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                              const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                              unsigned int numMipmapLevels) {
  return SIMGPU_CALL(cuMipmappedArrayCreate, pHandle, pMipmappedArrayDesc, numMipmapLevels)
      .run_in_context([&](Driver& driver, Context& context) {
        if (pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return create_as(driver, context, *pMipmappedArrayDesc, numMipmapLevels, pHandle);
      });
}

SIMGPU_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return SIMGPU_CALL(cuMipmappedArrayDestroy, hMipmappedArray)
      .run_in_context([&](Driver& driver, Context&) { return destroy(driver, hMipmappedArray); });
}

SIMGPU_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor,
                                               CUarray hArray) {
  return SIMGPU_CALL(cuArrayGetDescriptor_v2, pArrayDescriptor, hArray)
      .run_in_context([&](Driver& driver, Context&) {
        const Array* array = driver.arrays.find(hArray);
        if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
        *pArrayDescriptor = {d.Width, d.Height, d.Format, d.NumChannels};
        return CUDA_SUCCESS;
      });
}

SIMGPU_EXPORT CUresult cuArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements, CUarray array, CUdevice device) {
  return SIMGPU_CALL(cuArrayGetMemoryRequirements, memoryRequirements, array, device)
      .run_in_context([&](Driver& driver, Context&) {
        const Array* found = driver.arrays.find(array);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (memoryRequirements == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *memoryRequirements = {found->charged_bytes, kAllocationAlignment, {}};
        return CUDA_SUCCESS;
      });
}

}  // namespace tidemark::simgpu
