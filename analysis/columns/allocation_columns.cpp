#include "analysis/columns/allocation_columns.h"

#include <algorithm>

#include "proto/base/hash.h"

namespace tidemark {

namespace {

// Salted, so that kinds from a forged file cannot be chosen to collide.
uint64_t hash_of(const AllocationKind& k) {
  uint64_t hash = hash_word(hash_salt(), k.block_bytes);
  hash = hash_word(hash, k.requested_bytes);
  hash = hash_word(hash, (uint64_t{k.stack} << 32) | k.pool);
  return hash_word(hash, k.stream ^ (uint64_t{k.compile_context} << 40) ^
                             (uint64_t{k.metadata} << 16) ^ (uint64_t{k.nn_module} << 4));
}

}  // namespace

void AllocationColumns::grow_table() {
  table_.assign(table_.empty() ? 256 : table_.size() * 2, 0);
  const size_t mask = table_.size() - 1;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    size_t at = hash_of(kinds_[k]) & mask;
    while (table_[at] != 0) at = (at + 1) & mask;
    table_[at] = static_cast<uint32_t>(k + 1);
  }
}

// A program whose sizes never repeat has as many kinds as allocations. The table stops growing
// before it takes more memory than the columns save: from then on it keeps only the latest of
// colliding kinds, and a forgotten kind gets a new number when it returns.
uint32_t AllocationColumns::kind_of(const AllocationKind& kind, uint64_t hash) {
  if ((kinds_.size() + 1) * 2 > table_.size() && table_.size() < kMostSlots) grow_table();
  const bool forgets = (kinds_.size() + 1) * 2 > table_.size();
  const size_t mask = table_.size() - 1;
  size_t at = hash & mask;
  for (size_t tries = 0; table_[at] != 0 && (!forgets || tries < kTries); ++tries) {
    if (kinds_[table_[at] - 1] == kind) return table_[at] - 1;
    at = (at + 1) & mask;
  }
  kinds_.push_back(kind);
  table_[at] = static_cast<uint32_t>(kinds_.size());
  return table_[at] - 1;
}

// In groups: what finding their kinds reads is loaded for all of a group at once.
void AllocationColumns::add(std::span<const Allocation> allocations) {
  constexpr size_t kGroup = 16;
  AllocationKind kinds[kGroup];
  uint64_t hashes[kGroup];
  if (table_.empty()) grow_table();
  while (!allocations.empty()) {
    const auto group = allocations.first(std::min(kGroup, allocations.size()));
    allocations = allocations.subspan(group.size());
    const size_t mask = table_.size() - 1;
    for (size_t i = 0; i < group.size(); ++i) {
      const Allocation& a = group[i];
      kinds[i] = {a.block_bytes,     a.requested_bytes, a.stream, a.stack,
                  a.compile_context, a.metadata,        a.pool,   a.nn_module};
      hashes[i] = hash_of(kinds[i]);
      __builtin_prefetch(&table_[hashes[i] & mask]);
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if (const uint32_t number = table_[hashes[i] & mask]; number != 0) {
        __builtin_prefetch(&kinds_[number - 1]);
      }
    }
    for (size_t i = 0; i < group.size(); ++i) {
      const Allocation& a = group[i];
      address_.push_back(a.address);
      kind_.push_back(kind_of(kinds[i], hashes[i]));
      birth_.push_back(a.birth);
      release_.push_back(a.release);
      death_.push_back(a.death);
      const auto category = static_cast<uint8_t>(static_cast<uint8_t>(a.category) & kCategoryBits);
      flags_.push_back(static_cast<uint8_t>(category | (a.seeded ? kSeededBit : 0)));
    }
  }
}

void AllocationColumns::finish(const int64_t* times) {
  times_ = times;
  std::vector<uint32_t>().swap(table_);
}

}  // namespace tidemark
