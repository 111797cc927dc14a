#include "analysis/history/memory_state.h"

#include <algorithm>
#include <iterator>

namespace tidemark {

SegmentRanges::SegmentRanges(std::span<const SegmentRange> ranges) {
  for (const SegmentRange& range : ranges) ranges_[range.address] = range;
}

void SegmentRanges::grow(const SegmentChange& c, uint32_t index) {
  SegmentRange range{c.address, c.size_bytes, c.stream, index, c.expandable};
  if (c.expandable) {
    auto next = ranges_.upper_bound(c.address);
    if (next != ranges_.end() && next->second.expandable &&
        next->first == range.address + range.size_bytes) {
      range.size_bytes += next->second.size_bytes;
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin()) {
      SegmentRange& before = std::prev(next)->second;
      if (before.expandable && before.address + before.size_bytes == range.address) {
        before.size_bytes += range.size_bytes;
        return;
      }
    }
  }
  ranges_[range.address] = range;
}

void SegmentRanges::shrink(const SegmentChange& c) {
  auto it = ranges_.upper_bound(c.address);
  if (it == ranges_.begin()) return;
  --it;
  const SegmentRange whole = it->second;
  const uint64_t end = whole.address + whole.size_bytes;
  if (c.address >= end) return;
  ranges_.erase(it);
  if (c.address > whole.address) {
    SegmentRange front = whole;
    front.size_bytes = c.address - whole.address;
    ranges_[front.address] = front;
  }
  if (end - c.address > c.size_bytes) {
    SegmentRange rest = whole;
    rest.address = c.address + c.size_bytes;
    rest.size_bytes = end - rest.address;
    ranges_[rest.address] = rest;
  }
}

void SegmentRanges::apply(const AllocationHistory& model, uint32_t row) {
  const SegmentChange& change = model.segment_changes[row];
  if (change.grows) {
    grow(change, row);
  } else {
    shrink(change);
  }
}

std::vector<SegmentRange> SegmentRanges::list() const {
  std::vector<SegmentRange> list;
  list.reserve(ranges_.size());
  for (const auto& [address, range] : ranges_) list.push_back(range);
  return list;
}

// Walks blocks and segments together by address.
void find_holes(const AllocationHistory& model, MemoryState& state) {
  size_t next = 0;
  for (uint32_t s = 0; s < state.segments.size(); ++s) {
    const SegmentRange& segment = state.segments[s];
    const uint64_t end = segment.address + segment.size_bytes;
    uint64_t at = segment.address;
    for (; next < state.live.size(); ++next) {
      const uint64_t address = model.allocations.address(state.live[next]);
      if (address < at) continue;  // in no segment, or overlapping: an inconsistent history
      if (address >= end) break;
      if (address > at) state.holes.push_back({at, address - at, s});
      at = address + model.allocations.block_bytes(state.live[next]);
    }
    if (at < end) state.holes.push_back({at, end - at, s});
  }
}

const Hole* MemoryState::largest_hole() const {
  const auto largest = std::max_element(
      holes.begin(), holes.end(),
      [](const Hole& a, const Hole& b) { return a.size_bytes < b.size_bytes; });
  return largest == holes.end() ? nullptr : &*largest;
}

uint64_t MemoryState::largest_hole_bytes() const {
  const Hole* largest = largest_hole();
  return largest == nullptr ? 0 : largest->size_bytes;
}

}  // namespace tidemark
