// What the allocator did around an event.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/history/allocation_history.h"

namespace tidemark::view {

struct ActionRow {
  uint32_t event = 0;
  Change change = Change::kBirth;
  bool failed = false;  // a request after the event that was out of memory; `change` does not count
  bool seeded = false;
  int64_t time_ns = 0;
  uint64_t bytes = 0;
  uint64_t address = 0;  // 0: none, of a request that failed
  uint64_t stream = 0;
  uint32_t pool = 0;
  uint32_t stack = 0;
};

std::string_view action_name(const ActionRow& row);

// The row of the cursor: that of the error at this time, else of the event; the number of rows:
// none.
size_t action_at(const std::vector<ActionRow>& rows, uint32_t event, int64_t time_ns);

// At most `around` events on each side, in their order, with the errors between them.
std::vector<ActionRow> action_rows(const AllocationHistory& memory, uint32_t event,
                                   uint32_t around);

}  // namespace tidemark::view
