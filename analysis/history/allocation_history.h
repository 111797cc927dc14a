// The allocations of one layer on one device of one process: those of the framework's allocator or,
// built by analysis/insight/outside_history.h, those of the driver. It holds every allocation with
// its birth and death, every segment, and the totals after every event.
//
// Columns are immutable once built. An event is one change of the totals. Its index gives the exact
// order; its time is for display, as many events share a microsecond. Totals are kept at every
// kKeyframe-th event and recomputed in between, their minima and maxima in a tree over groups of
// events, the full state at some events. So a query for any instant or range costs O(log n). Times
// and totals at every kCell-th event are stored contiguously: drawing the whole run reads nothing
// else. All of this takes 20 bytes per event and 25 per allocation, in memory or in files
// (analysis/columns/data_column.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "analysis/columns/allocation_columns.h"
#include "analysis/columns/data_column.h"
#include "analysis/columns/extremes.h"
#include "analysis/history/block_map.h"
#include "proto/rows.h"

namespace tidemark {

enum class Change : uint8_t {
  kBirth,    // subject: allocation
  kRelease,  // the program freed it; subject: allocation
  kDeath,    // the allocator may reuse it; subject: allocation
  kPending,  // older than the history, and the program had freed it; subject: allocation
  kGrow,     // subject: segment change
  kShrink,   // subject: segment change
};

struct SegmentChange {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t stream = 0;
  int64_t time_ns = 0;
  uint32_t stack = 0;
  uint32_t pool = 0;
  bool expandable = false;
  bool seeded = false;
  bool small = false;  // only if seeded: serves requests of up to kSmallBytes
  bool grows = false;
  uint32_t event = 0;
};

struct SegmentRange {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t stream = 0;
  uint32_t change = 0;  // the segment change that created it (the first, for a range that grew)
  bool expandable = false;
};

// Where the state before an event is stored: ranges of the columns below, and the number of rows of
// other tables that precede it.
struct StateKeyframe {
  uint64_t live_begin = 0;      // in state_live
  uint64_t segments_begin = 0;  // in state_segments
  uint32_t live_count = 0;
  uint32_t segments_count = 0;
  uint32_t event = 0;
  uint32_t allocations = 0;
  uint32_t segment_changes = 0;
  uint32_t reserved = 0;
};

// The start of a cell of kCell events, and the curves before its first event.
struct CellStart {
  int64_t time_ns = 0;
  CurveValues before{};
};

// A request that failed for lack of memory, in either layer.
struct FailedAllocation {
  int64_t time_ns = 0;
  int64_t device = 0;
  uint64_t requested_bytes = 0;
  uint64_t device_free_bytes = 0;  // the driver layer does not know it
  uint64_t stream = 0;
  uint32_t stack = 0;
  uint32_t pool = 0;
  uint32_t owner = 0;  // string; driver layer only
  uint32_t event = 0;     // the last event before it, in a history that has events
  uint32_t refusals = 0;  // of the driver, which led to this failure of the framework
  Layer layer = Layer::kFramework;

  // As a row of the trace format, with the totals at that time.
  OutOfMemory as_row(const MemoryTotals& totals) const;
};

struct Peak {
  uint64_t bytes = 0;
  int64_t time_ns = 0;
  uint32_t event = 0;
};

class AllocationHistory {
 public:
  // Recomputing an event costs a cache miss, so keyframes are close together: drawing queries one
  // instant per pixel column.
  static constexpr uint32_t kKeyframe = 32;
  // A node of the third level of analysis/history/minmax_pyramid.h.
  static constexpr uint32_t kCell = 512;

  int64_t device = 0;
  AllocationColumns allocations;  // by birth
  DataColumn<SegmentChange> segment_changes;
  std::vector<FailedAllocation> failures;

  // Columns, one element per event.
  DataColumn<int64_t> time_ns;
  DataColumn<uint32_t> subject;
  DataColumn<Change> change;

  DataColumn<MemoryTotals> keyframes;  // totals before event i * kKeyframe
  DataColumn<Extremes> extremes;       // see analysis/history/minmax_pyramid.h
  DataColumn<CellStart> cells;         // at event i * kCell
  DataColumn<StateKeyframe> states;    // see analysis/history/state_index.h
  DataColumn<uint32_t> state_live;
  DataColumn<SegmentRange> state_segments;

  Peak allocated_peak;
  Peak requested_peak;
  Peak active_peak;
  Peak reserved_peak;

  uint64_t recorded_events = 0;  // rows of the trace, snapshots and errors included
  uint32_t seed_events = 0;      // at the front: the state before the history, bit by bit
  uint64_t seeded_blocks = 0;    // blocks older than the history
  uint64_t seeded_bytes = 0;
  uint64_t anomalies = 0;  // events that contradicted earlier ones

  uint32_t event_count() const { return static_cast<uint32_t>(change.size()); }
  // The first event after which the state is whole: that before the history, if there is one.
  uint32_t first_state() const { return seed_events == 0 ? 0 : seed_events - 1; }
  // As users count: 1 is the first one that was recorded, 0 the state before the history.
  uint32_t event_number(uint32_t event) const {
    return event + 1 - std::min(event + 1, seed_events);
  }
  // Totals after the event; event_count() - 1 is the end.
  MemoryTotals totals_after(uint32_t event) const;
  // Finds the last event at or before the time; false when there is none.
  bool event_at(int64_t time, uint32_t& event) const;
  // Finds the event after which the state is that of the time: before the history, what is older
  // than it. False: nothing is known yet.
  bool state_event_at(int64_t time, uint32_t& event) const;
  // The first event for which before(time) is false; times ascend. event_count(): none.
  template <typename Before>
  uint32_t first_event_not(const Before& before) const {
    const CellStart* const cell = std::partition_point(
        cells.begin(), cells.end(), [&](const CellStart& c) { return before(c.time_ns); });
    if (cell == cells.begin()) return 0;
    const auto end = static_cast<size_t>(cell - cells.begin()) * kCell;
    const int64_t* const first = time_ns.begin() + (end - kCell);
    const int64_t* const last = time_ns.begin() + std::min(end, time_ns.size());
    return static_cast<uint32_t>(std::partition_point(first, last, before) - time_ns.begin());
  }
  // Applies the event's change to the totals.
  void apply(uint32_t event, MemoryTotals& totals) const;

  // Calls visit(name, column) for each column that may be stored in a file.
  template <typename Visit>
  void visit_columns(Visit&& visit) {
    allocations.visit_columns(visit);
    visit("segment_changes", segment_changes);
    visit("time", time_ns);
    visit("subject", subject);
    visit("change", change);
    visit("keyframes", keyframes);
    visit("extremes", extremes);
    visit("cells", cells);
    visit("states", states);
    visit("state_live", state_live);
    visit("state_segments", state_segments);
  }
  // Drops file-backed pages from this process's memory until they are read again. Call it after a
  // pass over all events.
  void release_pages() const;
  // The same, at intervals during such a pass: call it with each row or event.
  void passed(size_t row) const {
    constexpr size_t kBetween = size_t{1} << 22;
    if (row % kBetween == 0) release_pages();
  }
};

}  // namespace tidemark
