// Allocates addresses first fit, lowest first, and takes them back: freed ranges are reused soon,
// as by a real driver. Manages ranges only; there is no memory behind them.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace tidemark::simgpu {

class AddressSpace {
 public:
  AddressSpace() = default;
  AddressSpace(uint64_t base, uint64_t bytes) { free_.emplace(base, bytes); }

  // 0: no free range is large enough.
  uint64_t take(uint64_t bytes, uint64_t alignment) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const uint64_t start = (it->first + alignment - 1) / alignment * alignment;
      const uint64_t skipped = start - it->first;
      if (skipped <= it->second && it->second - skipped >= bytes) {
        cut(it, start, bytes);
        return start;
      }
    }
    return 0;
  }

  // Takes the range at `address`; false if any of it is in use.
  bool take_at(uint64_t address, uint64_t bytes) {
    auto it = free_.upper_bound(address);
    if (it == free_.begin()) return false;
    --it;
    const uint64_t skipped = address - it->first;
    if (skipped > it->second || it->second - skipped < bytes) return false;
    cut(it, address, bytes);
    return true;
  }

  void give(uint64_t address, uint64_t bytes) {
    auto next = free_.lower_bound(address);
    if (next != free_.end() && address + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == address) {
        previous->second += bytes;
        return;
      }
    }
    free_.emplace(address, bytes);
  }

  const std::map<uint64_t, uint64_t>& free_ranges() const { return free_; }

 private:
  void cut(std::map<uint64_t, uint64_t>::iterator it, uint64_t start, uint64_t bytes) {
    const uint64_t range = it->first;
    const uint64_t range_bytes = it->second;
    free_.erase(it);
    if (start > range) free_.emplace(range, start - range);
    const uint64_t end = start + bytes;
    if (end < range + range_bytes) free_.emplace(end, range + range_bytes - end);
  }

  std::map<uint64_t, uint64_t> free_;  // address -> bytes, never adjacent
};

}  // namespace tidemark::simgpu
