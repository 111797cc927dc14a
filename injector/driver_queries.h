// Asks the driver what its callbacks do not say: devices, pools, graph memory, sizes of imports.
//
// Task thread only, and never a call that would make a context. Calls are tidemark's own
// (OwnScope).
#pragma once

namespace tidemark::injector {

// One round: new devices get their Device row (and NVML handle), imports their size. Cheap when
// nothing is new. True when there was a new device.
bool query_driver() noexcept;

// Counter rows for pools and graph memory that are in use.
void sample_pools() noexcept;

// Looks for devices on which this process has a primary context. Only needed while there are no
// callbacks to tell.
void look_for_used_devices() noexcept;

void reset_driver_queries() noexcept;

}  // namespace tidemark::injector
