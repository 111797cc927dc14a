// What a process took from the driver by itself, in the form of an allocator's history: what steps,
// growth, savings, maps and curves are computed on. Every allocation is a segment that one block
// fills; the block's `metadata` is its owner (a string). Memory without an address of its own, or
// whose handle looks like another's address, gets one that no card has.
#pragma once

#include "analysis/load/trace_model.h"

namespace tidemark {

// Beside the framework's segments. Empty of events where there is nothing.
AllocationHistory history_outside_framework(const ProcessModel& process, int64_t device);

// All that lies on the card, whoever took it.
AllocationHistory history_of_driver(const DriverModel& driver, int64_t device);

}  // namespace tidemark
