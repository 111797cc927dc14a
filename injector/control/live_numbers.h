// The numbers of the verb `live`: what the process uses now, and what the recording has counted.
#pragma once

#include "proto/control.h"

namespace tidemark::injector {

// Computed from counters that exist anyway, from the allocator's statistics and from NVML.
// `may_load_bridge`: to ask the allocator. False: the driver or NVML did not answer in time.
bool add_live_numbers(bool may_load_bridge, control::Line& reply) noexcept;

}  // namespace tidemark::injector
