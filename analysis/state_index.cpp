#include "analysis/state_index.h"

#include <algorithm>

namespace tidemark {

namespace {

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
  SegmentRanges ranges;
  uint64_t next = 0;
  for (uint32_t e = 0; e < model.event_count(); ++e) {
    if (e == next) {
      Keyframe frame{e, live.list(), {}};
      std::sort(frame.live.begin(), frame.live.end(), by_address(model));
      frame.segments = ranges.list();
      frames_.push_back(std::move(frame));
      next = uint64_t{e} + std::max<uint64_t>(kMinSpacing, live.list().size() + 10 * ranges.size());
    }
    if (model.change[e] == Change::kBirth) {
      live.add(model.subject[e]);
    } else if (model.change[e] == Change::kDeath) {
      live.remove(model.subject[e]);
    } else {
      ranges.apply(model, e);
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
  SegmentRanges ranges(frame.segments);
  std::vector<uint32_t> born;
  for (uint32_t e = frame.event; e <= state.event; ++e) {
    if (model.change[e] == Change::kBirth) {
      if (model.allocations[model.subject[e]].alive_at(state.event)) {
        born.push_back(model.subject[e]);
      }
    } else {
      ranges.apply(model, e);
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
  state.segments = ranges.list();
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

}  // namespace tidemark
