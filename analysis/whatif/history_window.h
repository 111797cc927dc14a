// A part of a history as a history of its own.
//
// What was there before its first event is seeded, as it is for a recording that began late; events
// and allocations are numbered anew.
#pragma once

#include <cstdint>

#include "analysis/history/allocation_history.h"
#include "analysis/history/allocator_rules.h"

namespace tidemark {

struct EventWindow {
  uint32_t first = 0;
  uint32_t end = 0;  // one behind the last
  uint32_t count() const { return end - first; }
};

// At most so many events around one, most of them before it. It begins where the least is
// allocated: whatever is seeded has lost the order in which it came.
EventWindow window_around(const AllocationHistory& model, uint32_t event, uint32_t most);

AllocationHistory history_window(const AllocationHistory& whole, const AllocatorRules& rules,
                                 EventWindow window);

}  // namespace tidemark
