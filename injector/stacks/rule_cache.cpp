#include "injector/stacks/rule_cache.h"

#include <cstring>
#include <limits>

#include "proto/base/hash.h"

namespace tidemark::injector {
namespace {

// The registers that a function must preserve, and the return address.
#if defined(__x86_64__)
constexpr uint8_t kKept[] = {3, 6, 12, 13, 14, 15, 16};
#else
constexpr uint8_t kKept[] = {19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30};
#endif
constexpr size_t kSlots = 12;
static_assert(sizeof kKept <= kSlots);

constexpr int16_t kSameCode = std::numeric_limits<int16_t>::min();
constexpr int16_t kUndefinedCode = kSameCode + 1;
constexpr int32_t kUnit = 8;

constexpr uint64_t kSignalFrame = 1;

bool encode(const Rule& rule, int16_t& out) {
  switch (rule.kind) {
    case RuleKind::kSame:
      out = kSameCode;
      return true;
    case RuleKind::kUndefined:
      out = kUndefinedCode;
      return true;
    case RuleKind::kAtCfa: {
      const int32_t units = rule.value / kUnit;
      if (rule.value % kUnit != 0 || units <= kUndefinedCode || units > INT16_MAX) return false;
      out = static_cast<int16_t>(units);
      return true;
    }
    default:
      return false;
  }
}

Rule decode(int16_t code) {
  if (code == kSameCode) return {};
  if (code == kUndefinedCode) return {RuleKind::kUndefined, 0, nullptr};
  return {RuleKind::kAtCfa, code * kUnit, nullptr};
}

// Rules for registers that a function may overwrite are of no use to its callers.
bool is_kept(uint32_t number) {
  for (const uint8_t kept : kKept) {
    if (kept == number) return true;
  }
  return false;
}

bool pack(const FrameRules& rules, size_t module, uint64_t& shape, uint64_t (&offsets)[3]) {
  if (rules.cfa.kind != RuleKind::kRegister || module > UINT16_MAX) return false;
  int16_t codes[kSlots] = {};
  for (size_t i = 0; i < sizeof kKept; ++i) {
    if (!encode(rules.registers[kKept[i]], codes[i])) return false;
  }
  for (uint32_t i = 0; i < kRegisterCount; ++i) {
    const RuleKind kind = rules.registers[i].kind;
    if (!is_kept(i) && kind != RuleKind::kSame && kind != RuleKind::kUndefined) return false;
  }
  static_assert(sizeof codes == sizeof offsets);
  std::memcpy(offsets, codes, sizeof codes);
  shape = static_cast<uint64_t>(static_cast<uint32_t>(rules.cfa.value)) |
          static_cast<uint64_t>(module) << 32 | static_cast<uint64_t>(rules.cfa_register) << 48 |
          (rules.signal_frame ? kSignalFrame << 56 : 0);
  return true;
}

void unpack(uint64_t shape, const uint64_t (&offsets)[3], size_t& module, FrameRules& rules) {
  int16_t codes[kSlots];
  std::memcpy(codes, offsets, sizeof codes);
  rules = FrameRules();
  rules.cfa = {RuleKind::kRegister, static_cast<int32_t>(static_cast<uint32_t>(shape)), nullptr};
  rules.cfa_register = static_cast<uint32_t>(shape >> 48 & 0xff);
  rules.signal_frame = (shape >> 56 & kSignalFrame) != 0;
  for (size_t i = 0; i < sizeof kKept; ++i) rules.registers[kKept[i]] = decode(codes[i]);
  module = static_cast<size_t>(shape >> 32 & 0xffff);
}

}  // namespace

size_t RuleCache::place_of(uintptr_t pc) noexcept {
  return hash_word(0, pc) % kEntries;
}

uint64_t RuleCache::checksum(const Words& words) noexcept {
  uint64_t sum = 0x7469646d61726b00;  // an entry of zeros is not valid
  for (size_t i = 0; i + 1 < kWords; ++i) sum = hash_word(sum, words[i]) + words[i];
  return sum;
}

bool RuleCache::find(uintptr_t pc, uint64_t generation, size_t& module,
                     FrameRules& rules) const noexcept {
  const Entry& entry = entries_[place_of(pc)];
  Words words;
  for (size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_relaxed);
  if (words[0] != pc || words[1] != generation || words[kWords - 1] != checksum(words))
    return false;
  const uint64_t offsets[3] = {words[3], words[4], words[5]};
  unpack(words[2], offsets, module, rules);
  return true;
}

void RuleCache::keep(uintptr_t pc, uint64_t generation, size_t module,
                     const FrameRules& rules) noexcept {
  uint64_t shape = 0;
  uint64_t offsets[3] = {};
  if (!pack(rules, module, shape, offsets)) return;
  Words words = {pc, generation, shape, offsets[0], offsets[1], offsets[2], 0};
  words[kWords - 1] = checksum(words);
  Entry& entry = entries_[place_of(pc)];
  for (size_t i = 0; i < kWords; ++i) entry.words[i].store(words[i], std::memory_order_relaxed);
}

void RuleCache::clear() noexcept {
  for (Entry& entry : entries_) {
    for (auto& word : entry.words) word.store(0, std::memory_order_relaxed);
  }
}

}  // namespace tidemark::injector
