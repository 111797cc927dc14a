// Kernels, copies and fills on a stream.
#pragma once

#include "simgpu/contexts.h"
#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

struct Launch {
  const char* name;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

// The duration of a kernel of this name.
int64_t kernel_duration_ns(const Config& config, const char* name);
int64_t copy_duration_ns(uint64_t bytes);

// A work event of `kind` that takes `duration_ns` on a stream, with times, device and ids filled
// in.
WorkEvent work_event(Context& context, Stream& stream, cupti::CUpti_ActivityKind kind,
                     int64_t duration_ns);

void run_kernel(Driver& driver, Context& context, Stream& stream, const Launch& launch,
                uint32_t graph_id = 0, uint64_t graph_node_id = 0);

// The function or kernel of a handle (a CUkernel may be used as a CUfunction), or nullptr.
const Function* find_function(Driver& driver, const void* handle);

}  // namespace tidemark::simgpu
