// A synthetic training run: the same step repeated, as the caching allocator of a transformer sees
// it.
//
// Each step makes 1,200 allocations and frees all of them. Sizes and stacks repeat, and so do
// addresses, as they do with a caching allocator: blocks are split off free ones by PyTorch's rules
// and merged with their free neighbours. Times have realistic jitter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

class SyntheticStream {
 public:
  static constexpr uint32_t kStacks = 900;

  explicit SyntheticStream(uint64_t seed = 1) : rng_(seed) { make_step(); }

  // All segments come first.
  FrameworkEvent next() {
    const bool begins = begun_ < segments_.size();
    FrameworkEvent event = begins ? segments_[begun_++] : step_[at_];
    if (!begins) at_ = (at_ + 1) % step_.size();
    const bool completes = event.action == FrameworkAction::kFreeCompleted;
    now_ns_ += completes ? 200 + static_cast<int64_t>(rng_() % 100)
                         : 1000 + static_cast<int64_t>(rng_() % 4096);
    event.time_ns = now_ns_;
    return event;
  }

 private:
  static constexpr size_t kAllocationsPerStep = 1200;
  static constexpr size_t kMostLive = 300;
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  struct Live {
    FrameworkEvent event;
    uint64_t block_bytes;
  };

  static bool is_small(uint64_t bytes) { return bytes <= kMiB; }

  void make_step() {
    std::vector<Live> live;
    for (size_t i = 0; i < kAllocationsPerStep; ++i) {
      FrameworkEvent event{};
      event.action = FrameworkAction::kAlloc;
      event.size_bytes = (1 + rng_() % 2000) * 512 * (1 + rng_() % 8);
      event.stack = 1 + static_cast<uint32_t>(rng_() % kStacks);
      const uint64_t block_bytes = place(event);
      step_.push_back(event);
      live.push_back({event, block_bytes});
      const size_t most = std::min(kMostLive, kAllocationsPerStep - 1 - i);
      while (live.size() > most) free_one(live);
    }
  }

  // Gives it the best fitting free block, of which the rest stays free if it is worth it.
  uint64_t place(FrameworkEvent& event) {
    const bool small = is_small(event.size_bytes);
    FreeBlocks& pool = free_[small ? 0 : 1];
    auto best = pool.end();
    for (auto it = pool.begin(); it != pool.end(); ++it) {
      const bool fits = it->second >= event.size_bytes;
      if (fits && (best == pool.end() || it->second < best->second)) best = it;
    }
    if (best == pool.end()) best = add_segment(small, event.size_bytes);
    event.address = best->first;
    uint64_t bytes = best->second;
    pool.erase(best);
    const uint64_t rest = bytes - event.size_bytes;
    if (rest > (small ? 0 : kMiB)) {
      bytes = event.size_bytes;
      pool[event.address + bytes] = rest;
    }
    return bytes;
  }

  using FreeBlocks = std::map<uint64_t, uint64_t>;  // address -> bytes

  FreeBlocks::iterator add_segment(bool small, uint64_t bytes) {
    FrameworkEvent segment{};
    segment.action = FrameworkAction::kSegmentAlloc;
    segment.address = next_segment_;
    segment.size_bytes =
        small ? 2 * kMiB : std::max(20 * kMiB, (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));
    next_segment_ += segment.size_bytes + 2 * kMiB;  // apart: blocks of two segments never merge
    segments_.push_back(segment);
    return free_[small ? 0 : 1].emplace(segment.address, segment.size_bytes).first;
  }

  void free_one(std::vector<Live>& live) {
    const size_t victim = rng_() % live.size();
    FrameworkEvent event = live[victim].event;
    for (const auto action : {FrameworkAction::kFreeRequested, FrameworkAction::kFreeCompleted}) {
      event.action = action;
      step_.push_back(event);
    }
    give_back(event.address, live[victim].block_bytes, free_[is_small(event.size_bytes) ? 0 : 1]);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
  }

  static void give_back(uint64_t address, uint64_t bytes, FreeBlocks& pool) {
    auto block = pool.emplace(address, bytes).first;
    if (const auto next = std::next(block); next != pool.end() && next->first == address + bytes) {
      block->second += next->second;
      pool.erase(next);
    }
    if (block == pool.begin()) return;
    const auto previous = std::prev(block);
    if (previous->first + previous->second != address) return;
    previous->second += block->second;
    pool.erase(block);
  }

  std::mt19937_64 rng_;
  std::vector<FrameworkEvent> segments_;
  std::vector<FrameworkEvent> step_;
  std::array<FreeBlocks, 2> free_;  // of small blocks, of large ones
  uint64_t next_segment_ = 0x7f0000000000;
  size_t begun_ = 0;
  size_t at_ = 0;
  int64_t now_ns_ = 1'700'000'000'000'000'000;
};

}  // namespace tidemark
