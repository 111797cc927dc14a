// Executable graphs: instantiating, uploading, launching, and the memory they hold.
#include <algorithm>

#include "simgpu/call.h"
#include "simgpu/graphs.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

constexpr unsigned long long kAutoFreeOnLaunch = 1;
constexpr unsigned long long kUploadAfter = 2;

uint64_t backed_bytes(const GraphNode& node) {
  return round_up(node.bytes, kVmmGranularity);
}

const GraphNode* node_at(const GraphExec& exec, uint64_t address) {
  const auto it = std::find_if(exec.nodes.begin(), exec.nodes.end(), [&](const GraphNode& node) {
    return node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node.address == address;
  });
  return it == exec.nodes.end() ? nullptr : &*it;
}

// The peak of one launch: allocations of the graph may follow one another.
uint64_t peak_bytes(const GraphExec& exec) {
  uint64_t now = 0;
  uint64_t peak = 0;
  for (const GraphNode& node : exec.nodes) {
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) now += backed_bytes(node);
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      if (const GraphNode* freed = node_at(exec, node.address)) now -= backed_bytes(*freed);
    }
    peak = std::max(peak, now);
  }
  return peak;
}

// CUPTI 13.0 records chunks like plain device memory. They have no addresses here, so the record
// carries the address of the device's own bookkeeping.
void tell_chunks(Driver& driver, Device& device, bool allocation, uint64_t bytes) {
  if (bytes == 0) return;
  const auto address = reinterpret_cast<uint64_t>(&device.graph_memory);
  post(memory_event(allocation, {AllocationKind::kDevice, address, bytes, 0, device.ordinal,
                                 current_context(driver)}));
}

// Ensures that the device holds enough memory for a launch.
bool back(Driver& driver, const GraphExec& exec) {
  Device& device = *driver.device(exec.device);
  GraphMemory& memory = device.graph_memory;
  const uint64_t needed = round_up(memory.used_bytes + peak_bytes(exec), kGraphChunkBytes);
  if (needed <= memory.reserved_bytes) return true;
  if (!driver.take(device, needed - memory.reserved_bytes)) return false;
  tell_chunks(driver, device, true, needed - memory.reserved_bytes);
  memory.reserved_bytes = needed;
  memory.reserved_high_bytes = std::max(memory.reserved_high_bytes, needed);
  return true;
}

bool free_live(Driver& driver, uint64_t address) {
  const auto it = driver.allocations.find(address);
  if (it == driver.allocations.end() || it->second.kind != AllocationKind::kGraph) return false;
  post(memory_event(false, it->second));
  driver.drop(it);
  return true;
}

void run_node(Driver& driver, Context& context, Stream& stream, const GraphExec& exec,
              const GraphNode& node) {
  GraphMemory& memory = driver.device(exec.device)->graph_memory;
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      driver.allocations.emplace(node.address, Allocation{AllocationKind::kGraph, node.address,
                                                          node.bytes, 0, exec.device, &context});
      post(memory_event(true, driver.allocations.at(node.address), &stream));
      memory.used_bytes += backed_bytes(node);
      memory.used_high_bytes = std::max(memory.used_high_bytes, memory.used_bytes);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      free_live(driver, node.address);
      break;
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      Launch launch{node.kernel, {}, {}, node.shared_bytes};
      std::copy_n(node.grid, 3, launch.grid);
      std::copy_n(node.block, 3, launch.block);
      run_kernel(driver, context, stream, launch, exec.id, node.id);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto kind = node.type == CU_GRAPH_NODE_TYPE_MEMCPY ? cupti::CUPTI_ACTIVITY_KIND_MEMCPY
                                                               : cupti::CUPTI_ACTIVITY_KIND_MEMSET;
      WorkEvent event = work_event(context, stream, kind, copy_duration_ns(node.bytes));
      event.bytes = node.bytes;
      event.copy_kind = node.copy_kind;
      event.async = true;
      event.graph_id = exec.id;
      event.graph_node_id = node.id;
      post(event);
      break;
    }
    default:
      break;
  }
}

