// A hash table from content to id, for many readers and few writers.
//
// A key is 128 bits of hash. The content itself is not kept: it goes into the trace, and would be
// needed here only to tell apart two contents with the same 128 bits (probability below 1 in 10^26
// with a full table). Reading takes no lock: a slot is complete once its id is not 0. Adding takes
// the lock of one of 16 regions, chosen by the upper bits of the key; a probe sequence stays in its
// region. Entries are never removed.
//
// Probes begin among the few first slots of a region, so that a table with some thousand entries
// stays in the processor's caches, however large it may grow.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/process/tool_thread.h"
#include "proto/base/pages.h"

namespace tidemark::injector {

struct HashKey {
  uint64_t a = 0;
  uint64_t b = 0;
  bool operator==(const HashKey&) const = default;
};

HashKey hash_bytes(const void* data, size_t size) noexcept;

// The same hash, fed one pair of words at a time, for content that is not contiguous. Two lanes mix
// the same words in different combinations, so that no input cancels out in both.
class Hasher {
 public:
  explicit Hasher(uint64_t seed) noexcept : a_(kSecret[0] ^ seed), b_(kSecret[1] + seed) {}

  void take(uint64_t first, uint64_t second) noexcept {
    a_ = fold(first ^ a_ ^ kSecret[2], second ^ kSecret[1]) ^ second;
    b_ = fold(second ^ b_ ^ kSecret[3], first ^ kSecret[0]) + first;
  }
  HashKey finish() const noexcept {
    return {fold(a_ ^ kSecret[0], b_ ^ kSecret[2]) ^ a_,
            fold(b_ ^ kSecret[1], a_ ^ kSecret[3]) ^ b_};
  }

 private:
  // Multiply and fold, the mixing step of wyhash.
  static uint64_t fold(uint64_t a, uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  static constexpr uint64_t kSecret[] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                         0x589965cc75374cc3};

  uint64_t a_;
  uint64_t b_;
};

// A key for the content together with a number.
inline HashKey extended(const HashKey& key, uint64_t number) noexcept {
  Hasher hasher(key.a);
  hasher.take(key.b, number);
  return hasher.finish();
}

class HashedIds {
 public:
  bool create(uint32_t slots_log2) noexcept {
    region_slots_ = (1U << slots_log2) / uint32_t{kRegions};
    near_slots_ = std::min(region_slots_, kMostNearSlots);
    slots_ = static_cast<Slot*>(map_pages(sizeof(Slot) << slots_log2));
    return slots_ != nullptr;
  }

  uint64_t capacity_bytes() const noexcept {
    return uint64_t{kRegions} * region_slots_ * sizeof(Slot);
  }

  // At most this much of that is in memory.
  uint64_t touched_bytes(uint64_t entries) const noexcept {
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t near = uint64_t{kRegions} * near_slots_;
    const uint64_t far = entries > near / 2 ? entries - near / 2 : 0;
    return std::min(near * sizeof(Slot) + far * kPageBytes, capacity_bytes());
  }

  // No thread may use the table any more.
  void unmap() noexcept {
    unmap_pages(slots_, capacity_bytes());
    slots_ = nullptr;
  }

  // Removes all entries and frees the memory; the addresses stay mapped. A concurrent reader finds
  // nothing.
  void clear() noexcept {
    if (slots_ == nullptr) return;
    for (size_t number = 0; number < kRegions; ++number) static_cast<void>(lock(number));
    ::madvise(slots_, capacity_bytes(), MADV_DONTNEED);
    for (uint32_t& used : used_) used = 0;
    for (std::atomic_flag& region : locked_) region.clear(std::memory_order_release);
  }

  // 0 if not found.
  uint32_t find(const HashKey& key) const noexcept {
    const Slot* const region = region_of(key);
    for (uint32_t probe = 0;; ++probe) {
      const Slot& slot = region[index(key, probe)];
      const uint32_t id = slot.id.load(std::memory_order_acquire);
      if (id == 0 || slot.key == key) return id;
    }
  }

  // The id of the key. A new key gets the id that `make()` returns. If that is 0, the table is full
  // or the lock cannot be had, the key is not added. `make` runs under the region's lock, so it
  // runs once per key.
  template <typename Make>
  uint32_t find_or_add(const HashKey& key, Make&& make) noexcept {
    if (const uint32_t id = find(key); id != 0) return id;
    const size_t number = region_number(key);
    if (!lock(number)) return 0;
    const uint32_t id = add(key, number, make);
    locked_[number].clear(std::memory_order_release);
    return id;
  }

 private:
  static constexpr uint32_t kRegions = 16;
  static constexpr uint32_t kMostNearSlots = 256;
  static constexpr uint32_t kNearProbes = 4;
  // The lock is held while one record is written, but its holder may lose its processor for some
  // milliseconds on a busy machine. If it is kept from running for longer (a higher priority, a
  // debugger), we lose a name rather than block the host.
  static constexpr int kCheapTries = 1000;
  static constexpr int64_t kPatienceMs = 50;

  bool lock(size_t number) noexcept {
    int64_t deadline_ms = 0;
    for (int tries = 0; locked_[number].test_and_set(std::memory_order_acquire); ++tries) {
      if (tries >= kCheapTries) {
        const int64_t now_ms = monotonic_ms();
        if (deadline_ms == 0) deadline_ms = now_ms + kPatienceMs;
        if (now_ms >= deadline_ms) return false;
      }
      sched_yield();
    }
    return true;
  }

  struct Slot {
    HashKey key;
    std::atomic<uint32_t> id;
  };

  template <typename Make>
  uint32_t add(const HashKey& key, size_t number, Make& make) noexcept {
    Slot* const region = slots_ + number * region_slots_;
    uint32_t probe = 0;
    while (const uint32_t id = region[index(key, probe)].id.load(std::memory_order_relaxed)) {
      if (region[index(key, probe)].key == key) return id;
      ++probe;
    }
    // A quarter of the slots stays empty, so that every probe ends.
    if (used_[number] >= region_slots_ / 4 * 3) return 0;
    const uint32_t id = make();
    if (id == 0) return 0;
    ++used_[number];
    Slot& slot = region[index(key, probe)];
    slot.key = key;
    slot.id.store(id, std::memory_order_release);
    return id;
  }

  static size_t region_number(const HashKey& key) noexcept { return key.a >> 60; }
  const Slot* region_of(const HashKey& key) const noexcept {
    return slots_ + region_number(key) * region_slots_;
  }
  uint32_t index(const HashKey& key, uint32_t probe) const noexcept {
    return probe < kNearProbes
               ? (static_cast<uint32_t>(key.b) + probe) & (near_slots_ - 1)
               : (static_cast<uint32_t>(key.a) + probe - kNearProbes) & (region_slots_ - 1);
  }

  Slot* slots_ = nullptr;
  uint32_t region_slots_ = 0;
  uint32_t near_slots_ = 0;
  uint32_t used_[kRegions] = {};  // under the region's lock
  std::atomic_flag locked_[kRegions] = {};
};

}  // namespace tidemark::injector
