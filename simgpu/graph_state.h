// Graphs with memory nodes. The address of an allocation is fixed when its node is added; memory is
// taken from the card at upload or launch and kept for later launches until it is trimmed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "abi/cuda.h"

namespace tidemark::simgpu {

struct GraphNode {
  uint64_t id;
  cuda::CUgraphNodeType type;
  uint64_t address = 0;  // memory nodes
  uint64_t bytes = 0;
  cuda::CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  const char* kernel = nullptr;
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t shared_bytes = 0;
  uint32_t copy_kind = 0;
};

struct Graph {
  uint32_t id;
  int device;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in order of execution
};

struct GraphExec {
  uint32_t id;
  int device;
  bool free_on_launch;  // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
  std::vector<GraphNode> nodes;
};

inline constexpr uint64_t kGraphChunkBytes = 32ULL << 20;

// Memory of the graphs of one device: taken from the card in chunks, as by driver 580.
struct GraphMemory {
  uint64_t used_bytes = 0;
  uint64_t used_high_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t reserved_high_bytes = 0;
};

}  // namespace tidemark::simgpu
