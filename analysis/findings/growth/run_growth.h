// Growth over a run of which only the last stretch was kept (analysis/insight/whole_run.h). The
// window may be too short to show it, but tells the line.
#pragma once

#include "analysis/findings/evidence.h"

namespace tidemark {

// The end of what a program does before it frees what it kept: at an error, or after its last
// request.
uint32_t end_of_work(const AllocationHistory& model);
// The line whose blocks become more throughout the window, most bytes first; 0: none does.
StackGrowth growing_in_window(const DeviceEvidence& d);

// Only if d.run.grows().
Finding creep_of_run(const DeviceEvidence& d);

}  // namespace tidemark
