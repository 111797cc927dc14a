// Which of PyTorch's segments have memory behind them.
//
// The segments of a MemPool may be VMM memory of a pluggable allocator. Serving systems unmap and
// release it for a while ("sleep") and map new memory at the same addresses later, behind the
// allocator's back: PyTorch counts it as reserved and allocated all the time. A segment may be
// mapped in several pieces, each of which sleeps by itself. Segments that the allocator maps itself
// (expandable segments) cannot sleep.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analysis/history/driver_history.h"

namespace tidemark {

struct ProcessModel;

struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};
// The bytes of a range that are in one of the parts, which are sorted and do not overlap.
uint64_t bytes_in(const std::vector<AddressRange>& parts, AddressRange range);

class Residence {
 public:
  // A part of a segment without memory, for a while.
  struct Nap {
    AddressRange part;
    int64_t from_ns = 0;
    int64_t to_ns = INT64_MAX;
  };

  Residence(const ProcessModel& process, int64_t device);

  // Bytes of segments without memory.
  const StepSeries& asleep() const { return asleep_; }
  // Where they are, by address.
  std::vector<AddressRange> asleep_at(int64_t time_ns) const;
  // The part of them that is in blocks in use.
  uint64_t asleep_in_use(int64_t time_ns) const;
  // Driver memory by owner (a string) that is mapped into such segments: it is PyTorch's, whoever
  // created it.
  const std::map<uint32_t, StepSeries>& inside() const { return inside_; }

 private:
  const ProcessModel& process_;
  int64_t device_;
  std::vector<Nap> naps_;
  StepSeries asleep_;
  std::map<uint32_t, StepSeries> inside_;
};

}  // namespace tidemark
