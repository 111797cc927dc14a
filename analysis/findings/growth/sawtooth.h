// Memory that grows over several steps until much of it is freed at once, again and again.
#pragma once

#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Until the cycle collector runs.
void find_cycles(const DeviceEvidence& d, std::vector<Finding>& out);

// Until the program frees it: at one place, or every so many steps. A tenth of the peak or more.
void find_collected(const DeviceEvidence& d, std::vector<Finding>& out);

}  // namespace tidemark
