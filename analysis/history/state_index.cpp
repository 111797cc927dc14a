#include "analysis/history/state_index.h"

#include <algorithm>
#include <iterator>

namespace tidemark {

namespace {

auto by_address(const AllocationHistory& model) {
  return [&model](uint32_t a, uint32_t b) {
    const uint64_t x = model.allocations.address(a);
    const uint64_t y = model.allocations.address(b);
    return x != y ? x < y : a < b;
  };
}

}  // namespace

void StateKeyframes::add(AllocationHistory& model, uint32_t allocations, uint32_t segment_changes) {
  const uint32_t event = model.event_count();
  const StateKeyframe last = model.states.empty() ? StateKeyframe{} : model.states.back();
  // The event itself is not part of the state, although its allocation may already refer to it.
  const auto dead = [&](uint32_t a) { return model.allocations.death(a) < event; };
  std::erase_if(live_, [&](const Live& l) { return dead(l.row); });
  const auto older = static_cast<std::ptrdiff_t>(live_.size());
  for (uint32_t a = last.allocations; a < allocations; ++a) {
    if (!dead(a)) live_.push_back({model.allocations.address(a), a});
  }
  std::sort(live_.begin() + older, live_.end());
  std::inplace_merge(live_.begin(), live_.begin() + older, live_.end());
  rows_.clear();
  for (const Live& l : live_) rows_.push_back(l.row);
  for (uint32_t row = last.segment_changes; row < segment_changes; ++row) ranges_.apply(model, row);
  const std::vector<SegmentRange> segments = ranges_.list();

  StateKeyframe frame;
  frame.live_begin = model.state_live.size();
  frame.live_count = static_cast<uint32_t>(live_.size());
  frame.segments_begin = model.state_segments.size();
  frame.segments_count = static_cast<uint32_t>(segments.size());
  frame.event = event;
  frame.allocations = allocations;
  frame.segment_changes = segment_changes;
  model.state_live.append(rows_.data(), rows_.size());
  model.state_segments.append(segments.data(), segments.size());
  model.states.push_back(frame);
  next_ = uint64_t{event} + std::max<uint64_t>(kMinSpacing, live_.size() + 10 * segments.size());
}

MemoryState state_after(const AllocationHistory& model, uint32_t event) {
  MemoryState state;
  if (model.event_count() == 0) return state;
  state.event = std::min(event, model.event_count() - 1);
  state.time_ns = model.time_ns[state.event];
  state.totals = model.totals_after(state.event);

  const StateKeyframe& frame =
      *std::prev(std::upper_bound(model.states.begin(), model.states.end(), state.event,
                                  [](uint32_t e, const StateKeyframe& f) { return e < f.event; }));
  SegmentRanges ranges({model.state_segments.data() + frame.segments_begin, frame.segments_count});
  for (uint32_t row = frame.segment_changes; row < model.segment_changes.size(); ++row) {
    if (model.segment_changes[row].event > state.event) break;
    ranges.apply(model, row);
  }
  state.segments = ranges.list();

  std::vector<uint32_t> born;
  for (uint32_t a = frame.allocations; a < model.allocations.size(); ++a) {
    if (model.allocations.birth(a) > state.event) break;
    if (model.allocations.death(a) > state.event) born.push_back(a);
  }
  std::sort(born.begin(), born.end(), by_address(model));
  const uint32_t* const kept = model.state_live.data() + frame.live_begin;
  state.live.reserve(frame.live_count + born.size());
  std::copy_if(kept, kept + frame.live_count, std::back_inserter(state.live),
               [&](uint32_t a) { return model.allocations.death(a) > state.event; });
  const auto middle = static_cast<std::ptrdiff_t>(state.live.size());
  state.live.insert(state.live.end(), born.begin(), born.end());
  std::inplace_merge(state.live.begin(), state.live.begin() + middle, state.live.end(),
                     by_address(model));
  find_holes(model, state);
  return state;
}

size_t StateIndex::memory_bytes() const {
  return model_->states.memory_bytes() + model_->state_live.memory_bytes() +
         model_->state_segments.memory_bytes();
}

}  // namespace tidemark
