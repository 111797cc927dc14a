// The numbers of running processes as metrics (docs/serve.md).
#pragma once

#include <vector>

#include "collector/serve/live_processes.h"
#include "collector/serve/open_metrics.h"

namespace tidemark::cli {

void add_metrics(MetricPage& page, const std::vector<LiveProcess>& processes);

}  // namespace tidemark::cli
