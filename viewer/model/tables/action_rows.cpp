#include "viewer/model/tables/action_rows.h"

#include <algorithm>

namespace tidemark::view {

namespace {

ActionRow row_of(const AllocationHistory& memory, uint32_t event) {
  ActionRow row;
  row.event = event;
  row.change = memory.change[event];
  row.time_ns = memory.time_ns[event];
  const uint32_t subject = memory.subject[event];
  if (row.change == Change::kGrow || row.change == Change::kShrink) {
    const SegmentChange& segment = memory.segment_changes[subject];
    row.bytes = segment.size_bytes;
    row.stack = segment.stack;
    row.seeded = segment.seeded;
    row.address = segment.address;
    row.stream = segment.stream;
    row.pool = segment.pool;
  } else {
    const Allocation a = memory.allocations[subject];
    row.bytes = a.block_bytes;
    row.stack = a.stack;
    row.seeded = a.seeded;
    row.address = a.address;
    row.stream = a.stream;
    row.pool = a.pool;
  }
  return row;
}

}  // namespace

std::string_view action_name(const ActionRow& row) {
  if (row.failed) return "out of memory";
  switch (row.change) {
    case Change::kBirth:
      return "allocate";
    case Change::kRelease:
      return "free";
    case Change::kPending:
      return "pending free";
    case Change::kDeath:
      return "free completed";
    case Change::kGrow:
      return "reserve segment";
    case Change::kShrink:
      return "release segment";
  }
  return "";
}

size_t action_at(const std::vector<ActionRow>& rows, uint32_t event, int64_t time_ns) {
  size_t at = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].event != event) continue;
    if (!rows[i].failed || rows[i].time_ns == time_ns) at = i;
  }
  return at;
}

std::vector<ActionRow> action_rows(const AllocationHistory& memory, uint32_t event,
                                   uint32_t around) {
  std::vector<ActionRow> rows;
  const uint32_t count = memory.event_count();
  if (count == 0) return rows;
  const uint32_t first = std::max(event > around ? event - around : 0, memory.first_state());
  const uint32_t last = std::min<uint32_t>(count - 1, event + std::min(around, count));
  for (uint32_t e = first; e <= last; ++e) {
    if (e >= memory.seed_events) rows.push_back(row_of(memory, e));
    for (const FailedAllocation& f : memory.failures) {
      if (f.event != e) continue;
      ActionRow failed;
      failed.event = e;
      failed.failed = true;
      failed.time_ns = f.time_ns;
      failed.bytes = f.requested_bytes;
      failed.stack = f.stack;
      failed.stream = f.stream;
      failed.pool = f.pool;
      rows.push_back(failed);
    }
  }
  return rows;
}

}  // namespace tidemark::view
