// What a person picked out: something to see the details of, a measured stretch, a search.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "export/time_range.h"
#include "viewer/model/timeline/activity.h"

namespace tidemark::view {

struct Highlights {
  // A block, a hole or something that ran: at most one of the three.
  std::optional<uint32_t> allocation;  // of the lane's allocations
  std::optional<uint64_t> hole;        // its address
  std::optional<ActivityRef> activity;

  std::optional<TimeRange> measure;
  std::string measured;  // the annotation whose time it is; empty: measured by hand
  std::string search;    // in stacks; upper and lower case are the same

  void drop_picked() {
    allocation.reset();
    hole.reset();
    activity.reset();
  }
  // They belong to one lane.
  void drop_block_and_hole() {
    allocation.reset();
    hole.reset();
  }
  void clear() { *this = {}; }
};

}  // namespace tidemark::view
