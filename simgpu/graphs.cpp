// Building graphs, by hand or by stream capture.
#include "simgpu/graphs.h"

#include <algorithm>
#include <utility>

#include "simgpu/call.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

void tell_graph(cupti::CUpti_CallbackIdResource id, Graph* graph, GraphNode* node) {
  ResourceEvent event{};
  event.id = id;
  event.graph.graph = reinterpret_cast<CUgraph>(graph);
  event.graph.node = reinterpret_cast<CUgraphNode>(node);
  if (node != nullptr) event.graph.nodeType = node->type;
  post(event);
}

GraphNode* add_node(Driver& driver, Graph& graph, CUgraphNodeType type) {
  auto node = std::make_unique<GraphNode>();
  node->id = driver.next_id();
  node->type = type;
  graph.nodes.push_back(std::move(node));
  GraphNode* added = graph.nodes.back().get();
  tell_graph(cupti::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &graph, added);
  return added;
}

Graph* add_graph(Driver& driver, int device) {
  Graph* graph = driver.graphs.add({driver.next_id(), device, {}});
  tell_graph(cupti::CUPTI_CBID_RESOURCE_GRAPH_CREATED, graph, nullptr);
  return graph;
}

// Used by cuGraphAddMemAllocNode and by cuGraphAddNode.
CUresult add_alloc(Driver& driver, CUgraphNode* out, CUgraph handle,
                   CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  Graph* graph = driver.graphs.find(handle);
  if (graph == nullptr || out == nullptr || params == nullptr || params->bytesize == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUmemLocation& where = params->poolProps.location;
  if (where.type != CU_MEM_LOCATION_TYPE_DEVICE || driver.device(where.id) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  graph->device = where.id;
  GraphNode* node = add_alloc_node(driver, *graph, params->bytesize, &params->dptr);
  if (node == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  node->alloc = *params;
  *out = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

CUresult add_free(Driver& driver, CUgraphNode* out, CUgraph handle, CUdeviceptr address) {
  Graph* graph = driver.graphs.find(handle);
  if (graph == nullptr || out == nullptr || address == 0) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraphNode>(add_free_node(driver, *graph, address));
  return CUDA_SUCCESS;
}

CUresult add_kernel(Driver& driver, CUgraphNode* out, CUgraph handle,
                    const CUDA_KERNEL_NODE_PARAMS* p) {
  Graph* graph = driver.graphs.find(handle);
  if (graph == nullptr || out == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const void* code = p->func != nullptr ? static_cast<const void*>(p->func) : p->kern;
  const Function* function = find_function(driver, code);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Launch launch{function->name,
                      {p->gridDimX, p->gridDimY, p->gridDimZ},
                      {p->blockDimX, p->blockDimY, p->blockDimZ},
                      p->sharedMemBytes};
  *out = reinterpret_cast<CUgraphNode>(add_kernel_node(driver, *graph, launch));
  return CUDA_SUCCESS;
}

CUresult add_any(Driver& driver, CUgraphNode* out, CUgraph handle, CUgraphNodeParams* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return add_alloc(driver, out, handle, &p->node.alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return add_free(driver, out, handle, p->node.free.dptr);
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return add_kernel(driver, out, handle, &p->node.kernel);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult begin_capture(Driver& driver, Context& context, CUstream handle, bool per_thread) {
  Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // The legacy stream synchronises with all others and cannot be captured.
  if (stream == &context.legacy_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = add_graph(driver, context.device);
  return CUDA_SUCCESS;
}

CUresult end_capture(Driver& driver, Context& context, CUstream handle, CUgraph* out,
                     bool per_thread) {
  Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(std::exchange(stream->capture, nullptr));
  return CUDA_SUCCESS;
}

}  // namespace

GraphNode* add_alloc_node(Driver& driver, Graph& graph, uint64_t bytes, CUdeviceptr* address) {
  Device& device = *driver.device(graph.device);
  if (bytes > device.card.capacity_bytes()) return nullptr;
  const uint64_t at = device.addresses.take(round_up(bytes, kVmmGranularity), kVmmGranularity);
  if (at == 0) return nullptr;
  GraphNode* node = add_node(driver, graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  node->address = at;
  node->bytes = bytes;
  node->alloc.bytesize = bytes;
  node->alloc.dptr = at;
  *address = at;
  return node;
}

GraphNode* add_free_node(Driver& driver, Graph& graph, CUdeviceptr address) {
  GraphNode* node = add_node(driver, graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
  node->address = address;
  return node;
}

GraphNode* add_kernel_node(Driver& driver, Graph& graph, const Launch& launch) {
  GraphNode* node = add_node(driver, graph, CU_GRAPH_NODE_TYPE_KERNEL);
  node->kernel = launch.name;
  std::copy_n(launch.grid, 3, node->grid);
  std::copy_n(launch.block, 3, node->block);
  node->shared_bytes = launch.shared_bytes;
  return node;
}

GraphNode* add_plain_node(Driver& driver, Graph& graph, CUgraphNodeType type, uint64_t bytes) {
  GraphNode* node = add_node(driver, graph, type);
  node->bytes = bytes;
  return node;
}

SIMGPU_EXPORT CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return SIMGPU_CALL(cuGraphCreate, phGraph, flags).run([&](Driver& driver) {
    if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const Context* context = current_context(driver);
    *phGraph =
        reinterpret_cast<CUgraph>(add_graph(driver, context != nullptr ? context->device : 0));
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuGraphDestroy(CUgraph hGraph) {
  return SIMGPU_CALL(cuGraphDestroy, hGraph).run_unlocked([&](Driver& driver) {
    {
      const std::lock_guard lock(driver.mutex);
      if (driver.graphs.find(hGraph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    }
    ResourceEvent event{};
    event.id = cupti::CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING;
    event.graph.graph = hGraph;
    tell(event);
    const std::lock_guard lock(driver.mutex);
    driver.graphs.erase(hGraph);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                              const CUgraphNode* dependencies,
                                              size_t numDependencies,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  return SIMGPU_CALL(cuGraphAddMemAllocNode, phGraphNode, hGraph, dependencies, numDependencies,
                     nodeParams)
      .run([&](Driver& driver) { return add_alloc(driver, phGraphNode, hGraph, nodeParams); });
}

SIMGPU_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                             const CUgraphNode* dependencies,
                                             size_t numDependencies, CUdeviceptr dptr) {
  return SIMGPU_CALL(cuGraphAddMemFreeNode, phGraphNode, hGraph, dependencies, numDependencies,
                     dptr)
      .run([&](Driver& driver) { return add_free(driver, phGraphNode, hGraph, dptr); });
}

SIMGPU_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                               const CUgraphNode* dependencies,
                                               size_t numDependencies,
                                               const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return SIMGPU_CALL(cuGraphAddKernelNode_v2, phGraphNode, hGraph, dependencies, numDependencies,
                     nodeParams)
      .run([&](Driver& driver) { return add_kernel(driver, phGraphNode, hGraph, nodeParams); });
}

SIMGPU_EXPORT CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      CUgraphNodeParams* nodeParams) {
  return SIMGPU_CALL(cuGraphAddNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams)
      .run([&](Driver& driver) { return add_any(driver, phGraphNode, hGraph, nodeParams); });
}

SIMGPU_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies,
                                         const CUgraphEdgeData* dependencyData,
                                         size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return SIMGPU_CALL(cuGraphAddNode_v2, phGraphNode, hGraph, dependencies, dependencyData,
                     numDependencies, nodeParams)
      .run([&](Driver& driver) { return add_any(driver, phGraphNode, hGraph, nodeParams); });
}

SIMGPU_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                                    CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return SIMGPU_CALL(cuGraphMemAllocNodeGetParams, hNode, params_out).run([&](Driver& driver) {
    const GraphNode* found = nullptr;
    driver.graphs.each([&](const Graph& graph) {
      for (const auto& node : graph.nodes) {
        if (node.get() == reinterpret_cast<GraphNode*>(hNode)) found = node.get();
      }
    });
    if (found == nullptr || params_out == nullptr || found->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *params_out = found->alloc;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return SIMGPU_CALL(cuStreamBeginCapture_v2, hStream, mode)
      .run_in_context([&](Driver& driver, Context& context) {
        return begin_capture(driver, context, hStream, false);
      });
}

SIMGPU_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return SIMGPU_CALL(cuStreamBeginCapture_v2_ptsz, hStream, mode)
      .run_in_context([&](Driver& driver, Context& context) {
        return begin_capture(driver, context, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return SIMGPU_CALL(cuStreamEndCapture, hStream, phGraph)
      .run_in_context([&](Driver& driver, Context& context) {
        return end_capture(driver, context, hStream, phGraph, false);
      });
}

SIMGPU_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return SIMGPU_CALL(cuStreamEndCapture_ptsz, hStream, phGraph)
      .run_in_context([&](Driver& driver, Context& context) {
        return end_capture(driver, context, hStream, phGraph, true);
      });
}

}  // namespace tidemark::simgpu
