// Computes the size of CUDA arrays. No driver call returns it without side effects, and a callback
// must not make calls anyway.
#include <algorithm>

#include "injector/driver/events.h"

namespace tidemark::injector {
namespace {

using namespace cuda;

// Bytes of one texel with all its channels; 0: unknown.
uint64_t texel_bytes(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return uint64_t{2} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return uint64_t{4} * channels;
    case CU_AD_FORMAT_UNORM_INT_101010_2:
      return 4;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
      return 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
      return 2;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
      return 4;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 8;
    default:
      return 0;
  }
}

bool is_block_compressed(CUarray_format format) {
  return format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
}

// Bytes per block of 4 x 4 texels: BC1 and BC4 use one 64-bit word, the others two.
uint64_t compressed_block_bytes(CUarray_format format) {
  const bool small = format == CU_AD_FORMAT_BC1_UNORM || format == CU_AD_FORMAT_BC1_UNORM_SRGB ||
                     format == CU_AD_FORMAT_BC4_UNORM || format == CU_AD_FORMAT_BC4_SNORM;
  return small ? 8 : 16;
}

uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const uint64_t width = std::max<uint64_t>(d.Width, 1);
  const uint64_t height = std::max<uint64_t>(d.Height, 1);
  const uint64_t depth = std::max<uint64_t>(d.Depth, 1);
  if (is_block_compressed(d.Format)) {
    return (width + 3) / 4 * ((height + 3) / 4) * depth * compressed_block_bytes(d.Format);
  }
  if (d.Format == CU_AD_FORMAT_NV12) return width * height * depth * 3 / 2;
  return width * height * depth * texel_bytes(d.Format, d.NumChannels);
}

}  // namespace

uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description) noexcept {
  if ((description.Flags & (kArray3DSparse | kArray3DDeferredMapping)) != 0) return 0;
  return level_bytes(description);
}

uint64_t mipmapped_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description,
                               unsigned levels) noexcept {
  if ((description.Flags & (kArray3DSparse | kArray3DDeferredMapping)) != 0) return 0;
  // The depth of a layered or cube-map array is its number of layers, and every level has all of
  // them.
  const bool layered = (description.Flags & (kArray3DLayered | kArray3DCubemap)) != 0;
  CUDA_ARRAY3D_DESCRIPTOR level = description;
  uint64_t sum = 0;
  for (unsigned i = 0; i < std::clamp(levels, 1u, 32u); ++i) {
    sum += level_bytes(level);
    if (level.Width <= 1 && level.Height <= 1 && (layered || level.Depth <= 1)) break;
    level.Width = std::max<size_t>(level.Width / 2, 1);
    if (level.Height != 0) level.Height = std::max<size_t>(level.Height / 2, 1);
    if (!layered && level.Depth != 0) level.Depth = std::max<size_t>(level.Depth / 2, 1);
  }
  return sum;
}

}  // namespace tidemark::injector
