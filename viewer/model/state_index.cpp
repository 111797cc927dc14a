#include "viewer/model/state_index.h"

#include <algorithm>
#include <map>

namespace tidemark::view {

namespace {

using Ranges = std::map<uint64_t, SegmentRange>;

// As analysis/memory_state.cpp joins and cuts ranges.
void grow(Ranges& ranges, const SegmentChange& c, uint32_t index) {
  SegmentRange range{c.address, c.size_bytes, c.stream, index, c.expandable};
  if (c.expandable) {
    auto next = ranges.upper_bound(c.address);
    if (next != ranges.end() && next->second.expandable &&
        next->first == range.address + range.size_bytes) {
      range.size_bytes += next->second.size_bytes;
      next = ranges.erase(next);
    }
    if (next != ranges.begin()) {
      SegmentRange& before = std::prev(next)->second;
      if (before.expandable && before.address + before.size_bytes == range.address) {
        before.size_bytes += range.size_bytes;
        return;
      }
    }
  }
  ranges[range.address] = range;
}

void shrink(Ranges& ranges, const SegmentChange& c) {
  auto it = ranges.upper_bound(c.address);
  if (it == ranges.begin()) return;
  --it;
  const SegmentRange whole = it->second;
  const uint64_t end = whole.address + whole.size_bytes;
  if (c.address >= end) return;
  ranges.erase(it);
  if (c.address > whole.address) {
    SegmentRange front = whole;
    front.size_bytes = c.address - whole.address;
    ranges[front.address] = front;
  }
  if (end - c.address > c.size_bytes) {
    SegmentRange rest = whole;
    rest.address = c.address + c.size_bytes;
    rest.size_bytes = end - rest.address;
    ranges[rest.address] = rest;
  }
}

void apply_segment(const FrameworkModel& model, uint32_t event, Ranges& ranges) {
  const uint32_t subject = model.subject[event];
  if (model.change[event] == Change::kGrow) {
    grow(ranges, model.segment_changes[subject], subject);
  } else if (model.change[event] == Change::kShrink) {
    shrink(ranges, model.segment_changes[subject]);
  }
}

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

auto by_address(const FrameworkModel& model) {
  return [&model](uint32_t a, uint32_t b) {
    const uint64_t x = model.allocations[a].address;
    const uint64_t y = model.allocations[b].address;
    return x != y ? x < y : a < b;
  };
}

// The live allocations while events pass: a list with the place of each allocation in it.
class LiveSet {
 public:
  explicit LiveSet(size_t allocations) : place_(allocations) {}

  void add(uint32_t allocation) {
    place_[allocation] = static_cast<uint32_t>(list_.size());
    list_.push_back(allocation);
  }
  void remove(uint32_t allocation) {
    const uint32_t hole = place_[allocation];
    list_[hole] = list_.back();
    place_[list_[hole]] = hole;
    list_.pop_back();
  }
  const std::vector<uint32_t>& list() const { return list_; }

 private:
  std::vector<uint32_t> list_;
  std::vector<uint32_t> place_;
};

}  // namespace

StateIndex::StateIndex(const FrameworkModel& model) : model_(&model) {
  LiveSet live(model.allocations.size());
  Ranges ranges;
  uint64_t next = 0;
  for (uint32_t e = 0; e < model.event_count(); ++e) {
    if (e == next) {
      Keyframe frame{e, live.list(), {}};
      std::sort(frame.live.begin(), frame.live.end(), by_address(model));
      for (const auto& [address, range] : ranges) frame.segments.push_back(range);
      frames_.push_back(std::move(frame));
      next = uint64_t{e} + std::max<uint64_t>(kMinSpacing, live.list().size() + 10 * ranges.size());
    }
    if (model.change[e] == Change::kBirth) {
      live.add(model.subject[e]);
    } else if (model.change[e] == Change::kDeath) {
      live.remove(model.subject[e]);
    } else {
      apply_segment(model, e, ranges);
    }
  }
}

MemoryState StateIndex::state_after(uint32_t event) const {
  MemoryState state;
  const FrameworkModel& model = *model_;
  if (model.event_count() == 0) return state;
  state.event = std::min(event, model.event_count() - 1);
  state.time_ns = model.time_ns[state.event];
  state.totals = model.totals_after(state.event);

  const auto after = std::upper_bound(frames_.begin(), frames_.end(), state.event,
                                      [](uint32_t e, const Keyframe& f) { return e < f.event; });
  const Keyframe& frame = *std::prev(after);
  Ranges ranges;
  for (const SegmentRange& range : frame.segments) ranges[range.address] = range;
  std::vector<uint32_t> born;
  for (uint32_t e = frame.event; e <= state.event; ++e) {
    if (model.change[e] == Change::kBirth) {
      if (model.allocations[model.subject[e]].alive_at(state.event)) {
        born.push_back(model.subject[e]);
      }
    } else {
      apply_segment(model, e, ranges);
    }
  }
  std::sort(born.begin(), born.end(), by_address(model));
  std::vector<uint32_t> kept;
  kept.reserve(frame.live.size());
  std::copy_if(frame.live.begin(), frame.live.end(), std::back_inserter(kept),
               [&](uint32_t a) { return model.allocations[a].alive_at(state.event); });
  state.live.resize(kept.size() + born.size());
  std::merge(kept.begin(), kept.end(), born.begin(), born.end(), state.live.begin(),
             by_address(model));
  for (const auto& [address, range] : ranges) state.segments.push_back(range);
  find_holes(model, state);
  return state;
}

size_t StateIndex::memory_bytes() const {
  size_t bytes = 0;
  for (const Keyframe& f : frames_) {
    bytes += sizeof(f) + f.live.capacity() * sizeof(uint32_t) +
             f.segments.capacity() * sizeof(SegmentRange);
  }
  return bytes;
}

}  // namespace tidemark::view
