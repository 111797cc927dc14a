// What a process took from the driver by itself, beside the framework's segments, in the form that
// steps, growth and savings are computed on.
#pragma once

#include "analysis/trace_model.h"

namespace tidemark {

// Empty of events where there is nothing. Its addresses are made up: places do not matter here.
FrameworkModel history_outside_framework(const ProcessModel& process, int64_t device);

}  // namespace tidemark
