// PyTorch's backend cudaMallocAsync, as the history of an allocator.
//
// That backend has no allocator of its own: every tensor is one stream-ordered allocation of the
// driver, and nothing else reports it. So its history is made from the driver's events, with each
// block in a segment of its own. Its statistics are those of the driver's pool: allocated is what
// the pool has given out (every user of the pool counts), reserved what the pool holds. The peaks
// are the pool's high-water marks, where they were recorded.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "analysis/load/trace_model.h"

namespace tidemark {

// The driver's pools that PyTorch allocates from; empty if it uses another backend.
std::set<uint32_t> pools_of_torch(std::span<const DriverEvent> events, const Dictionary& names);

// The events of the allocator, in order of time. `process` needs its names, pools, errors and
// counters.
std::vector<FrameworkEvent> async_backend_events(std::span<const DriverEvent> events,
                                                 const ProcessModel& process);

// Sets the peaks of the histories to the pools' high-water marks.
void apply_pool_marks(ProcessModel& process);

}  // namespace tidemark
