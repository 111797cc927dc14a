// Activity other than the allocator's: kernels and copies per stream, NCCL operations, marks and
// driver calls, streamed from the tables of the file.
#pragma once

#include "export/perfetto/tracks.h"

namespace tidemark {

// Each writes one kind of activity of a process and returns how many ranges it cut short (see
// SliceLanes). `names` is a sequence without its own clock.
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

// The id that links the same collective on all ranks; 0 for operations without a number. NCCL
// counts the operations of a communicator per function: an AllReduce and a Broadcast both have a
// number 0.
uint64_t flow_of(const NcclOperation& operation, std::string_view function);

}  // namespace tidemark
