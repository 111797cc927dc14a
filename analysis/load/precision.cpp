#include "analysis/load/precision.h"

#include <algorithm>
#include <array>

namespace tidemark {

namespace {

template <size_t kCount>
bool has_any(std::string_view name, const std::array<std::string_view, kCount>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

// cuBLAS since CUDA 12.4: nvjet_<architecture>_<types>_…, the operands' type first: s is float32, h
// float16, t bfloat16, q an 8-bit type.
Precision of_nvjet(std::string_view name) {
  const size_t types = name.find('_', name.find('_') + 1);
  if (types == std::string_view::npos || types + 1 >= name.size()) return Precision::kUnknown;
  switch (name[types + 1]) {
    case 's':
      return Precision::kFloat32;
    case 'h':
    case 't':
    case 'q':
      return Precision::kHalf;
    default:
      return Precision::kUnknown;
  }
}

}  // namespace

Precision precision_of(std::string_view kernel) {
  constexpr std::array<std::string_view, 11> kHalfParts = {
      "c104Half", "c108BFloat16", "__half", "bfloat16", "bf16", "_f16",
      "fp16",     "hgemm",        "h16816", "h1688",    "h884"};
  constexpr std::array<std::string_view, 6> kFloatParts = {"sgemm", "f32f32_f32f32", "_f32_aligned",
                                                           "tf32",  "s1688gemm",     "scudnn"};
  if (kernel.starts_with("nvjet_")) return of_nvjet(kernel);
  if (has_any(kernel, kHalfParts)) return Precision::kHalf;
  if (has_any(kernel, kFloatParts)) return Precision::kFloat32;
  return Precision::kUnknown;
}

}  // namespace tidemark
