// Whether a process computed in double precision, from the names of its kernels.
#pragma once

#include "analysis/names/dictionary.h"

namespace tidemark {

// There are matrix products of 64-bit numbers, and no kernel of 32-bit or 16-bit ones
// (precision.h): tensors of the model have 64 bits.
bool computes_in_float64(const Dictionary& names);

}  // namespace tidemark
