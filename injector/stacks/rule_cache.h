// A cache of the module and the frame rules of program counters seen before.
//
// Shared by all threads without a lock. An entry is seven words that are written and read one by
// one. The last is a checksum of the others: an entry read while another thread writes it does not
// match and counts as not found. Only rules that fit are kept: CFA = register + offset, registers
// saved at small offsets. That covers every frame of compiled code except those that realign their
// stack.
//
//   pc │ generation │ module, CFA register, flags, CFA offset │ 12 x 16-bit offsets │ checksum
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/stacks/cfi.h"

namespace tidemark::injector {

class RuleCache {
 public:
  bool find(uintptr_t pc, uint64_t generation, size_t& module, FrameRules& rules) const noexcept;
  void keep(uintptr_t pc, uint64_t generation, size_t module, const FrameRules& rules) noexcept;
  void clear() noexcept;

 private:
  static constexpr size_t kEntries = 4096;
  static constexpr size_t kWords = 7;
  using Words = std::array<uint64_t, kWords>;
  struct alignas(64) Entry {
    std::atomic<uint64_t> words[kWords];
  };

  static size_t place_of(uintptr_t pc) noexcept;
  static uint64_t checksum(const Words& words) noexcept;

  std::array<Entry, kEntries> entries_{};
};

}  // namespace tidemark::injector
