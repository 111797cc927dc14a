// Allocations of a context: what all kinds of memory have in common.
#pragma once

#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

// An event about `allocation`, filled in as far as it says; the stream is for ordered memory.
MemoryEvent memory_event(bool allocation, const Allocation& of, const Stream* stream = nullptr);

// Addresses without memory of this process's card behind them: imports and the like.
CUresult add_range(Driver& driver, Context& context, AllocationKind kind, uint64_t bytes,
                   Allocation** out);

// Frees a range by its first address, whatever its kind among those that cuMemFree takes.
CUresult free_range(Driver& driver, CUdeviceptr address);

// Ends every allocation and array that lives in a context.
void release_context_memory(Driver& driver, Context* context);

// Host memory behind `address`, when there are at least `bytes` of it there.
bool host_backed(Driver& driver, uint64_t address, uint64_t bytes);

}  // namespace tidemark::simgpu
