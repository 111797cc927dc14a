// The width of the numbers that a process computed with, from the names of its kernels.
#pragma once

#include <cstdint>

#include "analysis/load/precision.h"
#include "analysis/names/dictionary.h"

namespace tidemark {

// There are matrix products of 64-bit numbers, or without any products, sums and products of
// single numbers in 64 bits only; and no kernel of 32-bit or 16-bit ones (precision.h): tensors of
// the model have 64 bits.
bool computes_in_float64(const Dictionary& names);

// kUnknown: no kernel tells. k16: 16 bits or fewer.
enum class NumberWidth : uint8_t { kUnknown, k16, k32, kBoth };

// Of nearly all matrix products. Those of a model in 32 bits have 16 under autocast.
NumberWidth width_of_products(const ComputeTime& compute);

// k32: PyTorch's kernels add or multiply numbers of 32 bits, and no kernel names other ones. Tells
// the width of programs without matrix products. kUnknown: anything else.
NumberWidth width_of_arithmetic(const Dictionary& names);

// Of the weights that an optimizer of PyTorch changes: its foreach and fused kernels name the type.
NumberWidth width_of_optimized(const Dictionary& names);

}  // namespace tidemark
