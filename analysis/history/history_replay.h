// Turns the recorded events of one device into an AllocationHistory.
//
// Call seed() first, then apply() for every event in order, then finish(). The block map gives each
// allocation its actual block size.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/history/allocation_history.h"
#include "analysis/history/seed.h"
#include "analysis/history/state_index.h"

namespace tidemark {

// The stack that stands for one that names an nn.Module, and that nn.Module.
struct StackMeaning {
  uint32_t plain = 0;
  uint32_t nn_module = 0;
};

class HistoryReplay {
 public:
  // `meanings` by stack; a stack outside of it means itself.
  HistoryReplay(int64_t device, const AllocatorRules& rules,
                std::span<const StackMeaning> meanings = {});

  // The state before the first event, which happened at `time_ns`.
  void seed(const SeedState& state, int64_t time_ns);
  void apply(const FrameworkEvent& event);
  AllocationHistory finish() &&;
  // For callers that put its columns into files before the first event.
  AllocationHistory& model() { return model_; }

 private:
  void birth(const FrameworkEvent& event, uint64_t block_bytes);
  void seed(const SeedBlock& block, int64_t time_ns);
  uint32_t add(const FrameworkEvent& event, uint64_t block_bytes, bool seeded);
  void release(uint64_t address, int64_t time_ns);
  void death(uint64_t address, int64_t time_ns);
  void segment(const SegmentChange& change, bool grows);
  void note(Change change, uint32_t subject, int64_t time_ns);
  void note_peaks(Change change, int64_t time_ns);

  StackMeaning meaning(uint32_t stack) const {
    return stack < meanings_.size() ? meanings_[stack] : StackMeaning{stack, 0};
  }

  AllocatorRules rules_;
  std::span<const StackMeaning> meanings_;
  BlockMap map_;
  AllocationHistory model_;
  MemoryTotals last_;
  Extremes leaf_ = Extremes::nothing();  // since the last keyframe
  StateKeyframes states_;
};

}  // namespace tidemark
