#include "viewer/model/flame/stretch.h"

namespace tidemark::view {

namespace {

struct Events {
  uint32_t first = 0;
  uint32_t last = 0;  // not part of it

  bool has(uint32_t event) const { return event >= first && event < last; }
};

Events events_of(const AllocationHistory& memory, const TimeRange& range) {
  return {memory.first_event_not([&](int64_t t) { return t < range.begin_ns; }),
          memory.first_event_not([&](int64_t t) { return t <= range.end_ns; })};
}

// Calls visit(part, index, allocation) for every block and part.
template <typename Visit>
void each_block(const AllocationHistory& memory, const TimeRange& range, const Visit& visit) {
  const Events events = events_of(memory, range);
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
  const Events events = events_of(memory, range);
  uint64_t bytes = 0;
  for (const uint32_t b : blocks) {
    const Allocation a = memory.allocations[b];
    if (a.seeded || a.birth < events.first) bytes += a.block_bytes;
  }
  return bytes;
}

uint32_t events_in(const AllocationHistory& memory, const TimeRange& range) {
  const Events events = events_of(memory, range);
  return events.last - events.first;
}

}  // namespace tidemark::view
