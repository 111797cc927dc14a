// The allocator's memory after any event, fast enough to scrub.
//
// Keeps the live allocations and segments at some events (keyframes), far enough apart that all of
// them together take at most about four bytes per event. A state is the nearest keyframe before the
// event, less what died and plus what was born since. Immutable once built; the model must outlive
// it. Gives the same answer as state_after(), which a test holds it to.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/memory_state.h"

namespace tidemark {

class StateIndex {
 public:
  explicit StateIndex(const FrameworkModel& model);

  MemoryState state_after(uint32_t event) const;

  size_t keyframe_count() const { return frames_.size(); }
  size_t memory_bytes() const;

 private:
  // State before the event.
  struct Keyframe {
    uint32_t event = 0;
    std::vector<uint32_t> live;  // by address
    std::vector<SegmentRange> segments;
  };

  static constexpr uint32_t kMinSpacing = 8192;

  const FrameworkModel* model_;
  std::vector<Keyframe> frames_;
};

}  // namespace tidemark
