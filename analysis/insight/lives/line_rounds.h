// What a line of the program allocates between forward passes. An input is replaced by the next
// one, or by a later one if they are loaded ahead; a list keeps a block of every round.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "analysis/columns/allocation_columns.h"

namespace tidemark {

class LineRounds {
 public:
  // In the order of birth. `forward_births`: allocations of forward passes up to then.
  void add(const Allocation& a, uint64_t forward_births) {
    if (std::exchange(forward_births_, forward_births) == forward_births) return;
    if (count_ >= kAhead && releases_[count_ % kAhead] > a.birth) ++kept_;
    releases_[count_++ % kAhead] = a.release;
  }

  // Whether a block is often alive three rounds later.
  bool are_kept() const { return kept_ >= 2 && 4 * kept_ >= count_ - kAhead; }

 private:
  static constexpr uint32_t kAhead = 3;

  std::array<uint32_t, kAhead> releases_{};  // of the first blocks of the last rounds
  uint64_t forward_births_ = UINT64_MAX;     // at the last round
  uint32_t count_ = 0;
  uint32_t kept_ = 0;
};

}  // namespace tidemark
