// What happened beside the allocator: kernels and copies per stream, NCCL operations, marks and
// driver calls, streamed from the tables of the file.
#pragma once

#include "export/perfetto/tracks.h"

namespace tidemark {

// Writers of one process; `names` is a sequence without a clock of its own. Each returns how many
// ranges had to be cut short (see SliceLanes).
struct PerfettoActivity {
  PerfettoPackets& packets;
  PerfettoTracks& tracks;
  PerfettoNames& names;
  const ExportProcess& process;
  TimeRange range;

  uint64_t write_streams();
  uint64_t write_nccl();
  uint64_t write_marks();
  void write_driver_calls();
};

// What links the same collective on all ranks; 0 for operations that have no number. NCCL counts
// the operations of a communicator by function: an AllReduce and a Broadcast both have a number 0.
uint64_t flow_of(const NcclOperation& operation, std::string_view function);

}  // namespace tidemark
