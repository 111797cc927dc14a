// Which of the two an error is: too many holes, or too little memory.
#pragma once

#include "analysis/findings/evidence.h"

namespace tidemark {

// Whether the last request failed for holes: without them it would have fitted below the limit, and
// they take so much that the run can be expected to go on. The recording of a run that needs too
// much ends at some request, and with other settings that one may fit as well.
bool failed_for_holes(const DeviceEvidence& d);

}  // namespace tidemark
