// How long a layer's result is needed without a graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "analysis/history/allocation_history.h"

namespace tidemark {

// Without a graph, the result of a layer is freed once the operations of the next layer have used
// it: a residual connection, the last of them, is this many large allocations later.
inline constexpr size_t kUses = 6;
// The same in a model with fewer than twice as many: it has no such connections.
inline constexpr size_t kUsesOfFew = 3;

// The event from which on an allocation of a forward pass is not needed for that pass itself.
inline uint32_t end_of_use(const AllocationHistory& model, size_t allocation, size_t uses = kUses) {
  for (size_t i = allocation + 1; i < model.allocations.size(); ++i) {
    if (model.allocations.block_bytes(i) > kSmallBytes && --uses == 0) {
      return model.allocations.birth(i);
    }
  }
  return kNever;
}

}  // namespace tidemark
