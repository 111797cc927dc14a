// Growth from step to step, as the rules `creep` and `retained_graph` see it.
#pragma once

#include "analysis/findings/evidence.h"

namespace tidemark {

// Whether the low-water mark rises steadily and by an amount that matters.
bool grows(const DeviceEvidence& d);
// Whether what grows are graphs: activations of many operations, kept beyond their step.
bool grows_by_graphs(const DeviceEvidence& d);
// If what grows had been let go at the end of the step that made it.
uint64_t saved_by_letting_go(const DeviceEvidence& d);
// The step at which the device is full if it goes on like this; 0: not in sight.
uint64_t full_at_step(const DeviceEvidence& d);

}  // namespace tidemark
