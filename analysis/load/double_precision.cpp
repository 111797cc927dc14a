#include "analysis/load/double_precision.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "analysis/load/precision.h"

namespace tidemark {

namespace {

// As cuBLAS, CUTLASS and cuDNN name them: sm90_xmma_gemm_f64f64_f64f64_f64_nn…,
// cutlass_80_tensorop_d884gemm_…, ampere_dgemm_….
bool is_float64_product(std::string_view kernel) {
  constexpr std::array<std::string_view, 4> kParts = {"f64f64_f64f64", "d884gemm", "d1688gemm",
                                                      "_dgemm_"};
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    return kernel.find(part) != std::string_view::npos;
  });
}

}  // namespace

bool computes_in_float64(const Dictionary& names) {
  bool found = false;
  for (uint32_t id = 1; id < names.string_count(); ++id) {
    const std::string_view name = names.string(id);
    if (is_float64_product(name)) {
      found = true;
    } else if (precision_of(name) != Precision::kUnknown) {
      return false;
    }
  }
  return found;
}

}  // namespace tidemark
