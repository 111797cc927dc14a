#include "analysis/memory_state.h"

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

void SegmentRanges::apply(const FrameworkModel& model, uint32_t event) {
  const uint32_t subject = model.subject[event];
  if (model.change[event] == Change::kGrow) {
    grow(model.segment_changes[subject], subject);
  } else if (model.change[event] == Change::kShrink) {
    shrink(model.segment_changes[subject]);
  }
}

std::vector<SegmentRange> SegmentRanges::list() const {
  std::vector<SegmentRange> list;
  list.reserve(ranges_.size());
  for (const auto& [address, range] : ranges_) list.push_back(range);
  return list;
}

// Walks blocks and segments together by address.
void find_holes(const FrameworkModel& model, MemoryState& state) {
  size_t next = 0;
  for (uint32_t s = 0; s < state.segments.size(); ++s) {
    const SegmentRange& segment = state.segments[s];
    const uint64_t end = segment.address + segment.size_bytes;
    uint64_t at = segment.address;
    for (; next < state.live.size(); ++next) {
      const Allocation& a = model.allocations[state.live[next]];
      if (a.address < at) continue;  // in no segment, or overlapping: an odd history
      if (a.address >= end) break;
      if (a.address > at) state.holes.push_back({at, a.address - at, s});
      at = a.address + a.block_bytes;
    }
    if (at < end) state.holes.push_back({at, end - at, s});
  }
}

uint64_t MemoryState::largest_hole_bytes() const {
  uint64_t largest = 0;
  for (const Hole& hole : holes) largest = std::max(largest, hole.size_bytes);
  return largest;
}

MemoryState state_after(const FrameworkModel& model, uint32_t event) {
  MemoryState state;
  if (model.event_count() == 0) return state;
  state.event = std::min(event, model.event_count() - 1);
  state.time_ns = model.time_ns[state.event];
  state.totals = model.totals_after(state.event);

  SegmentRanges ranges;
  for (uint32_t e = 0; e <= state.event; ++e) ranges.apply(model, e);
  state.segments = ranges.list();
  for (uint32_t i = 0; i < model.allocations.size(); ++i) {
    if (model.allocations[i].alive_at(state.event)) state.live.push_back(i);
  }
  std::sort(state.live.begin(), state.live.end(), [&](uint32_t a, uint32_t b) {
    return model.allocations[a].address < model.allocations[b].address;
  });
  find_holes(model, state);
  return state;
}

}  // namespace tidemark
