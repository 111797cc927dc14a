// A hash table from addresses to 32-bit indices (0 = absent): open addressing, linear probing,
// backward-shift deletion. Four times as fast as std::unordered_map on allocator streams, where
// every event is one or two lookups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tidemark {

class AddressTable {
 public:
  AddressTable() : slots_(64) {}

  uint32_t find(uint64_t address) const {
    for (size_t i = home(address);; i = (i + 1) & mask()) {
      if (slots_[i].value == 0) return 0;
      if (slots_[i].address == address) return slots_[i].value;
    }
  }

  // Inserts or replaces; value is not 0.
  void set(uint64_t address, uint32_t value) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    size_t i = home(address);
    while (slots_[i].value != 0 && slots_[i].address != address) i = (i + 1) & mask();
    if (slots_[i].value == 0) ++size_;
    slots_[i] = {address, value};
  }

  void erase(uint64_t address) {
    size_t i = home(address);
    while (slots_[i].address != address || slots_[i].value == 0) {
      if (slots_[i].value == 0) return;
      i = (i + 1) & mask();
    }
    --size_;
    // Close the gap: pull back whatever probed past it.
    for (size_t j = (i + 1) & mask(); slots_[j].value != 0; j = (j + 1) & mask()) {
      const size_t h = home(slots_[j].address);
      if (((j - h) & mask()) >= ((j - i) & mask())) {
        slots_[i] = slots_[j];
        i = j;
      }
    }
    slots_[i] = {};
  }

  size_t size() const { return size_; }

  template <typename Use>
  void for_each(Use&& use) const {
    for (const Slot& slot : slots_) {
      if (slot.value != 0) use(slot.address, slot.value);
    }
  }

 private:
  struct Slot {
    uint64_t address = 0;
    uint32_t value = 0;
  };

  size_t mask() const { return slots_.size() - 1; }
  // Salted: addresses come from files, and nobody may choose them so that they collide.
  size_t home(uint64_t address) const {
    uint64_t h = address ^ salt_;
    h = (h ^ (h >> 32)) * 0x9E3779B97F4A7C15U;
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9U;
    return static_cast<size_t>(h >> 32) & mask();
  }
  static uint64_t process_salt() {
    static const uint64_t salt = (uint64_t{std::random_device()()} << 32) | std::random_device()();
    return salt;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.value != 0) set(slot.address, slot.value);
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  uint64_t salt_ = process_salt();
};

}  // namespace tidemark
