// A hash table of rows by a key that is not 0, in its own pages. Used by the writer thread only.
//
// It grows by doubling and never shrinks; erasing moves the entries behind into the gap, so that no
// tombstones pile up over days.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/base/pages.h"

namespace tidemark::injector {

// `Entry` is trivially copyable and has a member `uint64_t key`.
template <typename Entry>
class KeyedTable {
 public:
  Entry* find(uint64_t key) noexcept {
    if (size_ == 0 || key == 0) return nullptr;
    for (size_t i = home(key);; i = next(i)) {
      if (slots_[i].key == key) return &slots_[i];
      if (slots_[i].key == 0) return nullptr;
    }
  }

  // The entry of this key; a new one is all zeros but for its key. nullptr: no memory, or key 0.
  Entry* find_or_add(uint64_t key) noexcept {
    if (Entry* const known = find(key); known != nullptr || key == 0) return known;
    if ((size_ + 1) * 4 > capacity_ * 3 && !grow()) return nullptr;
    size_t i = home(key);
    while (slots_[i].key != 0) i = next(i);
    slots_[i] = Entry{};
    slots_[i].key = key;
    ++size_;
    return &slots_[i];
  }

  // Invalidates other pointers to entries.
  void erase(Entry* entry) noexcept {
    auto gap = static_cast<size_t>(entry - slots_.get());
    for (size_t i = next(gap); slots_[i].key != 0; i = next(i)) {
      // An entry may move into the gap unless its home lies behind the gap.
      const size_t from_home = (i - home(slots_[i].key)) & (capacity_ - 1);
      if (from_home < ((i - gap) & (capacity_ - 1))) continue;
      slots_[gap] = slots_[i];
      gap = i;
    }
    slots_[gap].key = 0;
    --size_;
  }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (size_t i = 0; i < capacity_; ++i) {
      if (slots_[i].key != 0) visit(slots_[i]);
    }
  }

  size_t size() const noexcept { return size_; }
  uint64_t memory_bytes() const noexcept { return capacity_ * sizeof(Entry); }

 private:
  static constexpr size_t kFirst = 1024;
  static constexpr size_t kMost = size_t{1} << 23;

  size_t home(uint64_t key) const noexcept {
    return (key * 0x9e3779b97f4a7c15U >> 20) & (capacity_ - 1);
  }
  size_t next(size_t i) const noexcept { return (i + 1) & (capacity_ - 1); }

  bool grow() noexcept {
    const size_t wanted = capacity_ == 0 ? kFirst : capacity_ * 2;
    PageArray<Entry> larger;
    if (wanted > kMost || !larger.reserve(wanted)) return false;
    larger.swap(slots_);
    const size_t before = capacity_;
    capacity_ = wanted;
    for (size_t i = 0; i < before; ++i) {
      if (larger[i].key == 0) continue;
      size_t at = home(larger[i].key);
      while (slots_[at].key != 0) at = next(at);
      slots_[at] = larger[i];
    }
    return true;
  }

  PageArray<Entry> slots_;
  size_t capacity_ = 0;  // a power of two
  size_t size_ = 0;
};

// An array that grows, in its own pages.
template <typename T>
class PageList {
 public:
  bool add(const T& value) noexcept {
    if (size_ == items_.capacity() && !items_.reserve(size_ == 0 ? 64 : size_ * 2)) return false;
    items_[size_++] = value;
    return true;
  }
  void remove_unordered(size_t i) noexcept { items_[i] = items_[--size_]; }
  void remove(size_t i) noexcept {
    --size_;
    for (; i < size_; ++i) items_[i] = items_[i + 1];
  }
  void truncate(size_t size) noexcept { size_ = size; }
  void clear() noexcept { size_ = 0; }
  T* begin() const noexcept { return items_.get(); }
  T* end() const noexcept { return items_.get() + size_; }
  T& operator[](size_t i) const noexcept { return items_[i]; }
  size_t size() const noexcept { return size_; }
  uint64_t memory_bytes() const noexcept { return items_.capacity() * sizeof(T); }

 private:
  PageArray<T> items_;
  size_t size_ = 0;
};

}  // namespace tidemark::injector
