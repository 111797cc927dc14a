#include "analysis/history/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tidemark {

Rehearsal::Rehearsal(const AllocationHistory& model) : model_(model) {
  left_out_.resize(model.event_count());
}

void Rehearsal::leave_out(const Allocation& allocation, double share) {
  leave_out_from(allocation, allocation.birth, share);
}

void Rehearsal::leave_out_from(const Allocation& a, uint32_t event, double share) {
  if (event >= model_.event_count() || event >= a.release) return;
  const uint64_t bytes =
      share >= 1 ? a.block_bytes
                 : static_cast<uint64_t>(std::round(static_cast<double>(a.block_bytes) * share));
  left_out_[std::max(event, a.birth)] += bytes;
  if (a.release < model_.event_count()) left_out_[a.release] -= bytes;
}

void Rehearsal::hold_from(const Allocation& a, uint32_t event) {
  if (event >= a.birth) return;
  left_out_[event] -= a.block_bytes;
  left_out_[a.birth] += a.block_bytes;
}

// When a tenth is left of the older blocks that are freed before the peak.
uint32_t Rehearsal::first_counted() const {
  const uint32_t peak = model_.allocated_peak.event;
  uint64_t left = 0;
  std::vector<std::pair<uint32_t, uint64_t>> releases;
  for (size_t i = 0; i < model_.allocations.size() && model_.allocations.seeded(i); ++i) {
    if (model_.allocations.release(i) >= peak) continue;
    releases.emplace_back(model_.allocations.release(i), model_.allocations.block_bytes(i));
    left += releases.back().second;
  }
  std::sort(releases.begin(), releases.end());
  const uint64_t few = left / 10;
  for (const auto& [event, bytes] : releases) {
    left -= bytes;
    if (left <= few) return event;
  }
  return 0;
}

// Sums of unsigned numbers: sizes in a damaged file may be anything, and only those overflow.
uint64_t Rehearsal::peak_bytes() const {
  uint64_t level = 0;
  int64_t most = 0;
  const uint32_t first = first_counted();
  for (uint32_t e = 0; e < model_.event_count(); ++e) {
    const uint32_t s = model_.subject[e];
    if (model_.change[e] == Change::kBirth) {
      level += model_.allocations.block_bytes(s);
    } else if (model_.change[e] == Change::kRelease) {
      level -= model_.allocations.block_bytes(s);
    }
    level -= left_out_[e];
    if (e >= first) most = std::max(most, static_cast<int64_t>(level));
  }
  return static_cast<uint64_t>(most);
}

uint64_t Rehearsal::saved_bytes() const {
  const uint64_t remains = peak_bytes();
  return model_.allocated_peak.bytes - std::min(model_.allocated_peak.bytes, remains);
}

}  // namespace tidemark
