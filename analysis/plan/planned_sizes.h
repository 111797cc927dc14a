// The size that each recorded allocation has in the changed program.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/plan/change.h"
#include "analysis/plan/program.h"
#include "analysis/plan/size_law.h"

namespace tidemark {

// What sizes are taken where the law of an allocation is not sure.
enum class Estimate : uint8_t { kLikely, kLow, kHigh };

// 0: the changed program does not make the allocation.
std::vector<uint64_t> planned_sizes(const RecordedProgram& program, const SizeLaws& laws,
                                    const PlanChange& change, Estimate estimate);

// Bytes of an 8-bit state for a tensor of 32-bit numbers: one byte each and a factor per block of
// 256, as bitsandbytes has them; small tensors keep 32 bits.
uint64_t state_bytes_8bit(uint64_t float_bytes);

}  // namespace tidemark
