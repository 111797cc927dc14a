// The interface between the stand-in driver and the stand-in CUPTI.
//
// The real CUPTI gets access to the driver through an export table, and so does this one: it calls
// cuGetExportTable of libcuda with kTracingTableId and installs its Hooks. The driver calls them
// without holding a lock, on the thread that made the call. This includes work events: the times of
// a kernel are known when it is launched, and its record must not be delivered before its end.
#pragma once

#include <cstdint>

#include "abi/cuda.h"
#include "abi/cupti.h"
#include "simgpu/environment.h"

namespace tidemark::simgpu {

class Card;

inline constexpr cuda::CUuuid kTracingTableId = {
    {'t', 'i', 'd', 'e', 'm', 'a', 'r', 'k', ' ', 's', 'i', 'm', 'g', 'p', 'u', '1'}};

// One side of a driver call.
struct ApiSite {
  bool exit;
  uint32_t id;
  const char* name;
  const void* params;
  cuda::CUresult* result;
  const char* symbol;
  cuda::CUcontext context;
  uint32_t context_id;
  uint32_t correlation;
  uint64_t* scratch;
  int64_t enter_ns;
};

struct ResourceEvent {
  uint32_t id;  // CUpti_CallbackIdResource
  cuda::CUcontext context;
  cuda::CUstream stream;
  cupti::CUpti_ModuleResourceData module;
  cupti::CUpti_GraphData graph;
};

struct PoolState {
  uint64_t address;  // 0: no pool
  uint64_t release_threshold;
  uint64_t reserved_bytes;
  uint64_t used_bytes;
  bool imported;
};

struct MemoryEvent {
  bool allocation;
  cupti::CUpti_ActivityMemoryKind kind;
  uint64_t address;
  uint64_t bytes;
  uint32_t device;
  uint32_t context_id;
  uint32_t stream_id;  // kInvalidStreamId: not stream-ordered
  PoolState pool;
  int64_t time_ns;
  uint32_t correlation;
};

struct PoolEvent {
  cupti::CUpti_ActivityMemoryPoolOperationType operation;
  PoolState pool;
  uint64_t bytes_to_keep;
  uint32_t device;
  int64_t time_ns;
  uint32_t correlation;
};

// A kernel, copy or fill on a stream.
struct WorkEvent {
  cupti::CUpti_ActivityKind kind;  // CONCURRENT_KERNEL, MEMCPY, MEMSET
  int64_t start_ns;
  int64_t end_ns;
  uint32_t device;
  uint32_t context_id;
  uint32_t stream_id;
  uint32_t correlation;
  const char* name;  // of a kernel; lives as long as the process
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t graph_id;
  uint64_t graph_node_id;
  uint64_t bytes;
  uint32_t copy_kind;
  uint32_t source_kind;
  uint32_t target_kind;
  uint32_t value;
  bool async;
};

struct Hooks {
  bool (*wants)(uint32_t id);
  void (*api)(const ApiSite& site);
  void (*resource)(const ResourceEvent& event);
  void (*memory)(const MemoryEvent& event);
  void (*pool)(const PoolEvent& event);
  void (*work)(const WorkEvent& event);
};

// What the driver provides. Every function may be called from inside a hook.
struct TracingTable {
  void (*set_hooks)(const Hooks* hooks);
  bool (*context)(cuda::CUcontext context, uint32_t* id, uint32_t* device);
  bool (*stream)(cuda::CUcontext context, cuda::CUstream stream, bool per_thread, uint32_t* id);
  // Device memory held by the tool in a context, until that context ends.
  void (*charge)(cuda::CUcontext context, uint64_t bytes);
  // The existing contexts, for tools that attach late.
  void (*each_context)(void (*visit)(cuda::CUcontext context, void* with), void* with);
  // A card of this process; nullptr if the driver is not initialised.
  Card* (*card)(int index);
  // A variable of the environment, as it was when the driver was first used.
  Lookup variable;
};

}  // namespace tidemark::simgpu
