#include "viewer/model/flame/stretch.h"

#include <algorithm>

namespace tidemark::view {

StretchEvents events_of(const AllocationHistory& memory, const TimeRange& range) {
  const uint32_t first = memory.first_event_not([&](int64_t t) { return t < range.begin_ns; });
  const uint32_t last = memory.first_event_not([&](int64_t t) { return t <= range.end_ns; });
  return {std::max(first, std::min(last, memory.seed_events)), last};
}

TimeRange range_of(const AllocationHistory& memory, uint32_t first, uint32_t last) {
  const bool to_the_end = last >= memory.event_count();
  return {memory.time_ns[first],
          to_the_end ? memory.time_ns[memory.event_count() - 1] : memory.time_ns[last] - 1};
}

namespace {

// Calls visit(part, index, allocation) for every block and part.
template <typename Visit>
void each_block(const AllocationHistory& memory, const TimeRange& range, const Visit& visit) {
  const StretchEvents events = events_of(memory, range);
  for (uint32_t e = events.first; e < events.last; ++e) {
    const Change change = memory.change[e];
    if (change != Change::kBirth && change != Change::kRelease) continue;
    const uint32_t index = memory.subject[e];
    const Allocation a = memory.allocations[index];
    if (change == Change::kRelease) {
      visit(StretchPart::kFreed, index, a);
      continue;
    }
    if (a.seeded) continue;  // older than the recording
    visit(StretchPart::kAllocated, index, a);
    visit(events.has(a.release) ? StretchPart::kShortLived : StretchPart::kKept, index, a);
  }
}

}  // namespace

std::vector<uint32_t> blocks_in(const AllocationHistory& memory, const TimeRange& range,
                                StretchPart part) {
  std::vector<uint32_t> blocks;
  each_block(memory, range, [&](StretchPart p, uint32_t index, const Allocation&) {
    if (p == part) blocks.push_back(index);
  });
  return blocks;
}

StretchSums sums_in(const AllocationHistory& memory, const TimeRange& range) {
  StretchSums sums;
  each_block(memory, range, [&](StretchPart part, uint32_t, const Allocation& a) {
    StretchSum& sum = sums[static_cast<size_t>(part)];
    sum.bytes += a.block_bytes;
    ++sum.count;
  });
  return sums;
}

uint64_t older_bytes(const AllocationHistory& memory, const TimeRange& range,
                     const std::vector<uint32_t>& blocks) {
  const StretchEvents events = events_of(memory, range);
  uint64_t bytes = 0;
  for (const uint32_t b : blocks) {
    const Allocation a = memory.allocations[b];
    if (a.seeded || a.birth < events.first) bytes += a.block_bytes;
  }
  return bytes;
}

}  // namespace tidemark::view
