// What the rest of the driver asks of graphs.
#pragma once

#include "simgpu/driver.h"
#include "simgpu/work.h"

namespace tidemark::simgpu {

// nullptr: no addresses left. The node's address goes to `*address`.
GraphNode* add_alloc_node(Driver& driver, Graph& graph, uint64_t bytes, CUdeviceptr* address);
GraphNode* add_free_node(Driver& driver, Graph& graph, CUdeviceptr address);
GraphNode* add_kernel_node(Driver& driver, Graph& graph, const Launch& launch);
// A copy or fill of a capture.
GraphNode* add_plain_node(Driver& driver, Graph& graph, CUgraphNodeType type, uint64_t bytes);

}  // namespace tidemark::simgpu
