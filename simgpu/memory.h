// Allocations of a context: common to all kinds of memory.
#pragma once

#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

// A memory event for `allocation`; the stream is for stream-ordered memory.
MemoryEvent memory_event(bool allocation, const Allocation& of, const Stream* stream = nullptr);

// Reserves addresses without taking memory from the card, for imports.
CUresult add_range(Driver& driver, Context& context, AllocationKind kind, uint64_t bytes,
                   Allocation** out);

// Frees a range by its first address, if its kind can be freed with cuMemFree.
CUresult free_range(Driver& driver, CUdeviceptr address);

// Frees every allocation and array of a context.
void release_context_memory(Driver& driver, Context* context);

// Whether there are at least `bytes` of host memory at `address`.
bool host_backed(Driver& driver, uint64_t address, uint64_t bytes);

}  // namespace tidemark::simgpu
