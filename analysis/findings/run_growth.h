// Growth over a run of which only the last stretch was kept (analysis/insight/whole_run.h). The
// window may be too short to show it, but tells the line.
#pragma once

#include "analysis/findings/evidence.h"

namespace tidemark {

// Only if d.run.grows().
Finding creep_of_run(const DeviceEvidence& d);

}  // namespace tidemark
