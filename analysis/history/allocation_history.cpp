#include "analysis/history/allocation_history.h"

#include <algorithm>

namespace tidemark {

OutOfMemory FailedAllocation::as_row(const MemoryTotals& totals) const {
  OutOfMemory row{};
  row.time_ns = time_ns;
  row.device = device;
  row.requested_bytes = requested_bytes;
  row.allocated_bytes = totals.allocated;
  row.reserved_bytes = totals.reserved;
  row.device_free_bytes = device_free_bytes;
  row.stream = stream;
  row.stack = stack;
  row.layer = layer;
  return row;
}

void AllocationHistory::apply(uint32_t event, MemoryTotals& totals) const {
  const uint32_t s = subject[event];
  switch (change[event]) {
    case Change::kBirth:
      totals.allocated += allocations.block_bytes(s);
      totals.active += allocations.block_bytes(s);
      totals.requested += allocations.requested_bytes(s);
      break;
    case Change::kRelease:
      totals.allocated -= allocations.block_bytes(s);
      break;
    case Change::kDeath:
      totals.active -= allocations.block_bytes(s);
      totals.requested -= allocations.requested_bytes(s);
      break;
    case Change::kPending:
      totals.active += allocations.block_bytes(s);
      totals.requested += allocations.requested_bytes(s);
      break;
    case Change::kGrow:
      totals.reserved += segment_changes[s].size_bytes;
      break;
    case Change::kShrink:
      totals.reserved -= segment_changes[s].size_bytes;
      break;
  }
}

MemoryTotals AllocationHistory::totals_after(uint32_t event) const {
  if (change.empty()) return {};
  event = std::min(event, event_count() - 1);
  const uint32_t frame = event / kKeyframe;
  MemoryTotals totals = keyframes[frame];
  for (uint32_t e = frame * kKeyframe; e <= event; ++e) apply(e, totals);
  return totals;
}

bool AllocationHistory::event_at(int64_t time, uint32_t& event) const {
  const uint32_t after = first_event_not([&](int64_t t) { return t <= time; });
  if (after == 0) return false;
  event = after - 1;
  return true;
}

bool AllocationHistory::state_event_at(int64_t time, uint32_t& event) const {
  if (event_at(time, event)) return true;
  event = first_state();
  return seed_events != 0;
}

void AllocationHistory::release_pages() const {
  const_cast<AllocationHistory*>(this)->visit_columns(
      [](const char*, const auto& column) { column.release_pages(); });
}

}  // namespace tidemark
