// Graph functions used by the rest of the driver.
#pragma once

#include "simgpu/driver.h"
#include "simgpu/work.h"

namespace tidemark::simgpu {

// nullptr: no addresses left. The node's address is stored in `*address`.
GraphNode* add_alloc_node(Driver& driver, Graph& graph, uint64_t bytes, CUdeviceptr* address);
GraphNode* add_free_node(Driver& driver, Graph& graph, CUdeviceptr address);
GraphNode* add_kernel_node(Driver& driver, Graph& graph, const Launch& launch);
// Adds a copy or fill to a capture.
GraphNode* add_plain_node(Driver& driver, Graph& graph, CUgraphNodeType type, uint64_t bytes);

}  // namespace tidemark::simgpu
