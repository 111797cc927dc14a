// What this process holds of each device through the driver, to notice a new high.
//
// A free names only its address, so the sizes are kept in a fixed table of atomics: a callback
// never waits and never allocates. What finds no place in the table is not counted, which costs at
// most a reading of the card. VMM memory counts from cuMemCreate to cuMemRelease.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/rows.h"

namespace tidemark::injector {

class LiveTotal {
 public:
  // Counts a successful call. True: the device's total has never been as high.
  bool note(const DriverEvent& event) noexcept;
  void clear() noexcept;

 private:
  static constexpr size_t kEntries = size_t{1} << 15;
  static constexpr size_t kProbes = 32;
  static constexpr size_t kDevices = 64;
  struct Entry {
    std::atomic<uint64_t> key{0};  // address or handle
    std::atomic<uint64_t> bytes{0};
  };
  Entry& entry(uint64_t key, size_t probe) noexcept;
  bool add(uint64_t key, uint64_t bytes) noexcept;
  uint64_t remove(uint64_t key) noexcept;

  std::array<Entry, kEntries> entries_{};
  std::array<std::atomic<uint64_t>, kDevices> total_{};
  std::array<std::atomic<uint64_t>, kDevices> high_{};
};

// Driver calls of the host that are running, and how many there were.
class DriverCalls {
 public:
  struct Count {
    uint32_t entered = 0;
    uint32_t left = 0;
    bool at_rest() const noexcept { return entered == left; }
    bool operator==(const Count&) const = default;
  };
  void enter() noexcept { entered_.fetch_add(1); }
  void leave() noexcept { left_.fetch_add(1); }
  Count now() const noexcept { return {entered_.load(), left_.load()}; }
  void clear() noexcept {
    entered_.store(0);
    left_.store(0);
  }

 private:
  std::atomic<uint32_t> entered_{0};
  std::atomic<uint32_t> left_{0};
};

}  // namespace tidemark::injector
