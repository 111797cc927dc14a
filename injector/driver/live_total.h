// What this process holds through the driver: to notice a new high of a device, and for those who
// ask while it runs.
//
// A free names only its address, so the sizes are kept in a fixed table of atomics: a callback
// never waits and never allocates. What finds no place in the table is not counted there, but its
// number is known. VMM memory counts from cuMemCreate until it is neither referenced nor mapped.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/rows.h"

namespace tidemark::injector {

// A sum over the table. What changes meanwhile may be part of it or not.
struct HeldBytes {
  static constexpr size_t kDevices = 64;
  static constexpr size_t kOwners = 32;  // by the number that note() was given
  uint64_t on_card[kDevices][kOwners] = {};
  uint64_t pinned = 0;  // host memory
};

class LiveTotal {
 public:
  // Counts a successful call. True: the device's total has never been as high.
  bool note(const DriverEvent& event, uint8_t owner) noexcept;
  // Of a device for which note() was true.
  uint64_t highest(int64_t device) const noexcept {
    return high_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  }
  uint64_t total(int64_t device) const noexcept {
    return total_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  }
  // As in analysis/history/driver_model.h: memory ends with its context, pools with the last one of
  // the device.
  void end_context(int64_t device, uint32_t context, bool last) noexcept;
  void clear() noexcept;

  void add_up(HeldBytes& out) const noexcept;
  // Allocations that found no place in the table.
  uint64_t uncounted() const noexcept { return uncounted_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;
  static constexpr size_t kProbes = 32;
  static constexpr size_t kDevices = HeldBytes::kDevices;
  enum class What : uint8_t { kNothing, kCard, kGraph, kPinned, kMapping };
  struct Entry {
    std::atomic<uint64_t> key{0};  // address, or handle with kHandleBit
    std::atomic<uint64_t> bytes{0};
    // What, owner, device and context (see tie_of) in a byte each; the upper half counts references
    // and mappings.
    std::atomic<uint64_t> about{0};
    std::atomic<uint64_t> handle{0};  // of a mapping: the key of its memory
  };
  static constexpr uint64_t kHandleBit = uint64_t{1} << 63;
  static constexpr uint64_t kOneUse = uint64_t{1} << 32;
  static constexpr uint8_t kTiedToNone = 0;
  static constexpr uint8_t kTiedToLast = 255;  // context of the device
  static What what_of(const DriverEvent& event) noexcept;
  static uint64_t about(What what, uint8_t owner, int64_t device, uint8_t tie) noexcept;
  static uint8_t tie_of(const DriverEvent& event) noexcept;
  static uint8_t tie_to(uint32_t context) noexcept;

  Entry& entry(uint64_t key, size_t probe) noexcept;
  Entry* find(uint64_t key) noexcept;
  bool add(uint64_t key, uint64_t bytes, uint64_t about, uint64_t handle = 0) noexcept;
  void remove(Entry& place) noexcept;
  bool hold(uint64_t key, const DriverEvent& event, uint8_t owner) noexcept;
  void end_use(uint64_t key) noexcept;
  void unmap(const DriverEvent& event) noexcept;
  void unmap_seeded(uint64_t begin, uint64_t end) noexcept;

  std::array<Entry, kEntries> entries_{};
  std::array<std::atomic<uint64_t>, kDevices> total_{};
  std::array<std::atomic<uint64_t>, kDevices> high_{};
  std::atomic<uint64_t> uncounted_{0};
};

// Refusals of the driver: those of PyTorch's allocator, which may empty its cache and go on, and all
// others.
class Refusals {
 public:
  void note(int64_t device, bool of_torch) noexcept {
    if (device < 0 || device >= static_cast<int64_t>(HeldBytes::kDevices)) return;
    counts_[static_cast<size_t>(device)][of_torch ? 1 : 0].fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t of(int64_t device, bool of_torch) const noexcept {
    return counts_[static_cast<size_t>(device)][of_torch ? 1 : 0].load(std::memory_order_relaxed);
  }
  void clear() noexcept {
    for (auto& counts : counts_) {
      for (auto& count : counts) count.store(0);
    }
  }

 private:
  std::array<std::array<std::atomic<uint64_t>, 2>, HeldBytes::kDevices> counts_{};
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
