// The allocator's memory after any event, fast enough to scrub.
//
// The model keeps the live allocations and segments at some events (keyframes), spaced so that all
// of them together take at most about four bytes per event. A state is the nearest keyframe before
// the event, minus the allocations freed and plus those made since.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "analysis/history/memory_state.h"

namespace tidemark {

// Reads the model, which must outlive it.
class StateIndex {
 public:
  explicit StateIndex(const AllocationHistory& model) : model_(&model) {}

  MemoryState state_after(uint32_t event) const { return tidemark::state_after(*model_, event); }

  size_t keyframe_count() const { return model_->states.size(); }
  size_t memory_bytes() const;

 private:
  const AllocationHistory* model_;
};

// Adds keyframes to a model while events are added to it.
class StateKeyframes {
 public:
  // Call before each event is added, with the numbers of allocations and segment changes before it.
  void before_event(AllocationHistory& model, uint32_t allocations, uint32_t segment_changes) {
    if (model.event_count() == next_) add(model, allocations, segment_changes);
  }

 private:
  static constexpr uint32_t kMinSpacing = 8192;

  void add(AllocationHistory& model, uint32_t allocations, uint32_t segment_changes);

  uint64_t next_ = 0;  // event
  SegmentRanges ranges_;
  struct Live {
    uint64_t address = 0;
    uint32_t row = 0;
    friend auto operator<=>(const Live&, const Live&) = default;
  };
  std::vector<Live> live_;  // of the last keyframe, sorted
  std::vector<uint32_t> rows_;
};

}  // namespace tidemark
