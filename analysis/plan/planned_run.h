// The requests of the changed program: those of the recording, in their order, with other sizes,
// and with what checkpointing, sharding and another optimizer add and free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/plan/change.h"
#include "analysis/plan/planned_sizes.h"
#include "analysis/plan/program/layers.h"
#include "analysis/plan/program/program.h"
#include "analysis/whatif/allocator/request_log.h"

namespace tidemark {

struct PlannedRun {
  std::vector<RequestedBlock> blocks;  // those of the log, then added ones
  std::vector<Request> requests;
  std::vector<int64_t> time_ns;    // of each request, in the recording
  std::vector<Category> category;  // by block
};

// `sizes`: with that estimate. `earlier`: rows that a later step has from its beginning. Errors:
// the recording does not know what the change needs, such as nn.Modules.
Result<PlannedRun> planned_run(const RecordedProgram& program, const RequestLog& log,
                               const PlanChange& change, std::vector<uint64_t> sizes,
                               Estimate estimate, const std::vector<uint32_t>& earlier);

}  // namespace tidemark
