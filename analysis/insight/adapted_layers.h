// Layers with a low-rank adapter (LoRA) whose own weights are trained as well.
//
// An adapter of rank r adds to a matrix of `out` x `in` numbers two thin ones, of r x `in` and
// `out` x r: the product of their sizes is r * r times the size of the matrix, in any precision.
// They belong to the module of the matrix, or to one around it that has no other matrix.
// Bottlenecks of ordinary networks stand beside several matrices, or have ranks that follow their
// widths.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/insight/trained_weights.h"

namespace tidemark {

struct AdaptedLayers {
  std::vector<uint32_t> weights;  // allocations: trained matrices, also of layers without adapter
  uint64_t weight_bytes = 0;
  uint64_t adapter_bytes = 0;
  uint64_t layers = 0;  // with an adapter and a matrix that is trained

  bool empty() const { return weights.empty(); }
};

AdaptedLayers find_adapted_layers(const ProcessModel& process, const AllocationHistory& model,
                                  const TrainedWeights& trained);

}  // namespace tidemark
