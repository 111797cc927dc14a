// The driver's allocations in the shape of an allocator's history, for devices where no framework
// was recorded: each allocation is a segment that one block fills, so that curves, map, flame graph
// and tables show it like any other. The block's `metadata` is its owner.
#pragma once

#include "analysis/driver_model.h"
#include "analysis/framework_model.h"

namespace tidemark::view {

// Of what lies on the card.
FrameworkModel driver_as_framework(const DriverModel& driver, int64_t device);

}  // namespace tidemark::view
