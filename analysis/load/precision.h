// The precision in which a process computed, from the names of its kernels: libraries and PyTorch
// put the type of the operands into them.
#pragma once

#include <cstdint>
#include <string_view>

namespace tidemark {

enum class Precision : uint8_t { kUnknown, kFloat32, kHalf };

// kHalf: any type of 16 bits or fewer. kFloat32 is recognized only for matrix products,
// convolutions and attention, the operations that mixed precision changes. It includes TF32, whose
// tensors are as large.
Precision precision_of(std::string_view kernel);

// GPU time of kernels by precision.
struct ComputeTime {
  uint64_t float32_ns = 0;
  uint64_t half_ns = 0;

  void add(Precision precision, uint64_t ns) {
    if (precision == Precision::kFloat32) float32_ns += ns;
    if (precision == Precision::kHalf) half_ns += ns;
  }
  bool is_float32() const { return float32_ns != 0 && half_ns < float32_ns / 20; }
};

}  // namespace tidemark