// Memory that a launch left allocated must be freed before the next one, unless the graph does it.
CUresult clear_leftovers(Driver& driver, const GraphExec& exec) {
  for (const GraphNode& node : exec.nodes) {
    if (node.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    if (!driver.allocations.contains(node.address)) continue;
    if (!exec.free_on_launch) return CUDA_ERROR_INVALID_VALUE;
    free_live(driver, node.address);
  }
  return CUDA_SUCCESS;
}

CUresult launch(Driver& driver, Context& context, CUgraphExec handle, CUstream stream_handle,
                bool per_thread) {
  const GraphExec* exec = driver.graph_execs.find(handle);
  Stream* stream = stream_of(driver, context, stream_handle, per_thread);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = clear_leftovers(driver, *exec);
  if (result != CUDA_SUCCESS) return result;
  if (!back(driver, *exec)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (const GraphNode& node : exec->nodes) run_node(driver, context, *stream, *exec, node);
  return CUDA_SUCCESS;
}

CUresult upload(Driver& driver, Context& context, CUgraphExec handle, CUstream stream,
                bool per_thread) {
  const GraphExec* exec = driver.graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream_of(driver, context, stream, per_thread) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return back(driver, *exec) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult instantiate(Driver& driver, CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  Graph* graph = driver.graphs.find(handle);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec exec{driver.next_id(), graph->device, (flags & kAutoFreeOnLaunch) != 0, {}};
  for (const auto& node : graph->nodes) exec.nodes.push_back(*node);
  GraphExec* added = driver.graph_execs.add(std::move(exec));
  *out = reinterpret_cast<CUgraphExec>(added);
  ResourceEvent event{};
  event.id = cupti::CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED;
  event.graph.graph = handle;
  event.graph.graphExec = *out;
  event.context = reinterpret_cast<CUcontext>(current_context(driver));
  post(event);
  return CUDA_SUCCESS;
}

CUresult instantiate_with(Driver& driver, CUgraphExec* out, CUgraph graph,
                          CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(driver, out, graph, params->flags);
  if (result == CUDA_SUCCESS && (params->flags & kUploadAfter) != 0 &&
      !back(driver, *driver.graph_execs.find(*out))) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  params->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

uint64_t* graph_memory_value(GraphMemory& memory, CUgraphMem_attribute attribute) {
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      return &memory.used_bytes;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      return &memory.used_high_bytes;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      return &memory.reserved_bytes;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      return &memory.reserved_high_bytes;
  }
  return nullptr;
}

}  // namespace

SIMGPU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                             CUgraphNode* phErrorNode, char* logBuffer,
                                             size_t bufferSize) {
  return SIMGPU_CALL(cuGraphInstantiate_v2, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)
      .run([&](Driver& driver) { return instantiate(driver, phGraphExec, hGraph, 0); });
}

SIMGPU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                   unsigned long long flags) {
  return SIMGPU_CALL(cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags)
      .run([&](Driver& driver) { return instantiate(driver, phGraphExec, hGraph, flags); });
}

SIMGPU_EXPORT CUresult cuGraphInstantiateWithParams(
    CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return SIMGPU_CALL(cuGraphInstantiateWithParams, phGraphExec, hGraph, instantiateParams)
      .run([&](Driver& driver) {
        return instantiate_with(driver, phGraphExec, hGraph, instantiateParams);
      });
}

SIMGPU_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return SIMGPU_CALL(cuGraphInstantiateWithParams_ptsz, phGraphExec, hGraph, instantiateParams)
      .run([&](Driver& driver) {
        return instantiate_with(driver, phGraphExec, hGraph, instantiateParams);
      });
}

SIMGPU_EXPORT CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return SIMGPU_CALL(cuGraphUpload, hGraphExec, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return upload(driver, context, hGraphExec, hStream, false);
      });
}

SIMGPU_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return SIMGPU_CALL(cuGraphUpload_ptsz, hGraphExec, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return upload(driver, context, hGraphExec, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  return SIMGPU_CALL(cuGraphLaunch, hGraphExec, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return launch(driver, context, hGraphExec, hStream, false);
      });
}

SIMGPU_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return SIMGPU_CALL(cuGraphLaunch_ptsz, hGraphExec, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return launch(driver, context, hGraphExec, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return SIMGPU_CALL(cuGraphExecDestroy, hGraphExec).run_unlocked([&](Driver& driver) {
    {
      const std::lock_guard lock(driver.mutex);
      if (driver.graph_execs.find(hGraphExec) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    }
    ResourceEvent event{};
    event.id = cupti::CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING;
    event.graph.graphExec = hGraphExec;
    tell(event);
    const std::lock_guard lock(driver.mutex);
    driver.graph_execs.erase(hGraphExec);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return SIMGPU_CALL(cuDeviceGraphMemTrim, device).run([&](Driver& driver) {
    Device* found = driver.device(device);
    if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    GraphMemory& memory = found->graph_memory;
    const uint64_t kept = round_up(memory.used_bytes, kGraphChunkBytes);
    tell_chunks(driver, *found, false, memory.reserved_bytes - kept);
    found->card.give(memory.reserved_bytes - kept);
    memory.reserved_bytes = kept;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                                    void* value) {
  return SIMGPU_CALL(cuDeviceGetGraphMemAttribute, device, attr, value).run([&](Driver& driver) {
    Device* found = driver.device(device);
    if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const uint64_t* number = graph_memory_value(found->graph_memory, attr);
    if (number == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t*>(value) = *number;
    return CUDA_SUCCESS;
  });
}

// Only the high-water marks can be set, and only to the current value, by writing zero.
SIMGPU_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                                    void* value) {
  return SIMGPU_CALL(cuDeviceSetGraphMemAttribute, device, attr, value).run([&](Driver& driver) {
    Device* found = driver.device(device);
    if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    GraphMemory& memory = found->graph_memory;
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
      memory.used_high_bytes = memory.used_bytes;
    } else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
      memory.reserved_high_bytes = memory.reserved_bytes;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace tidemark::simgpu
