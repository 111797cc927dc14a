// The allocator's full state as a snapshot lists it: segments and the blocks in them.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/memory_state.h"
#include "export/export_input.h"

namespace tidemark {

struct SnapshotSegment {
  SegmentState segment{};
  std::vector<BlockState> blocks;  // by address
};

// The state at the end of the range. If the range is the whole trace and the trace holds a full
// state that is not older than its events, that state; else the result of replaying the events.
std::vector<SnapshotSegment> snapshot_state(const ExportProcess& process, const TimeRange& range);

}  // namespace tidemark
