// Pool functions used by the rest of the driver.
#pragma once

#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

PoolState pool_state(const Pool& pool);

// The default pool of a device, created on first use.
Pool* default_pool(Driver& driver, Device& device);

}  // namespace tidemark::simgpu
