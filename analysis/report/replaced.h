// A process that replaced itself by another program (exec) looks killed: nobody finished its trace.
#pragma once

#include <vector>

#include "analysis/load/trace_model.h"
#include "analysis/report/report.h"

namespace tidemark {

// loss_of() the process, as one of `all`. If a later trace continues its pid, it was not killed.
LossReport loss_among(const ProcessModel& process, const std::vector<ProcessModel>& all);

}  // namespace tidemark
