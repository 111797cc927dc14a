// Every allocation of one device, as columns: 25 bytes each instead of the 80 of an Allocation.
//
// Sizes, stream, stack and names repeat with every step of a program, so an allocation stores only
// the number of their combination (its kind); its times are those of its events. operator[]
// assembles a whole Allocation; code that needs one or two values of each of millions reads those
// directly.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "analysis/columns/data_column.h"
#include "proto/rows.h"

namespace tidemark {

inline constexpr uint32_t kNever = UINT32_MAX;

struct Allocation {
  uint64_t address = 0;
  uint64_t block_bytes = 0;
  uint64_t requested_bytes = 0;
  uint64_t stream = 0;
  const int64_t* times = nullptr;  // of the events; null while the columns are built
  uint32_t birth = 0;              // event index; 0 with `seeded`
  uint32_t release = kNever;       // event index
  uint32_t death = kNever;         // event index
  uint32_t stack = 0;
  uint32_t compile_context = 0;  // string
  uint32_t metadata = 0;         // string
  uint32_t pool = 0;             // where the recorder knew it; 0: default pool
  uint32_t nn_module = 0;        // that ran; see Labels for the one that it belongs to
  Category category = Category::kUnknown;
  bool seeded = false;  // older than the recorded history

  // Looked up when asked for: few passes over all allocations need them.
  int64_t birth_ns() const { return times[birth]; }
  int64_t death_ns() const { return death == kNever ? INT64_MAX : times[death]; }
  bool alive_at(uint32_t event) const { return birth <= event && event < death; }
  uint64_t asked_bytes() const { return requested_bytes != 0 ? requested_bytes : block_bytes; }
};

// The values that many allocations share.
struct AllocationKind {
  uint64_t block_bytes = 0;
  uint64_t requested_bytes = 0;
  uint64_t stream = 0;
  uint32_t stack = 0;
  uint32_t compile_context = 0;
  uint32_t metadata = 0;
  uint32_t pool = 0;
  uint32_t nn_module = 0;

  // By which blocks are compared: a capture without the bridge does not know what was requested.
  uint64_t asked_bytes() const { return requested_bytes != 0 ? requested_bytes : block_bytes; }

  friend bool operator==(const AllocationKind&, const AllocationKind&) = default;
};
static_assert(sizeof(AllocationKind) == 48);

class AllocationColumns {
 public:
  // Yields allocations by value, assembled from the columns.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Allocation;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Allocation;

    Iterator(const AllocationColumns* of, size_t at) : of_(of), at_(at) {}
    Allocation operator*() const { return (*of_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return {of_, at_++}; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    const AllocationColumns* of_;
    size_t at_;
  };

  size_t size() const { return address_.size(); }
  bool empty() const { return address_.empty(); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  Allocation operator[](size_t i) const {
    const AllocationKind& k = kinds_[kind_[i]];
    Allocation a;
    a.address = address_[i];
    a.block_bytes = k.block_bytes;
    a.requested_bytes = k.requested_bytes;
    a.stream = k.stream;
    a.times = times_;
    a.birth = birth_[i];
    a.release = release_[i];
    a.death = death_[i];
    a.stack = k.stack;
    a.compile_context = k.compile_context;
    a.metadata = k.metadata;
    a.pool = k.pool;
    a.nn_module = k.nn_module;
    a.category = category(i);
    a.seeded = seeded(i);
    return a;
  }

  // One value of one allocation.
  uint64_t address(size_t i) const { return address_[i]; }
  uint64_t block_bytes(size_t i) const { return kinds_[kind_[i]].block_bytes; }
  uint64_t requested_bytes(size_t i) const { return kinds_[kind_[i]].requested_bytes; }
  uint64_t asked_bytes(size_t i) const { return kinds_[kind_[i]].asked_bytes(); }
  uint32_t stack(size_t i) const { return kinds_[kind_[i]].stack; }
  uint32_t nn_module(size_t i) const { return kinds_[kind_[i]].nn_module; }
  uint32_t birth(size_t i) const { return birth_[i]; }
  uint32_t release(size_t i) const { return release_[i]; }
  uint32_t death(size_t i) const { return death_[i]; }
  Category category(size_t i) const { return static_cast<Category>(flag(i) & kCategoryBits); }
  bool seeded(size_t i) const { return (flag(i) & kSeededBit) != 0; }
  bool alive_at(size_t i, uint32_t event) const { return birth_[i] <= event && event < death_[i]; }

  // The kinds, and the kind of an allocation. Where there are very many, equal kinds may be stored
  // twice.
  const DataColumn<AllocationKind>& kinds() const { return kinds_; }
  uint32_t kind(size_t i) const { return kind_[i]; }

  // For the code that builds the columns. Times are known once finish() has set where they are
  // stored.
  void add(const Allocation& allocation) { add({&allocation, 1}); }
  void add(std::span<const Allocation> allocations);
  // Begins to load what set_release() and set_death() write.
  void prefetch_end(size_t i) const {
    if (i >= size()) return;
    __builtin_prefetch(&release_[i], 1);
    __builtin_prefetch(&death_[i], 1);
  }
  void set_release(size_t i, uint32_t event) { release_[i] = event; }
  void set_death(size_t i, uint32_t event) { death_[i] = event; }
  // One thread may call this while others read.
  void set_category(size_t i, Category category) {
    const auto kept = static_cast<uint8_t>(flag(i) & kSeededBit);
    std::atomic_ref(flags_[i]).store(static_cast<uint8_t>(kept | static_cast<uint8_t>(category)),
                                     std::memory_order_relaxed);
  }
  void finish(const int64_t* times);

  // Calls visit(name, column) for each column that may be stored in a file. The flags always stay
  // in memory: categories change when they are inferred.
  template <typename Visit>
  void visit_columns(Visit&& visit) {
    visit("address", address_);
    visit("kind", kind_);
    visit("birth", birth_);
    visit("release", release_);
    visit("death", death_);
    visit("kinds", kinds_);
  }
  DataColumn<uint8_t>& flags() { return flags_; }

 private:
  static constexpr uint8_t kSeededBit = 0x80;
  static constexpr uint8_t kCategoryBits = 0x7f;
  static constexpr size_t kMostSlots = size_t{1} << 20;  // of table_
  static constexpr size_t kTries = 4;

  uint8_t flag(size_t i) const {
    // C++20 has no atomic_ref to const objects.
    return std::atomic_ref(const_cast<uint8_t&>(flags_[i])).load(std::memory_order_relaxed);
  }
  uint32_t kind_of(const AllocationKind& kind, uint64_t hash);
  void grow_table();

  DataColumn<uint64_t> address_;
  DataColumn<uint32_t> kind_;
  DataColumn<uint32_t> birth_;
  DataColumn<uint32_t> release_;
  DataColumn<uint32_t> death_;
  DataColumn<uint8_t> flags_;
  DataColumn<AllocationKind> kinds_;
  std::vector<uint32_t> table_;  // while building: hash of a kind -> 1 + its number
  const int64_t* times_ = nullptr;
};

}  // namespace tidemark
