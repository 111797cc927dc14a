// What the rest of the driver asks of pools.
#pragma once

#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

PoolState pool_state(const Pool& pool);

// The default pool of a device, made when first asked for.
Pool* default_pool(Driver& driver, Device& device);

}  // namespace tidemark::simgpu
