// The allocator's full state as a snapshot shows it: segments and the blocks in them.
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

// The state at the end of the range. Where the trace holds a full picture that is not older than
// its events and the range is whole, that picture as it is; else what the replay of the events
// says.
std::vector<SnapshotSegment> snapshot_state(const ExportProcess& process, const TimeRange& range);

}  // namespace tidemark
