// Slices on tracks where they nest.
//
// Perfetto draws a slice that begins inside another one as its child, and an end always closes the
// innermost slice. Ranges that cross each other (concurrent kernels of one stream, ranges of
// several threads) therefore need separate tracks: each range goes to the first lane where it
// nests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export/perfetto/tracks.h"

namespace tidemark {

inline constexpr int64_t kOpenEnd = INT64_MAX;  // a range whose end was not recorded

class SliceLanes {
 public:
  SliceLanes(PerfettoPackets& packets, PerfettoTracks& tracks, uint32_t sequence, uint64_t parent,
             std::string name, int32_t order);

  // The track for a range. Ranges must come ordered by beginning, the longer first when equal. The
  // caller writes the beginning; the end is written here, once a later range passes it.
  uint64_t place(int64_t begin_ns, int64_t end_ns);
  // Writes the remaining ends.
  void finish();

  // Ranges that were cut short because too many crossed each other at once.
  uint64_t clipped() const { return clipped_; }

 private:
  static constexpr size_t kMaxLanes = 256;
  struct Lane {
    uint64_t track = 0;
    std::vector<int64_t> ends;  // of the open slices, innermost last
  };

  void close_until(Lane& lane, int64_t time_ns);
  void add_lane();

  PerfettoPackets& packets_;
  PerfettoTracks& tracks_;
  uint32_t sequence_;
  uint64_t parent_;
  std::string name_;
  int32_t order_;
  std::vector<Lane> lanes_;
  uint64_t clipped_ = 0;
};

}  // namespace tidemark
