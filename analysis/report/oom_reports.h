// The failed requests of a device.
#pragma once

#include <vector>

#include "analysis/findings/evidence.h"
#include "analysis/report/report.h"

namespace tidemark {

// Requests of a device that the driver refused.
std::vector<const FailedAllocation*> driver_failures(const ProcessModel& process, int64_t device);

// The last failures, in the order of time, and the number of retries.
void add_ooms(DeviceReport& d, const DeviceEvidence& evidence);
// What libraries were refused and made do without.
void add_library_refusals(DeviceReport& d, const ProcessModel& process);

}  // namespace tidemark
