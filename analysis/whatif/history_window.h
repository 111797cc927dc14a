// A part of a history as a separate history.
//
// The state before its first event is seeded, as for a recording that began late; events and
// allocations are renumbered.
#pragma once

#include <cstdint>

#include "analysis/history/allocation_history.h"
#include "analysis/history/allocator_rules.h"

namespace tidemark {

struct EventWindow {
  uint32_t first = 0;
  uint32_t end = 0;  // one past the last
  uint32_t count() const { return end - first; }
};

// At most `most` events around one, most of them before it. It begins where the least is allocated,
// because seeded blocks have lost the order in which they were allocated.
EventWindow window_around(const AllocationHistory& model, uint32_t event, uint32_t most);

AllocationHistory history_window(const AllocationHistory& whole, const AllocatorRules& rules,
                                 EventWindow window);

}  // namespace tidemark
