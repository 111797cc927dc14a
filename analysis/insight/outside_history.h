// Driver allocations as an AllocationHistory, the form on which steps, growth, savings, maps and
// curves are computed. Every allocation is a segment that one block fills; the block's `metadata`
// is its owner (a string). Memory without an address, or whose handle equals another allocation's
// address, gets an address that no card has.
#pragma once

#include "analysis/load/trace_model.h"

namespace tidemark {

// All except the framework's segments. Has no events where there are none.
AllocationHistory history_outside_framework(const ProcessModel& process, int64_t device);

// Everything on the card, of all owners.
AllocationHistory history_of_driver(const DriverModel& driver, int64_t device);

}  // namespace tidemark
