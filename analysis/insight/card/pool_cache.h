// What the driver's stream-ordered pools keep of freed memory. No call of the program shows it, but
// the pools are sampled.
#pragma once

#include <cstdint>

#include "analysis/load/trace_model.h"

namespace tidemark {

// By how much the process held more on the device than its driver peak, at the instant when its
// allocations and what the pools kept were most together. A lower bound: pools that grow and shrink
// between two samples are not seen.
uint64_t pool_cache_beyond_peak(const ProcessModel& process, int64_t device);

}  // namespace tidemark
