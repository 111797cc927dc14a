// The size that each recorded allocation has in the changed program.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/load/number_width.h"
#include "analysis/plan/change.h"
#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// What sizes are taken where the law of an allocation is not sure.
enum class Estimate : uint8_t { kLikely, kLow, kHigh };

// 0: the changed program does not make the allocation.
std::vector<uint64_t> planned_sizes(const RecordedProgram& program, const SizeLaws& laws,
                                    const PlanChange& change, Estimate estimate);

// What the kernels of a recording tell about its numbers.
struct RecordedWidths {
  NumberWidth products = NumberWidth::kUnknown;  // without any, of sums and products of numbers
  NumberWidth optimized = NumberWidth::kUnknown;
  bool autocasts = false;

  bool computes_in_16() const { return autocasts || products == NumberWidth::k16; }
  // Weights as well.
  bool all_in_16() const {
    return !autocasts && products == NumberWidth::k16 && optimized != NumberWidth::k32 &&
           optimized != NumberWidth::kBoth;
  }
  // Some tensors have 16 bits already, and which is not known of all.
  bool unsure() const {
    return !autocasts && !all_in_16() &&
           (products == NumberWidth::k16 || products == NumberWidth::kBoth);
  }
};
RecordedWidths recorded_widths(const RecordedProgram& program);

// Whether the change runs products in 16 bits that have 32 in the recording, with copies of
// weights.
bool adds_autocast(const RecordedProgram& program, const PlanChange& change);

// Bytes per number of weights, gradients and states in the changed program.
uint64_t planned_weight_bytes(const RecordedProgram& program, const PlanChange& change);

// Bytes of an 8-bit state for one of numbers of `number_bytes`: one byte each and a factor per
// block of 256, as bitsandbytes has them; small tensors have 32 bits.
uint64_t state_bytes_8bit(uint64_t state_bytes, uint64_t number_bytes);

}  // namespace tidemark
