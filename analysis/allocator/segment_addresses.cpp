#include "analysis/allocator/segment_addresses.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace tidemark {

uint64_t DriverAddresses::allocate(uint64_t bytes) {
  auto gap =
      std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& g) { return g.second >= bytes; });
  if (gap == gaps_.end()) {
    const uint64_t chunk = std::max(kChunkBytes, std::bit_ceil(bytes));
    lowest_ -= chunk;
    free(lowest_, chunk);
    gap = gaps_.begin();
  }
  const auto [address, size] = *gap;
  gaps_.erase(gap);
  if (size > bytes) gaps_[address + bytes] = size - bytes;
  return address;
}

void DriverAddresses::free(uint64_t address, uint64_t bytes) {
  auto gap = gaps_.emplace(address, bytes).first;
  if (const auto next = std::next(gap);
      next != gaps_.end() && next->first == gap->first + gap->second) {
    gap->second += next->second;
    gaps_.erase(next);
  }
  if (gap == gaps_.begin()) return;
  const auto previous = std::prev(gap);
  if (previous->first + previous->second == gap->first) {
    previous->second += gap->second;
    gaps_.erase(gap);
  }
}

uint64_t DriverAddresses::reserve(uint64_t bytes) {
  const uint64_t address = next_range_;
  next_range_ += bytes;
  return address;
}

}  // namespace tidemark
