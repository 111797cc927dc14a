#include "analysis/load/number_width.h"

#include <algorithm>
#include <array>
#include <string_view>

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

// The type of the numbers that a kernel of PyTorch adds or multiplies: the first one of the functor
// or of the reduction, as 16-bit numbers are multiplied in 32 ("BinaryFunctorIN3c108BFloat16ES4_S4_
// NS0_15binary_internal10MulFunctorIfEE"). 'f' or 'd'; 0: another one, or no such kernel.
char arithmetic_type(std::string_view kernel) {
  constexpr std::array<std::string_view, 5> kParts = {"13BinaryFunctorI", "13AUnaryFunctorI",
                                                      "13BUnaryFunctorI", "15CUDAFunctor_addI",
                                                      "8ReduceOpI"};
  for (const std::string_view part : kParts) {
    const size_t found = kernel.find(part);
    const size_t type = found + part.size();
    if (found == kernel.npos || type >= kernel.size()) continue;
    return kernel[type] == 'f' || kernel[type] == 'd' ? kernel[type] : 0;
  }
  return 0;
}

struct ArithmeticTypes {
  bool float32 = false;
  bool float64 = false;
};

ArithmeticTypes arithmetic_types(const Dictionary& names) {
  ArithmeticTypes types;
  for (uint32_t id = 1; id < names.string_count(); ++id) {
    const char type = arithmetic_type(names.string(id));
    types.float32 |= type == 'f';
    types.float64 |= type == 'd';
  }
  return types;
}

// Fused and capturable optimizers count steps on the device in 32 bits, whatever the weights have:
// BinaryOpScalarFunctor<float, …> with std::plus.
bool counts_steps(std::string_view kernel) {
  return kernel.find("BinaryOpScalarFunctorIf") != kernel.npos &&
         kernel.find("plus") != kernel.npos;
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
  if (found) return true;
  const ArithmeticTypes types = arithmetic_types(names);
  return types.float64 && !types.float32;
}

NumberWidth width_of_arithmetic(const Dictionary& names) {
  for (uint32_t id = 1; id < names.string_count(); ++id) {
    if (precision_of(names.string(id)) == Precision::kHalf) return NumberWidth::kUnknown;
  }
  const ArithmeticTypes types = arithmetic_types(names);
  return types.float32 && !types.float64 ? NumberWidth::k32 : NumberWidth::kUnknown;
}

NumberWidth width_of_products(const ComputeTime& compute) {
  if (compute.is_float32()) return NumberWidth::k32;
  if (compute.half_ns == 0) return NumberWidth::kUnknown;
  return compute.float32_ns < compute.half_ns / 20 ? NumberWidth::k16 : NumberWidth::kBoth;
}

NumberWidth width_of_optimized(const Dictionary& names) {
  bool has_16 = false;
  bool has_32 = false;
  for (uint32_t id = 1; id < names.string_count(); ++id) {
    const std::string_view name = names.string(id);
    if (name.find("multi_tensor_apply_kernel") == name.npos) continue;
    if (precision_of(name) == Precision::kHalf) {
      has_16 = true;
    } else if (name.find("FunctorIf") != name.npos && !counts_steps(name)) {
      has_32 = true;
    }
  }
  if (has_16 && has_32) return NumberWidth::kBoth;
  return has_16 ? NumberWidth::k16 : has_32 ? NumberWidth::k32 : NumberWidth::kUnknown;
}

}  // namespace tidemark
