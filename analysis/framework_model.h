// What the framework's allocator did on one device of one process: every allocation with its birth
// and death, every segment, and the totals after every event.
//
// Columns are immutable once built. An event is one change of the totals; its index is the exact
// order, its time is for people (many events share a microsecond). Totals are kept at every
// kKeyframe-th event and recomputed in between, so that any instant costs O(log n) and the memory
// is 13 bytes per event.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/block_map.h"
#include "proto/rows.h"

namespace tidemark {

inline constexpr uint32_t kNever = UINT32_MAX;

enum class Change : uint8_t {
  kBirth,    // subject: allocation
  kRelease,  // the program gave it back; subject: allocation
  kDeath,    // the allocator may use it again; subject: allocation
  kGrow,     // subject: segment change
  kShrink,   // subject: segment change
};

struct Allocation {
  uint64_t address = 0;
  uint64_t block_bytes = 0;
  uint64_t requested_bytes = 0;
  uint64_t stream = 0;
  int64_t birth_ns = 0;
  int64_t death_ns = INT64_MAX;
  uint32_t birth = 0;         // event index; 0 with `seeded`
  uint32_t release = kNever;  // event index
  uint32_t death = kNever;    // event index
  uint32_t stack = 0;
  uint32_t compile_context = 0;  // string
  uint32_t metadata = 0;         // string
  uint32_t pool = 0;             // where the recorder knew it; 0: default pool
  Category category = Category::kUnknown;
  bool seeded = false;  // lived before the recorded history

  bool alive_at(uint32_t event) const { return birth <= event && event < death; }
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
  bool small = false;  // seeded ones: holds requests of up to kSmallBytes
};

// An allocation that failed, and where in the history.
struct FailedAllocation {
  int64_t time_ns = 0;
  uint64_t requested_bytes = 0;
  uint64_t device_free_bytes = 0;
  uint32_t stack = 0;
  uint32_t event = 0;  // the last change before it; only when events > 0
  uint64_t stream = 0;
  uint32_t pool = 0;
};

struct Peak {
  uint64_t bytes = 0;
  int64_t time_ns = 0;
  uint32_t event = 0;
};

class FrameworkModel {
 public:
  static constexpr uint32_t kKeyframe = 4096;

  int64_t device = 0;
  std::vector<Allocation> allocations;
  std::vector<SegmentChange> segment_changes;
  std::vector<FailedAllocation> failures;

  // Columns, one element per event.
  std::vector<int64_t> time_ns;
  std::vector<uint32_t> subject;
  std::vector<Change> change;
  std::vector<MemoryTotals> keyframes;  // totals before event i * kKeyframe

  Peak allocated_peak;
  Peak requested_peak;
  Peak active_peak;
  Peak reserved_peak;

  uint64_t recorded_events = 0;  // rows of the trace, snapshots and errors included
  uint64_t seeded_blocks = 0;    // blocks older than the history
  uint64_t seeded_bytes = 0;
  uint64_t anomalies = 0;  // events that contradicted what was known

  uint32_t event_count() const { return static_cast<uint32_t>(change.size()); }
  // Totals after the event; event_count() - 1 is the end.
  MemoryTotals totals_after(uint32_t event) const;
  // The last event at or before the time; false when there is none.
  bool event_at(int64_t time, uint32_t& event) const;

 private:
  friend class FrameworkReplay;
  void apply(uint32_t event, MemoryTotals& totals) const;
};

}  // namespace tidemark
