// A synthetic training run: the same step repeated, as the caching allocator of a transformer sees
// it.
//
// Each step makes 1,200 allocations and frees all of them. Sizes and stacks repeat, and so do
// addresses, as they do with a caching allocator. Times have realistic jitter.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

class SyntheticStream {
 public:
  static constexpr uint32_t kStacks = 900;

  explicit SyntheticStream(uint64_t seed = 1) : rng_(seed) { make_step(); }

  FrameworkEvent next() {
    FrameworkEvent event = step_[at_];
    at_ = (at_ + 1) % step_.size();
    const bool completes = event.action == FrameworkAction::kFreeCompleted;
    now_ns_ += completes ? 200 + static_cast<int64_t>(rng_() % 100)
                         : 1000 + static_cast<int64_t>(rng_() % 4096);
    event.time_ns = now_ns_;
    return event;
  }

 private:
  static constexpr size_t kAllocationsPerStep = 1200;
  static constexpr size_t kMostLive = 300;

  void make_step() {
    std::vector<FrameworkEvent> live;
    for (size_t i = 0; i < kAllocationsPerStep; ++i) {
      FrameworkEvent event{};
      event.action = FrameworkAction::kAlloc;
      event.size_bytes = (1 + rng_() % 2000) * 512 * (1 + rng_() % 8);
      event.address = 0x7f0000000000 + i * (uint64_t{16} << 20) + (rng_() % 4096) * 512;
      event.stack = 1 + static_cast<uint32_t>(rng_() % kStacks);
      step_.push_back(event);
      live.push_back(event);
      const size_t most = std::min(kMostLive, kAllocationsPerStep - 1 - i);
      while (live.size() > most) free_one(live);
    }
  }

  void free_one(std::vector<FrameworkEvent>& live) {
    const size_t victim = rng_() % live.size();
    for (const auto action : {FrameworkAction::kFreeRequested, FrameworkAction::kFreeCompleted}) {
      live[victim].action = action;
      step_.push_back(live[victim]);
    }
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
  }

  std::mt19937_64 rng_;
  std::vector<FrameworkEvent> step_;
  size_t at_ = 0;
  int64_t now_ns_ = 1'700'000'000'000'000'000;
};

}  // namespace tidemark
